"""apply, verify and restore: their results, their messages and the calls that reached the node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.core.engine.ports import JournalEntry
from aliquot.errors import AliquotError
from aliquot.foundation.lock import FileLock
from aliquot.hardware.state.journal import encode
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver

from .conftest import SOURCE, Run, Sim

REQUEST = ("--gpu", "0", "--mig", "3g.20gb,1g.5gb")


def instances(sim: Sim, gpu: int = 0) -> set[tuple[int, str, str]]:
    return {(i["id"], i["profile"], i["placement"]) for i in sim.node.show()["gpus"][gpu]["instances"]}


def reached(sim: Sim) -> list[object]:
    """Return the instances that a write call reached."""
    return [call["instance"] for call in sim.writes()]


@pytest.fixture
def busy(a100: Sim) -> Sim:
    """Create three 1g.5gb (7, 8, 11) on one A100. The first is held."""
    a100.node.set_mode(0, True)
    for start in (0, 1, 4):
        a100.node.create(0, "1g.5gb", start)
    a100.node.hold(0, 7, pid=8812)
    return a100


def test_what_can_stay_stays(busy: Sim, run: Run) -> None:
    result = run("apply", *REQUEST, "-o", "json")
    assert result.code == 0
    reported = result.document
    assert {k: reported[k] for k in ("kind", "status", "kept", "destroyed", "created", "verified")} == {
        "kind": "Outcome",
        "status": "done",
        "kept": 1,
        "destroyed": 2,
        "created": 1,
        "verified": True,
    }
    assert 7 not in reached(busy)
    assert instances(busy) == {(7, "1g.5gb", "0:1"), (2, "3g.20gb", "4:4")}


def test_a_satisfied_request_makes_no_write_call(busy: Sim, run: Run) -> None:
    assert run("apply", *REQUEST).code == 0
    before = len(busy.writes())
    assert run("apply", *REQUEST) == (0, "nothing to do: 2 instances are as requested\n", "")
    assert run("apply", *REQUEST, "-o", "json").document["status"] == "nothing"
    assert run("plan", *REQUEST).code == 0
    assert len(busy.writes()) == before


def test_a_plan_is_carried_out_exactly_or_refused(busy: Sim, run: Run) -> None:
    assert run("plan", *REQUEST, "--out", "plan.json").code == 10
    assert busy.writes() == []
    busy.node.create(0, "1g.5gb", 6)
    moved = run("apply", "plan.json")
    assert moved.code == 20
    assert moved.err.startswith("blocked[MOVED]: ")
    assert busy.writes() == []
    busy.node.destroy(0, 13)
    assert run("apply", "plan.json").code == 0
    assert run("verify", *REQUEST).code == 0


def test_a_plan_in_json_is_the_plan_in_the_file(busy: Sim, run: Run) -> None:
    shown = run("plan", *REQUEST, "-o", "json", "--out", "plan.json").document
    assert msgspec.json.decode(Path("plan.json").read_bytes()) == shown
    actions = [(a["action"], a["placement"]) for a in shown["actions"]]
    assert actions == [("destroy", "1:1"), ("destroy", "4:1"), ("create", "4:4")]
    assert all(a["reason"] for a in shown["actions"])


def test_a_plan_that_cannot_be_saved(busy: Sim, run: Run) -> None:
    result = run("plan", *REQUEST, "--out", "/no/such/directory/plan.json")
    assert (result.code, result.out) == (20, "")
    assert "/no/such/directory/plan.json" in result.err


def test_held_instances_are_refused_waited_for_or_forced(busy: Sim, run: Run) -> None:
    request = ("--gpu", "0", "--mig", "7g.40gb")
    refused = run("apply", *request)
    assert refused.code == 20
    assert "process 8812" in refused.err
    assert busy.writes() == []
    assert run("apply", *request, "--policy", "wait", "--timeout", "0.2").code == 20
    assert instances(busy) == {(7, "1g.5gb", "0:1"), (8, "1g.5gb", "1:1"), (11, "1g.5gb", "4:1")}
    assert 7 not in reached(busy)
    assert run("apply", *request, "--policy", "force").code == 0
    assert [profile for _, profile, _ in instances(busy)] == ["7g.40gb"]


def test_waiting_ends_when_the_holder_does(busy: Sim) -> None:
    words = [sys.executable, "-m", "aliquot", "apply", "--gpu", "0", "--mig", "7g.40gb", "--policy", "wait"]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    child = forkserver.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5)
    busy.node.release(0, 7)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out.splitlines()[-1][:5]) == (0, b"done:"), err


def test_the_hardware_refuses_and_everything_goes_back(busy: Sim, run: Run) -> None:
    before = instances(busy)
    busy.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
    result = run("apply", *REQUEST)
    assert result.code == 40
    assert "hardware[" in result.err
    assert "undone: the former state is back" in result.out
    assert instances(busy) == before
    busy.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
    reported = run("apply", *REQUEST, "-o", "json")
    assert (reported.code, reported.document["status"], reported.document["verified"]) == (40, "undone", False)
    assert '"exit_code": 40' in reported.err


def test_no_permission(busy: Sim, run: Run) -> None:
    busy.node.inject_fault("unprivileged")
    result = run("apply", *REQUEST)
    assert result.code == 20
    assert "blocked[NO_PERMISSION]: " in result.err
    assert "root" in result.err
    assert run("show").code == 0


def test_a_gpu_lost_in_the_middle(dgx: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0-1", "--mig", "1g.5gb*3").code == 0
    dgx.node.inject_fault("lost", gpu=0, after=2)
    result = run("apply", "--gpu", "0-1", "--mig", "7g.40gb")
    assert result.code == 40
    assert "GPU_LOST" in result.err
    assert Counter(profile for _, profile, _ in instances(dgx, 1)) == {"1g.5gb": 3}
    lost = run("show", "0")
    assert lost.code == 0
    assert "has fallen off the bus" in lost.out
    assert run("plan", "--gpu", "0", "--mig", "7g.40gb").code == 20


def test_an_apply_that_was_killed_is_finished_by_the_next(busy: Sim, program: Run) -> None:
    busy.node.inject_fault("kill", nth=2, when="after")
    assert program("apply", *REQUEST).code == -signal.SIGKILL
    assert 7 in [i for i, _, _ in instances(busy)]
    finished = program("apply", *REQUEST)
    assert finished.code == 0
    assert "note: an earlier apply was interrupted" in finished.err
    assert instances(busy) == {(7, "1g.5gb", "0:1"), (2, "3g.20gb", "4:4")}
    assert 7 not in reached(busy)
    assert "cut off" not in program("apply", "--gpu", "0", "--mig", "1g.5gb").err


def test_a_journal_cut_in_half_is_no_obstacle(busy: Sim, run: Run, state: str) -> None:
    assert run("apply", *REQUEST).code == 0
    journal = Path(control.folder(state, busy.name)) / "change-journal.jsonl"
    journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    assert run("apply", "--gpu", "0", "--mig", "1g.5gb").code == 0
    assert run("verify", "--gpu", "0", "--mig", "1g.5gb").code == 0


def test_a_full_disk_starts_nothing(busy: Sim, state: str) -> None:
    # The journal already has the largest size that the process may write.
    journal = Path(control.folder(state, busy.name)) / "change-journal.jsonl"
    command = f"ulimit -f 1; exec {sys.executable} -m aliquot apply {' '.join(REQUEST)}"
    journal.write_bytes(encode(JournalEntry("end", "r", text="x" * 1024)))
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SOURCE}
    )
    assert done.returncode == 20, done
    assert "blocked[STORAGE]: " in done.stderr
    assert busy.writes() == []


def test_two_at_once(busy: Sim, run: Run, state: str) -> None:
    with FileLock(os.path.join(control.folder(state, busy.name), "lock")).hold():
        result = run("apply", *REQUEST)
    assert result.code == 20
    assert f"{os.getpid()}" in result.err
    assert busy.writes() == []
    assert run("apply", *REQUEST).code == 0


def test_hooks_run_around_an_apply(busy: Sim, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    names = ("apply-start", "pre-apply-config", "apply-exit")
    hook = "  {}: [{{command: /bin/sh, args: [-c, 'echo {} $MIG_PARTED_SELECTED_CONFIG >> {}']}}]\n"
    (tmp_path / "hooks.yaml").write_text("version: v1\nhooks:\n" + "".join(hook.format(n, n, log) for n in names))
    (tmp_path / "wish.yaml").write_text("version: aliquot/v1\nconfigs: {c: [{gpus: all, mig: [3g.20gb, 1g.5gb]}]}\n")
    assert run("apply", "-f", "wish.yaml", "-c", "c", "--hooks", "hooks.yaml").code == 0
    assert log.read_text().splitlines() == [f"{name} c" for name in names]
    (tmp_path / "bad.yaml").write_text("version: v1\nhooks:\n  apply-start: [{command: /bin/false}]\n")
    before = len(busy.writes())
    failed = run("apply", "--gpu", "0", "--mig", "7g.40gb", "--policy", "force", "--hooks", "bad.yaml")
    assert failed.code == 20
    assert "hook apply-start" in failed.err
    assert len(busy.writes()) == before


def test_modes_alone(a100: Sim, run: Run) -> None:
    request = ("--gpu", "0", "--mig", "3g.20gb", "--mode-only")
    assert run("apply", *request).code == 0
    assert run("verify", *request).code == 0
    assert a100.node.show()["gpus"][0]["mig"]["current"] == "enabled"
    assert instances(a100) == set()
    assert run("apply", "--gpu", "0", "--mig", "disabled").code == 0
    assert run("verify", *request).code == 30


def test_the_last_line_tells_of_modes_and_resets(a100: Sim, run: Run) -> None:
    # The last line reports all counts of the plan, in the past tense.
    for desired_gpu in ("1g.5gb", "disabled"):
        planned = run("plan", "--gpu", "0", "--mig", desired_gpu).out
        assert "set MIG mode of 1 GPU, reset GPU 0000:01:00.0" in planned
        done = run("apply", "--gpu", "0", "--mig", desired_gpu).out
        assert "set MIG mode of 1 GPU, reset GPU 0000:01:00.0; verified" in done


def test_a_guest_that_cannot_reset_waits_for_its_reboot(state: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    control.start(state, "a100-sxm4-40gb:guest", "guest")
    monkeypatch.setenv("ALIQUOT_SIM", "guest")
    node = SimClient(state, "guest")
    node.inject_fault("reset-pending", gpu=0)
    request = ("--gpu", "0", "--mig", "3g.20gb")
    try:
        plan = run("plan", *request)
        assert plan.code == 10
        assert "reboot" in plan.out + plan.err
        first = run("apply", *request)
        assert first.code == 10, first
        assert "reboot" in first.out
        assert run("sim", "reboot").code == 0
        assert run("apply", *request).code == 0
        assert run("verify", *request).code == 0
    finally:
        node.close()
        control.stop(state, "guest")


def test_a_checkpoint_brings_everything_back(busy: Sim, run: Run) -> None:
    before = instances(busy)
    assert run("checkpoint", "--out", "before.json").code == 0
    busy.node.release(0, 7)
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    assert run("restore", "before.json").code == 0
    assert instances(busy) == before
    assert run("restore", "before.json").out.startswith("nothing to do")
    for body in ("", "{", "[1]", '{"Version": "v1"}'):
        Path("bad.json").write_text(body)
        assert run("restore", "bad.json").code == 2
    assert run("restore", "missing.json").code == 2


def test_what_generate_writes_can_be_applied(mixed: Sim, run: Run) -> None:
    # Covers every generated config, on a node with three families and a GPU without MIG.
    assert run("generate", "--out", "wish.yaml").code == 0
    for name in run("__complete", "configs", "wish.yaml").out.split():
        result = run("apply", "-f", "wish.yaml", "-c", name)
        assert result.code == 0, (name, result.err)
        assert run("verify", "-f", "wish.yaml", "-c", name).code == 0, name
        assert run("plan", "-f", "wish.yaml", "-c", name).code == 0, name


def test_a_file_from_stdin(a100: Sim, program: Run) -> None:
    text = "version: aliquot/v1\nconfigs: {c: [{gpus: all, mig: {3g.20gb: 1}}]}\n"
    plan = program("plan", "-f", "-", stdin=text)
    assert plan.code == 10
    assert "next" not in plan.err
    assert program("apply", "-f", "-", stdin=text).code == 0
    assert program("verify", "-f", "-", stdin=text).code == 0
    assert program("verify", "-f", "-", stdin=b"\xff\xfe").code == 2


def test_the_same_over_the_real_backend(busy: Sim, program: Run) -> None:
    # The command runs as a program and uses NVML through the node's own library.
    try:
        control.library(busy.node.state_dir, busy.name)
    except AliquotError as error:
        pytest.skip(error.brief)
    answers: list[dict[str, Any]] = []
    for backend in ("direct", "shim"):
        result = program("plan", *REQUEST, "-o", "json", ALIQUOT_BACKEND=backend)
        assert result.code == 10, result.err
        answers.append(result.document)
    assert answers[0]["actions"] == answers[1]["actions"]
    assert program("apply", *REQUEST, ALIQUOT_BACKEND="shim").code == 0
    assert program("verify", *REQUEST, ALIQUOT_BACKEND="direct").code == 0
    assert 7 not in reached(busy)
