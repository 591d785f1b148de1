"""``restore --boot`` with an error on one GPU in the middle: the requests of the others are not lost."""

from __future__ import annotations

import pytest

from aliquot.cli.commands import restore_boot as boot
from aliquot.cli.commands.apply_plan import PlanExecution
from aliquot.sim.client import SimClient

from .conftest import Host, Run


def test_a_gpu_that_fails_does_not_take_the_others_with_it(host: Host, run: Run) -> None:
    sim = host("a2:mdev*3")
    assert run("apply", "--gpu", "0-2", "--vgpu", "A2-4Q*2").code == 0
    before = [{v["uuid"] for v in g["vgpus"]} for g in sim.node.show()["gpus"]]
    assert run("sim", "reboot").code == 0
    sim.node._control("fault", kind="fail", call="SysfsWrite", code=5, path="0000:02:00.4/mdev_supported", calls=99)
    found = run("restore", "--boot")
    assert found.code == 40, found
    gpus = sim.node.show()["gpus"]
    assert [{v["uuid"] for v in g["vgpus"]} for g in gpus] == [before[0], set(), before[2]]
    assert "one by one" in found.err
    assert "0000:02:00.4" in found.err


def test_what_comes_only_while_a_machine_starts_is_waited_for_only_then(
    host: Host, run: Run, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a host that has run for long with the ordinary driver, the vGPU manager will not appear.
    sim = host("a2:mdev")
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q").code == 0
    assert run("sim", "reboot", "--kernel", "none").code == 0
    monkeypatch.setattr(boot, "uptime", lambda: boot.STARTING_S)
    found = run("restore", "--boot")
    assert (found.code, "NO_VGPU_DRIVER" in found.err, "waiting" in found.err) == (20, True, False), found
    observations: list[float] = []

    def starting() -> float:
        """Load the driver before the second check."""
        if not observations:
            SimClient(state, "host").reboot("mdev")
        observations.append(20.0)
        return observations[-1]

    monkeypatch.setattr(boot, "uptime", starting)
    monkeypatch.setattr("aliquot.cli.framework.streams.watched", lambda: True)
    found = run("restore", "--boot")
    assert (found.code, observations, len(sim.node.show()["gpus"][0]["vgpus"])) == (0, [20.0], 1), found
    assert "waiting, 120 s at most: " in found.err
    assert "(to skip: Ctrl-C, or --wait 0)" in found.err


def test_ctrl_c_ends_it(host: Host, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ctrl-C stops all waiting; the other GPUs are not tried one by one.
    host("a2:mdev*2")
    assert run("apply", "--gpu", "0-1", "--vgpu", "A2-4Q").code == 0
    assert run("sim", "reboot").code == 0
    asked: list[int] = []

    def interrupted(job: PlanExecution, args: object) -> int:
        asked.append(len(job.plan.desired.gpus))
        return 130

    monkeypatch.setattr(boot, "execute", interrupted)
    assert run("restore", "--boot").code == 130
    assert asked == [2]
