"""Recorded output of both releases on a real cluster (``tests/system/slurm/record.py``), parsed in each of its
formats.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import msgspec
import pytest

from aliquot.slurm.client import scontrol_output as text
from aliquot.slurm.client.errors import OldSlurmError, RefusedError
from aliquot.slurm.client.json_versions.coerce import number, words
from aliquot.slurm.client.json_versions.reader import SlurmDocument
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, Version
from aliquot.slurm.client.states import has_ended

RECORDED = Path(__file__).parents[3] / "recorded" / "slurm"
RELEASES = ("22.05", "24.11")
REST = [(release, shape) for release, shapes in (("22.05", (38,)), ("24.11", (40, 41, 42))) for shape in shapes]
SMALL = "a100_1g.5gb"


def _text(release: str, name: str) -> str:
    return (RECORDED / release / name).read_text()


def _document(release: str, shape: int, what: str) -> SlurmDocument:
    return SlurmDocument((RECORDED / release / f"v0.0.{shape}-{what}.json").read_bytes(), "read it")


def _live(jobs: tuple[SlurmJob, ...]) -> list[SlurmJob]:
    return [j for j in jobs if not has_ended(j.state)]


@pytest.mark.parametrize("release", RELEASES)
def test_nodes_in_text(release: str) -> None:
    found = {n.name: n for n in text.nodes(_text(release, "nodes.txt"))}
    assert set(found) == {"n1", "dyn1", "cl1", "later"}
    n1 = found["n1"]
    assert (n1.comment, n1.extra, n1.reason) == ("a Reason=b", "aliquot 3f2a", "")
    assert n1.gres_used == (Gres("gpu", SMALL, 3, (0, 1, 2)), Gres("gpu", "a100", 0))
    assert found["later"].reason == "aliquot: placeholder State=IDLE"
    assert found["later"].states == {"FUTURE", "DRAIN", "DYNAMIC_NORM"}
    assert found["cl1"].states == {"IDLE", "CLOUD", "POWERED_DOWN"}
    assert [n.dynamic for n in found.values()].count(True) == 2


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_in_text(release: str) -> None:
    every = text.jobs(_text(release, "jobs.txt"))
    assert len(every) - len(_live(every)) == 1  # one job was cancelled
    first, both, exclusive, array, socket = _live(every)
    assert (first.name, first.state, first.memory_mib) == ("a b Priority=X", "RUNNING", 10)
    assert both.allocated == (("dyn1", Gres("gpu", SMALL, 2, (0, 1))), ("n1", Gres("gpu", SMALL, 2, (1, 2))))
    assert (both.nodes, both.node_count, both.requeue) == (("dyn1", "n1"), 2, False)
    assert exclusive.requested == (("job", Gres("gpu", "a100", 1)),)
    assert (exclusive.exclusive, exclusive.excluded_nodes, exclusive.memory_mib) == (True, ("n1",), 1024)
    assert abs(exclusive.eligible - exclusive.submitted - 3600) <= 2
    assert (array.requested, array.tasks) == ((("task", Gres("gpu", SMALL, 1)),), 2)
    assert (array.partitions, array.reason, array.priority) == (("all", "clouds"), "JobHeldUser", 0)
    assert socket.requested == (("socket", Gres("gpu", "", 1)),)


@pytest.mark.parametrize(("release", "shape"), REST)
def test_documents_say_what_text_says(release: str, shape: int) -> None:
    # The cluster's own port and FUTURE nodes (in 22.05) are in one of the outputs only.
    in_text = {n.name: msgspec.structs.replace(n, port=0) for n in text.nodes(_text(release, "nodes.txt"))}
    found = {n.name: msgspec.structs.replace(n, port=0) for n in _document(release, shape, "nodes").nodes()}
    assert found == {name: n for name, n in in_text.items() if name in found}
    assert set(in_text) - set(found) == ({"later"} if shape == 38 else set())
    assert _live(_document(release, shape, "jobs").jobs()) == _live(text.jobs(_text(release, "jobs.txt")))
    places = {p.name: p for p in text.partitions(_text(release, "partitions.txt"))}
    for each in _document(release, shape, "partitions").partitions():
        assert (each.nodes, each.up) == (places[each.name].nodes, places[each.name].up)
        assert each.spec == places[each.name].spec or shape == 38
    assert _document(release, shape, "nodes").version() == text.version(
        text.settings(_text(release, "config.txt"))["SLURM_VERSION"]
    )


@pytest.mark.parametrize("release", RELEASES)
def test_squeue_says_the_same(release: str) -> None:
    found = SlurmDocument(_text(release, "squeue.json"), "read it").jobs()
    assert _live(found) == _live(text.jobs(_text(release, "jobs.txt")))


@pytest.mark.parametrize("release", RELEASES)
def test_settings(release: str) -> None:
    found = text.settings(_text(release, "config.txt"))
    assert found["SLURM_VERSION"].startswith(release)
    assert found["SlurmdSpoolDir"] == "/srv/bed/spool/%n"
    assert found["AccountingStorageBackupHost"] == ""
    assert found["SuspendTimeout"] == "1 sec"


def test_a_newer_document_is_read_as_the_newest_that_we_know() -> None:
    recorded = (RECORDED / "24.11" / "v0.0.42-jobs.json").read_text()
    shared = SlurmDocument(recorded, "read it").jobs()
    for shape in (43, 44, 45, 46, 99):
        newer = recorded.replace("v0.0.42", f"v0.0.{shape}")
        if shape >= 45:  # "shared" became "exclusive"
            newer = re.sub(r'"shared": \[\s*\]', '"exclusive": ["false"]', newer)
            newer = re.sub(r'"shared": \[\s*"none"\s*\]', '"exclusive": ["true"]', newer)
        assert SlurmDocument(newer, "read it").jobs() == shared
    assert any(j.exclusive for j in shared)


def test_what_is_no_document() -> None:
    for answer in ("", "[]", "7", "{", "\udc80".encode(errors="surrogatepass"), "[" * 100_000, "slurm_load: error"):
        with pytest.raises(RefusedError):
            SlurmDocument(answer, "read it")
    with pytest.raises(OldSlurmError, match=r"v0\.0\.35"):
        SlurmDocument('{"meta": {"plugin": {"type": "openapi/v0.0.35"}}}', "read it")


def test_a_document_of_other_types_is_empty_and_no_crash() -> None:
    values: tuple[object, ...] = (None, 7, -1, "x", [], [7], {}, {"set": True}, [{}], [None], 1e300, True)
    for key, value in itertools.product((*SlurmNode.__struct_fields__, "state", "slurmd_start_time"), values):
        for shape in (38, 42, 46):
            raw = {"meta": {"plugin": {"type": f"v0.0.{shape}"}}, "nodes": [{"name": "n", key: value}, value]}
            SlurmDocument(msgspec.json.encode(raw), "read it").nodes()
    fields = (
        *SlurmJob.__struct_fields__,
        "job_id",
        "job_state",
        "gres_detail",
        "tres_per_node",
        "shared",
        "node_count",
    )
    for key, value in itertools.product(fields, values):
        for shape in (38, 42, 46):
            raw = {"meta": {"plugin": {"type": f"v0.0.{shape}"}}, "jobs": [{key: value}, value], "errors": [value]}
            document = SlurmDocument(msgspec.json.encode(raw), "read it")
            document.jobs()
            document.errors()


@pytest.mark.parametrize("release", RELEASES)
def test_free_text_does_not_pose_as_a_field(release: str) -> None:
    answer = _text(release, "nodes.txt")
    posing = answer.replace("Comment=a Reason=b", "Comment=a\n   State=DOWN ThreadsPerCore=9\n   Gres=gpu:9")
    assert posing != answer
    assert [(n.states, n.gres) for n in text.nodes(posing)] == [(n.states, n.gres) for n in text.nodes(answer)]


@pytest.mark.parametrize("shape", [38, 42, 46])
def test_memory_is_per_node(shape: int) -> None:
    raw = {"job_id": 1, "cpus": 5, "node_count": 2, "memory_per_cpu": 100}
    document = {"meta": {"plugin": {"type": f"v0.0.{shape}"}}, "jobs": [raw, raw | {"memory_per_cpu": None}]}
    one, none = SlurmDocument(msgspec.json.encode(document), "read it").jobs()
    assert (one.memory_mib, none.memory_mib) == (300, 0)  # five CPUs on two nodes: three of them on one node


def test_text_that_is_none_of_slurms() -> None:
    for read in (text.nodes, text.jobs, text.partitions):
        with pytest.raises(RefusedError):
            read("<html>moved</html>")
    assert text.nodes("No nodes in the system\n") == ()
    assert text.jobs("No jobs in the system\n") == ()
    assert text.jobs("") == ()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("slurm-wlm 22.05.8", Version(22, 5, 8)),
        ("25.05.0-0rc1", Version(25, 5, 0)),
        ("slurm 26.05", Version(26, 5, 0)),
        ("unknown", None),
    ],
)
def test_versions(output: str, expected: Version | None) -> None:
    assert text.version(output) == expected


def test_numbers_and_words_in_every_wrapper() -> None:
    assert number({"set": True, "infinite": False, "number": 7}) == 7
    assert number({"set": False, "infinite": False, "number": 7}) == 0
    assert number({"set": True, "infinite": True, "number": 7}) == 0
    assert [number(each) for each in (7, 7.9, 0xFFFFFFFE, -2, None, True, "7")] == [7, 7, 0, 0, 0, 0, 0]
    assert words("a,b") == words(["a", "b"]) == ("a", "b")
    assert words("") == words(None) == words([]) == ()
