# SPDX-License-Identifier: Apache-2.0
"""The one kind of error a user sees: what, where, cause, do this."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text that can be written as UTF-8; bytes of a file name that are not UTF-8 are shown as `\\xff`."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class CaptureError(Exception):
    """A user's input cannot be used; the message says how to go on."""

    def __init__(self, what: str, *, where: str | None = None, cause: str | None = None, fix: str | None = None):
        super().__init__(what)
        self.what = printable(what)
        self.where, self.cause, self.fix = (None if text is None else printable(text) for text in (where, cause, fix))

    def __str__(self) -> str:
        parts = (("where", self.where), ("cause", self.cause), ("do this", self.fix))
        return "\n".join([self.what, *(f"  {label}: {text}" for label, text in parts if text)])

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; keyword arguments do not survive the default pickling.
        return _rebuild, (type(self), self.what, self.where, self.cause, self.fix)


def _rebuild(kind: type[CaptureError], what: str, where: str | None, cause: str | None, fix: str | None) -> CaptureError:
    return kind(what, where=where, cause=cause, fix=fix)
