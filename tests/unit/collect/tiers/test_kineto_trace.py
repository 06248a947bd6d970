"""The trace of torch's own profiler is whole or absent; torch itself does not say when a write failed."""

from __future__ import annotations

import pytest

from stepscope.collect.tiers import kineto
from stepscope.errors import CaptureError

WHOLE = '{\n  "traceEvents": [\n  {\n    "ph": "X",\n    "args": {\n      "Ev Idx": 1\n    }\n  }\n  ],"traceName": "x" }'


class Results:
    def __init__(self, text: str, ending: str = ""):
        self.text, self.ending = text, ending

    def save(self, path: str) -> None:
        with open(path + self.ending, "w") as file:
            file.write(self.text)


def test_a_whole_trace_gets_its_name(tmp_path):
    kineto._save(Results(WHOLE), tmp_path / kineto.TRACE)
    assert [path.name for path in tmp_path.iterdir()] == [kineto.TRACE]
    assert (tmp_path / kineto.TRACE).read_text() == WHOLE


@pytest.mark.parametrize("ending", ["", ".tmp"], ids=["cut", "not-renamed"])
def test_a_cut_trace_is_refused_and_leaves_nothing(tmp_path, ending):
    for cut in range(len(WHOLE)):
        with pytest.raises(CaptureError, match="could not write its trace"):
            kineto._save(Results(WHOLE[:cut], ending), tmp_path / kineto.TRACE)
        assert list(tmp_path.iterdir()) == []
