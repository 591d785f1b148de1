"""``restore --boot`` where one GPU fails in the middle of it: what others had asked of them is not lost with it."""

from __future__ import annotations

from .conftest import Run
from .test_vgpu import Host, host

__all__ = ["host"]


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
