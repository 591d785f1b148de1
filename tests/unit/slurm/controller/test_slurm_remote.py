"""Answers of a node to the controller: none of them stops it, exhausts it, or gives orders to Slurm."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.foundation import bounded_process
from aliquot.slurm.controller import untrusted_input
from aliquot.slurm.controller.remote_nodes import CommandRemoteNodes, UnreachableError, command, facts_of, sentence
from aliquot.slurm.controller.settings import ManagedNode
from support.slurmstate import sliced


def node(tmp_path: Path, body: str) -> ManagedNode:
    """Build a node that answers every request with the output of a program."""
    program = tmp_path / "answer"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
    program.chmod(0o755)
    return ManagedNode("n1", reach=(str(program),))


def answer(**changes: Any) -> dict[str, Any]:
    """Build the answer of a node with two GPUs, one of them partitioned."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(sliced("3g.20gb@4")))
    return {"inventory": plain | changes, "settings": {"gpus": []}, "open": False}


def first(response: dict[str, Any], **changes: Any) -> dict[str, Any]:
    response["inventory"]["gpus"][0] |= changes
    return response


def table(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(catalog.family("a100-40gb")))
    return plain | changes


def test_an_honest_answer_is_believed(tmp_path: Path) -> None:
    output = msgspec.json.encode(answer(tables=[table()])).decode()
    found = CommandRemoteNodes().facts(node(tmp_path, f"print({output!r})"))
    assert len(found.inventory.gpus) == 2
    again = CommandRemoteNodes().facts(node(tmp_path, f"print({output!r})"))
    assert found.inventory.tables[0] is again.inventory.tables[0]  # the table is compiled once
    assert not found.slots
    assert facts_of(answer() | {"settings": {"gpus": [], "slots": True}}).slots


@pytest.mark.parametrize("body", ["while 1: sys.stdout.write('x' * 65536)", "while 1: sys.stderr.write('x' * 65536)"])
def test_words_without_end_are_cut_off(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_process, "MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(UnreachableError, match="writes more than 1 MiB"):
        CommandRemoteNodes().facts(node(tmp_path, body))


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "7" * 10_000, "{}", "[]", "null", "", "\\x00"])
def test_an_answer_that_is_none_is_a_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnreachableError, match="is invalid"):
        CommandRemoteNodes().facts(node(tmp_path, f"sys.stdout.write({text!r})"))
    outcome = CommandRemoteNodes().apply(node(tmp_path, f"sys.stdout.write({text!r}); sys.exit(7)"), {}, (), 20.0)
    assert (outcome.code, outcome.sentence) == (7, "exit status 7")


def test_a_node_that_is_silent_is_left(tmp_path: Path) -> None:
    begun = time.monotonic()
    outcome = CommandRemoteNodes().apply(node(tmp_path, "time.sleep(60)"), {"a": "x" * 1_000_000}, (), 0.5)
    assert (outcome.code, outcome.sentence) == (-1, "n1: no answer in 0 s")
    assert time.monotonic() - begun < 5


def test_what_a_node_waits_for_is_reported(tmp_path: Path) -> None:
    # A driver hangs there: the node's own message reports it.
    body = "print('waiting: the driver has not returned\\x1b', file=sys.stderr, flush=True); time.sleep(60)"
    outcome = CommandRemoteNodes().apply(node(tmp_path, body), {}, (), 2.0)
    assert outcome.sentence == "n1: no answer in 2 s: waiting: the driver has not returned"


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        ("""print('{"status": "done", "notes": ["GPU 0 stays as it is"]}')""", True),
        ("""print('reserving n1\\n{"code": "NODE_BUSY", "message": "jobs have the slots"}', file=sys.stderr)""", True),
        ("""print('{"status": "undone", "why": "the driver refused"}')""", False),
        ("""print('{"code": "HELD", "message": "held"}', file=sys.stderr)""", False),
        ("""print('{"status": {"done": 1}}')""", False),
    ],
)
def test_a_lost_race_against_a_job_differs_from_a_failure(tmp_path: Path, body: str, lost: bool) -> None:
    outcome = CommandRemoteNodes().apply(node(tmp_path, f"{body}; sys.exit(20)"), {}, (), 20.0)
    assert (outcome.code, outcome.lost_race) == (20, lost)


def test_boards_change_one_after_the_other(tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    body = f"import os; os.mkdir({str(busy)!r}); time.sleep(0.2); os.rmdir({str(busy)!r})"
    hosts, host = CommandRemoteNodes(), node(tmp_path, body)
    with ThreadPoolExecutor(3) as threads:
        found = [threads.submit(hosts.apply, host, {}, ("--slots",), 20.0) for _ in range(3)]
        assert [each.result().code for each in found] == [0, 0, 0], "none found another one busy"


AT_ONCE = """
import sys, threading, msgspec
from aliquot.slurm.controller.remote_nodes import facts_of
said = msgspec.json.decode(sys.stdin.buffer.read())
sys.setswitchinterval(1e-6)
ready = threading.Barrier(8)
threads = [threading.Thread(target=lambda: (ready.wait(), facts_of(said))) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
"""


def test_nodes_that_speak_at_once_crash_nothing() -> None:
    # msgspec 0.22 prepares a type at its first use, which crashed half of these processes.
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", AT_ONCE], input=msgspec.json.encode(answer()), check=False)
        assert done.returncode == 0


DEEP = {"profiles": [table()["profiles"][0] | {"id": n, "name": f"{n}g.1gb", "starts": [0, 1, 2, 3]} for n in range(9)]}
DEEP["profiles"] = [each | {"size": 1, "starts": list(range(8)), "max_instances": 8} for each in DEEP["profiles"]]


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (answer(gpus=answer()["inventory"]["gpus"][:1] * 65), "65 GPUs"),
        (answer(gpus=answer()["inventory"]["gpus"][:1] * 2), "the same PCI address"),
        (first(answer(), pci="0000:07:00.0\x1b[2J"), "is not a PCI address"),
        (first(answer(), product="NVIDIA A100\tState=IDLE NodeAddr=10.6.6.6"), "is not a valid GRES type"),
        (first(answer(), product="NVIDIA A100:7,gpu:b"), "is not a valid GRES type"),
        (
            first(answer(), instances=[answer()["inventory"]["gpus"][0]["instances"][0] | {"placement": "x"}]),
            "are invalid",
        ),
        (answer(tables=[table(memory_slices=1 << 40)]), "memory slices"),
        (answer(tables=[table(profiles=[])]), "0 profiles"),
        (answer(tables=[table(profiles=[table()["profiles"][0] | {"compute": []}])]), "no compute instance"),
        (answer(tables=[table(profiles=[table()["profiles"][0] | {"starts": [1 << 60]}])]), "does not fit on the GPU"),
        (answer(tables=[table(profiles=[table()["profiles"][0] | {"name": "1g.5gb Gres=x"}])]), "is not a profile"),
        (answer(tables=[table(**DEEP, rules=[])]), "more than 5000 layouts"),
    ],
)
def test_what_no_machine_is(response: dict[str, Any], sentence: str) -> None:
    begun = time.monotonic()
    with pytest.raises(untrusted_input.InvalidInventoryError, match=sentence):
        facts_of(response)
    assert time.monotonic() - begun < 5


def test_a_nodes_words_give_a_terminal_no_orders() -> None:
    assert sentence(1, "", "bad\n\x1b[2Jworse\r") == "[2Jworse"
    reported = sentence(20, '{"why": "\\u001b[31mno\\nroot: all is well", "details": ["' + "x" * 10_000 + '"]}', "")
    assert reported.startswith("[31mno root: all is well; xxx")
    assert len(reported) == 400


def test_words_behind_ssh_are_quoted_wherever_it_stands() -> None:
    own = ["slurm", "apply", "--feature", "a;reboot"]
    for reach in (("ssh", "n1"), ("sudo", "-u", "slurm", "/usr/bin/ssh", "n1"), ("timeout", "60", "ssh", "n1")):
        assert command(reach, own) == [*reach, "aliquot slurm apply --feature 'a;reboot'"]
    assert command(("docker", "exec", "ssh"), own) == ["docker", "exec", "ssh", "aliquot", *own]
