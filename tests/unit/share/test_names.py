# SPDX-License-Identifier: Apache-2.0
"""Names of machines, people and folders are found in whatever form a program wrote them."""

from __future__ import annotations

import gzip
import json
import tarfile
import unicodedata
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from capture_rows import rows

from stepscope.capture import open_capture
from stepscope.cli import main
from stepscope.share.names import Names, named_in
from stepscope.share.redact import Redaction
from stepscope.tables import Facts, Tables

HOST, USER = "Relu-Node7.lab.example.org", "jürgen.mayer"


@pytest.fixture(scope="module")
def names() -> Names:
    return Names(hosts=[HOST, "Relu-Node7", "vm"], users=[USER], paths=True, addresses=True, salt="s")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("connect to relu-node7.lab.example.org:29500", id="lower-case"),
        pytest.param("RELU-NODE7.LAB.EXAMPLE.ORG", id="upper-case"),
        pytest.param("relu-node7.other.domain.example.org", id="another-domain"),
        pytest.param("nccl_Relu-Node7_ring", id="inside-a-word"),
        pytest.param(unicodedata.normalize("NFD", f"by {USER}"), id="decomposed"),
        pytest.param("by j%C3%BCrgen.mayer", id="percent"),
        pytest.param('{"by": "j\\u00fcrgen.mayer"}', id="escaped"),
        pytest.param("\0".join(f"by {USER} on {HOST}"), id="utf-16"),
        pytest.param("see=/home/jürgen.mayer/projekt/z", id="after-equals"),
        pytest.param("ssh://jürgen.mayer@relu-node7:/srv/projekt/", id="address"),
        pytest.param("mayer@mail.example.org", id="mail"),
        pytest.param('"/mnt/projekt mayer/example.org/i.py" failed', id="quoted-with-blanks"),
        pytest.param("/mnt/projekt mayer/a b/i.py", id="whole-text-with-blanks"),
        pytest.param("\\\\fileserver.example.org\\projekt\\f.py", id="unc"),
        pytest.param("/opt/projekt", id="folder"),
    ],
)
def test_every_form_of_a_name_goes(names: Names, text: str):
    found = names.replace(text).lower().replace("\0", "")
    assert [word for word in ("relu", "node7", "example.org", "mayer", "rgen", "projekt", "fileserver") if word in found] == []


@pytest.mark.parametrize(
    "address",
    ["10.244.17.203:29500", "fe80::1ff:fe23:4567:890a%eth0", "[2001:db8:85a3::8a2e:370:7334]:1", "00:1a:2b:3c:4d:5e"],
)
def test_addresses_go(names: Names, address: str):
    assert "h:" in names.replace(f"on {address}")
    assert not set(address.split(":")) & {"10.244.17.203", "fe23", "8a2e", "3c"} & set(names.replace(address).split(":"))


def test_a_short_name_goes_where_it_stands_alone(names: Names):
    assert "vm" not in names.replace("on vm: vm%eth0")
    kept = ["aten::vmap", "nvmlInit", "c10::d", "std::fa::be", "Default/network-Train/Conv2D-op12", "aten::relu", "12:30:45", "1/2"]
    assert [names.replace(text) for text in kept] == kept


def test_a_path_is_hashed_once(names: Names):
    assert names.replace("torch/utils/data/_utils/worker.py(99): get").count("p:") == 1
    assert names.replace("torch/utils/data/_utils/worker.py(99): get").endswith("/worker.py(99): get")


def test_a_redacted_trace_holds_no_name(tmp_path: Path):
    texts = [
        f"on {HOST.lower()}",
        f"/home/{USER}/x.py",
        "C:\\Users\\mayer\\a.py",
        f"{HOST.upper()}%grp",
        'quote " mayer@b.example.org',
    ]
    event = {"pid": 424242, "tid": 424243, "ts": 1.0}
    content = {
        "hostname": HOST,
        "pid": 424242,
        "distributedInfo": {"rank": 0, "world_size": 1, "note": texts},
        "traceEvents": [
            *({**event, "ph": "X", "cat": "cpu_op", "name": text, "dur": 2.0, "args": {"External id": 1}} for text in texts),
            *({**event, "ph": "C", "name": text, "args": {text: 3}} for text in texts),
        ],
    }
    source = tmp_path / f"{HOST}_424242.1700000000000.pt.trace.json.gz"
    source.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert sorted(open_capture(source).tables.counters["series"].to_list()) == sorted(texts)
    packed = tmp_path / "clean.tar.zst"
    assert main(["pack", str(source), "--out", str(packed), "--redact", "paths,hosts"]) == 0
    plain = pa.CompressedInputStream(BytesIO(packed.read_bytes()), "zstd").read()
    with tarfile.open(fileobj=BytesIO(plain)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            data = (member.name.encode() + file.read()).lower()
            for needle in (b"relu", b"node7", b"mayer", b"424242", b"424243", b"example.org"):
                assert needle not in data, (member.name, needle)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("torchrun --master-addr=node17 --master_port 29500 train.py", {"node17"}),
        ("train.py --rdzv-endpoint eve-box:29500 --user eve", {"eve-box", "eve"}),
        ("ssh -p 2222 eve@login3.site", {"eve", "login3.site", "login3"}),
        ("connect() to tcp://head-7:29500 failed", {"head-7"}),
        ("MASTER_ADDR=alpha LOGNAME=eve PATH=x", {"alpha", "eve"}),
        ("SLURM_JOB_NODELIST=rack[08-10],rack12", {"rack08", "rack09", "rack10", "rack12"}),
        ("could not resolve host trainer-1", {"trainer-1"}),
        ("Enqueue@aten::add", set()),
        ("copy from host to device", set()),
        ("connect to localhost, 10 times", set()),
    ],
)
def test_names_are_told_by_the_words_before_them(text: str, names: set[str]):
    assert set(named_in(text)) == names


def test_a_name_that_only_words_tell_goes_where_it_stands_alone():
    names = Names(named=["bucket"])
    assert "bucket" not in names.replace("s3://bucket/x")
    assert names.replace("aten::bucketize") == "aten::bucketize"


def test_names_in_environments_command_lines_and_errors_go(tmp_path: Path):
    hidden = ["envnode", "envuser", "argnode", "cmdnode", "errhost", "sshuser", "podname", "slurm07"]
    facts = Facts(
        metadata={
            "environment": {
                "MASTER_ADDR": "envnode",
                "LOGNAME": "envuser",
                "POD_NAME": "podname",
                "SLURM_NODELIST": "slurm[06-08]",
            },
            "argv": ["train.py", "--master_addr", "argnode"],
            "error": "RuntimeError: no answer of slurm07",
        },
        profiler_info={"command": "torchrun --rdzv-endpoint=cmdnode:29500 train.py"},
    )
    marks = rows(
        "marks", *({"message": text, "start_ns": 1, "end_ns": 2} for text in ("ssh sshuser@errhost", "at errhost, argnode"))
    )
    redacted = Redaction(frozenset({"hosts"}), [Tables({"marks": marks}).replace(meta=facts.table())], []).all()[0]
    left = f"{redacted['meta'].to_dicts()}{redacted['marks'].to_dicts()}"
    assert [name for name in hidden if name in left] == []
    assert "train.py" in left
