"""Call stacks as the vendor's files hold them: frames of files, innermost first, a line for each."""

from __future__ import annotations

from stepscope.formats.ascend.stack_frames import file_frames, frame_lines

STACK = "net.py(12): forward;nn.Module: Net_0; train.py(18): train"


def test_calls_of_modules_are_left_out():
    assert file_frames(STACK) == ["net.py(12): forward", "train.py(18): train"]


def test_lines_are_separated_as_in_the_vendors_files():
    assert frame_lines(STACK) == "net.py(12): forward;\r\ntrain.py(18): train"
