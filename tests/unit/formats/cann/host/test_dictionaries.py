# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.host.dictionaries import Words, level_names, read_dictionaries
from stepscope.formats.cann.write.hash import HashDictionary, text_hash, text_hashes


def dictionaries(tmp_path: Path, hashes: list[bytes] = (), types: list[bytes] = ()):
    data = tmp_path / "host" / "data"
    data.mkdir(parents=True)
    for tag, slices in (("hash_dic", hashes), ("type_info_dic", types)):
        for number, content in enumerate(slices):
            (data / f"unaging.additional.{tag}.slice_{number}").write_bytes(content)
    return read_dictionaries(open_prof(tmp_path).host)


def test_texts_are_split_at_the_first_colon_and_later_lines_win(tmp_path: Path):
    found = dictionaries(tmp_path, [b"7:old\n8:a:b\n7:n", b"ew\n9:"])
    assert found.hashes.text(np.array([7, 8, 9, 10, 0])).to_list() == ["new", "a:b", "", "10", None]
    assert found.hashes.text(np.array([10, 8]), else_number=False).to_list() == [None, "a:b"]
    assert found.hashes.missing(np.array([7, 10, 10, 0])) == 2


def test_a_name_may_hold_what_python_takes_for_a_line_end(tmp_path: Path):
    assert dictionaries(tmp_path, ["1:a\u2028b\x0bc\r\n".encode()]).hashes.text(np.array([1])).to_list() == ["a\u2028b\x0bc"]


def test_types_of_all_slices_and_those_everybody_knows(tmp_path: Path):
    found = dictionaries(tmp_path, types=[b"5000_0:KERNEL_AICORE\n", b"10000_5:launch\n"])
    assert found.type_names(np.array([10000, 5000, 5000, 5000]), np.array([5, 0, 27, 99])).to_list() == [
        "launch", "KERNEL_AICORE", "DYNAMIC_ENABLE", "99",
    ]  # fmt: skip
    assert level_names(np.array([5000, 1, 20000])).to_list() == ["runtime", "1", "acl"]


def test_lines_not_understood_are_counted(tmp_path: Path):
    wrong = b"no colon\n-1:x\n1x:y\n" + b"9" * 5000 + b":long\n18446744073709551616:above\n\n\xff\xfe:z\n5:good\n"
    found = dictionaries(tmp_path, [wrong], [b"5000:a\n_1:b\n5_:c\n5000_" + b"1" * 5000 + b":d\n1_2:e\n"])
    assert found.hashes.text(np.array([5])).to_list() == ["good"]
    assert {row[0]: row[1] for frame in found.lost for row in frame.select("source", "count").rows()} == {
        "hash_dic": 6,
        "type_info_dic": 4,
    }


def test_no_dictionary_gives_numbers(tmp_path: Path):
    found = read_dictionaries(None)
    assert found.hashes.text(np.array([3, 0])).to_list() == ["3", None]
    assert Words.of({}).missing(np.array([1, 0])) == 1


def test_the_hash_of_a_text_is_the_vendors():
    # (97 * 29 + 98) << 32 | (97 * 131 + 98)
    assert text_hash("ab") == 2911 << 32 | 12805
    assert text_hash("") == 0


@given(st.lists(st.text(max_size=40), max_size=20))
def test_one_text_and_many_hash_alike(texts):
    assert text_hashes(texts).tolist() == [text_hash(text) for text in texts]


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30), max_size=20))
def test_texts_come_back_from_the_lines_that_were_written(texts):
    written = HashDictionary()
    numbers = written.numbers(texts)
    entries = {int(key): text for key, _, text in (line.partition(":") for line in written.fresh_lines().split("\n") if line)}
    assert [entries.get(number, "") for number in numbers.tolist()] == texts
    assert [written.number(text) for text in texts] == numbers.tolist()
    assert written.fresh_lines() == ""
