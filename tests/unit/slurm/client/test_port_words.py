"""Host lists, GRES lists, node states and Slurm's messages."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.slurm.client import error_messages as complaints
from aliquot.slurm.client.errors import (
    BusyError,
    DeniedError,
    NoNodeError,
    NoSlurmError,
    RefusedError,
    SlurmError,
    SlurmUnavailableError,
)
from aliquot.slurm.client.gres_text import GresError, count_of, indices, parse_configured, parse_listed, requested_gpus
from aliquot.slurm.client.models import Gres
from aliquot.slurm.client.states import has_ended, job_state, node_states, reason_word
from aliquot.slurm.conf import hostlist
from aliquot.slurm.conf.hostlist import HostlistError, compress, expand

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,4}[0-9]{0,4}", fullmatch=True), max_size=30)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-4,7],m-[01-03]", ["n1", "n2", "n3", "n4", "n7", "m-01", "m-02", "m-03"]),
        ("r[1-2]n[09-10]x", ["r1n09x", "r1n10x", "r2n09x", "r2n10x"]),
        ("a, b", ["a", "b"]),
        ("", []),
    ],
)
def test_host_lists_are_expanded(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize("text", ["n[1", "n1]", "n[[1]]", "n[]", "n[2-1]", "n[a-b]", "n[1-99999]", "n[1-300]m[1-300]"])
def test_no_host_lists(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@given(NAMES)
def test_what_is_folded_unfolds_to_the_same(names: list[str]) -> None:
    folded = compress(names)
    assert sorted(expand(folded)) == sorted(set(names))
    assert compress(expand(folded)) == folded


def test_folded_as_slurm_folds() -> None:
    assert compress(["n3", "n1", "n2", "m", "n9", "n10", "n2"]) == "m,n[1-3,9-10]"
    assert compress(["n08", "n09", "n10", "n8"]) == "n[8,08-10]"
    assert compress(["a1", "a"]) == "a,a1"
    assert compress([]) == ""


@given(st.text(max_size=40))
@example("no_consume")
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (expand, parse_configured):
        with contextlib.suppress(HostlistError, GresError):
            read(text)
    parse_listed(text)
    requested_gpus(text)
    hostlist.compress([text])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:a100_3g.20gb:2,gpu:a100:1", [Gres("gpu", "a100_3g.20gb", 2), Gres("gpu", "a100", 1)]),
        ("gpu:2", [Gres("gpu", "", 2)]),
        ("gpu", [Gres("gpu")]),
        ("gpu:a100", [Gres("gpu", "a100", 1)]),
        ("gpu:a100:2(S:0-1),lustre:no_consume:4K", [Gres("gpu", "a100", 2), Gres("lustre", "", 4096)]),
        ("", []),
    ],
)
def test_a_nodes_gres(text: str, expected: list[Gres]) -> None:
    assert list(parse_configured(text)) == expected


@pytest.mark.parametrize(
    "text", ["gpu:a100:x2", "gpu:a:b:2", "gpu::2", ":2", "gpu:a100:-1", "gpu:a b:1", "gpu:a100:1.5"]
)
def test_no_gres(text: str) -> None:
    with pytest.raises(GresError):
        parse_configured(text)


GRES = st.builds(
    Gres, st.sampled_from(["gpu", "shard"]), st.sampled_from(["", "a100", "a100_1g.5gb"]), st.integers(0, 1024)
)


@given(st.lists(GRES, max_size=5))
def test_gres_is_written_as_it_is_read(entries: list[Gres]) -> None:
    text = ",".join(map(str, entries))
    assert list(parse_configured(text)) == entries
    assert list(parse_listed(text)) == entries


def test_what_is_in_use_names_its_ordinals() -> None:
    output = "gpu:a100_1g.5gb:3(IDX:0,2-3),gpu:a100:0(IDX:N/A),gpu:2(CNT:2)"
    assert parse_listed(output) == (
        Gres("gpu", "a100_1g.5gb", 3, (0, 2, 3)),
        Gres("gpu", "a100", 0),
        Gres("gpu", "", 2),
    )
    assert parse_listed("(null)") == parse_listed("N/A") == parse_listed(None) == ()


@pytest.mark.parametrize(
    "text",
    [
        "gres:gpu:a100_1g.5gb:2,gres:gpu:a100:1",
        "gres/gpu:a100_1g.5gb:2,gres/gpu:a100:1",
        "cpu=4,gres/gpu:a100_1g.5gb=2,gres/gpu:a100=1,gres/shard=3",
        "gpu:a100_1g.5gb:2,gpu:a100:1,license/x=1",
    ],
)
def test_a_jobs_request_in_every_release(text: str) -> None:
    assert requested_gpus(text) == (Gres("gpu", "a100_1g.5gb", 2), Gres("gpu", "a100", 1))
    assert requested_gpus("gres/gpu=2") == requested_gpus("gres:gpu:2") == (Gres("gpu", "", 2),)
    assert requested_gpus("gres/gpu") == (Gres("gpu"),)


def test_states_have_one_spelling() -> None:
    assert node_states(["idle*"]) == {"IDLE", "NOT_RESPONDING"}
    assert node_states(["IDLE~", "DRAIN", ""]) == {"IDLE", "POWERED_DOWN", "DRAIN"}
    assert node_states(["INVAL"]) == {"INVALID_REG"}
    assert job_state(["RUNNING", "CONFIGURING"]) == "CONFIGURING"
    assert job_state(["COMPLETED", "COMPLETING"]) == "COMPLETING"
    assert job_state(["REQUEUE_HOLD"]) == job_state(["PENDING", "SPECIAL_EXIT"]) == "PENDING"
    assert has_ended("NODE_FAIL")
    assert not has_ended("COMPLETING")
    assert job_state([]) == "UNKNOWN"


def test_reasons_are_words() -> None:
    assert reason_word("ReqNodeNotAvail,_UnavailableNodes:gone") == "ReqNodeNotAvail"
    assert reason_word("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved") == "Resources"
    assert reason_word("Resources") == "Resources"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", SlurmUnavailableError),
        ("slurm_update error: Socket timed out on send/recv operation", SlurmUnavailableError),
        (
            "Munge encode failed: Failed to access socket\nslurm_load_node error: Protocol authentication error",
            DeniedError,
        ),
        ("slurm_update error: Invalid user id", DeniedError),
        ("Access/permission denied for job 2", DeniedError),
        ("slurm_update error: Invalid node name specified", NoNodeError),
        ("Node nope not found", NoNodeError),
        ("delete_node nodename=dyn1: Requested nodes are busy", BusyError),
        ("scontrol: error: s_p_parse_file: cannot stat file /nope: No such file or directory", NoSlurmError),
        ("slurm_update error: Invalid node state specified", RefusedError),
        ("", RefusedError),
    ],
)
def test_slurms_sentences(output: str, error: type[SlurmError]) -> None:
    expected = complaints.slurm_error(output, "drain n1")
    assert type(expected) is error
    assert "drain n1" in expected.brief
    assert error is RefusedError or expected.next_step


def test_a_number_longer_than_python_converts_is_no_number() -> None:
    long = "9" * 5000
    for text in (f"n[{long}]", f"n[1-{long}]"):
        with pytest.raises(HostlistError):
            expand(text)
    assert compress([f"n{long}"]) == f"n{long}"
    assert count_of(long) is None
    assert indices(long) == ()
