"""Containers read from ``/proc``: their owners, and the devices that they can open."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from aliquot.node.holders.containers import RunningContainer, devices_of, identity, running_containers
from unit.containers.runtime.nodes import node, uuid

ID = "95f6aef6ce41875a2e2e6e6da1a50830c20cb9d36a36456d835533ecdfb7c008"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (f"5:devices:/docker/{ID}\n0::/docker/{ID}\n", (ID, "docker")),
        (f"0::/system.slice/docker-{ID}.scope\n", (ID, "docker")),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", (ID, "podman")),
        (f"9:name=systemd:/libpod_parent/libpod-{ID}\n", (ID, "podman")),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", (ID, "podman")),
        (f"0::/default/{ID}\n", (ID, "")),
        (f"0::/system.slice/nerdctl-{ID}.scope\n", (ID, "")),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", None),
        (f"5:devices:/kubepods/besteffort/pod1/{ID}\n", None),
        ("0::/system.slice/ssh.service\n", None),
        (f"0::/user.slice/{ID}0.scope\n", None),  # 65 digits
        ("", None),
    ],
)
def test_a_control_group_names_a_container(groups: str, expected: tuple[str, str] | None) -> None:
    assert identity(groups) == expected


class Proc:
    """A hand-made ``/proc``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process("self", "mnt:[1]", "0::/\n")

    def process(self, pid: str, namespace: str, groups: str) -> Path:
        here = self.root / pid
        (here / "ns").mkdir(parents=True)
        (here / "ns/mnt").symlink_to(namespace)
        (here / "cgroup").write_text(groups)
        (here / "root/dev").mkdir(parents=True)
        return here / "root"

    def device(self, root: Path, name: str, minor: int, kind: int = stat.S_IFCHR) -> None:
        path = root / "dev" / name
        path.parent.mkdir(exist_ok=True)
        try:
            os.mknod(path, kind | 0o666, os.makedev(195, minor))
        except PermissionError:
            pytest.skip("containers need root: device nodes cannot be created here")

    def seen(self, simulated: str = "") -> tuple[RunningContainer, ...]:
        return running_containers(simulated, str(self.root))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def test_one_container_of_several_processes(proc: Proc) -> None:
    for pid in ("10", "11"):
        root = proc.process(pid, "mnt:[7]", f"0::/docker/{ID}\n")
        proc.device(root, "nvidia0", 0)
        proc.device(root, "nvidia-caps/nvidia-cap12", 12)
    assert proc.seen() == (RunningContainer(ID, "docker", frozenset({0}), frozenset({12})),)


def test_what_is_no_device_of_that_name_does_not_count(proc: Proc) -> None:
    root = proc.process("10", "mnt:[7]", f"0::/docker/{ID}\n")
    proc.device(root, "nvidia0", 0)
    proc.device(root, "nvidia1", 2)  # the minor differs from the one in its name
    proc.device(root, "nvidia-caps/nvidia-cap12", 12, stat.S_IFBLK)
    (root / "dev/nvidia3").write_text("")
    proc.device(root, "nvidiactl", 255)
    assert proc.seen() == (RunningContainer(ID, "docker", frozenset({0}), frozenset()),)


def test_the_machine_itself_and_containers_without_gpus_are_none(proc: Proc) -> None:
    proc.device(proc.process("9", "mnt:[1]", f"0::/docker/{ID}\n"), "nvidia0", 0)  # our own namespace
    proc.device(proc.process("10", "mnt:[7]", "0::/system.slice/private.service\n"), "nvidia0", 0)
    proc.process("11", "mnt:[8]", f"0::/docker/{'e' * 64}\n")
    (proc.root / "12").mkdir()  # has just ended
    assert proc.seen() == ()


def test_a_simulated_nodes_containers_are_known_by_its_folder(proc: Proc, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    root = proc.process("10", "mnt:[7]", f"0::/docker/{ID}\n")
    proc.device(root, "nvidia0", 0)
    (root / "run").mkdir()
    (root / "run/aliquot-sim").symlink_to(mine)
    assert [len(proc.seen(s)) for s in (str(mine), str(other), "", str(tmp_path / "absent"))] == [1, 0, 0, 0]
    real = proc.process("11", "mnt:[8]", f"0::/docker/{'e' * 64}\n")
    proc.device(real, "nvidia0", 0)
    assert [s.id for s in proc.seen()] == ["e" * 64]


def opened(gpus: set[int], caps: set[int]) -> tuple[str, ...]:
    return devices_of(RunningContainer(ID, "docker", frozenset(gpus), frozenset(caps)), node().gpus)


def test_both_capabilities_and_the_gpu_open_a_mig_device() -> None:
    assert opened({0}, {12, 13}) == (uuid(0, 1),)
    assert opened({0}, {12}) == opened({0}, {13}) == opened({1}, {12, 13}) == ()
    assert opened({0, 1}, {12, 13, 21, 22, 201, 202}) == (uuid(0, 1), uuid(0, 2), uuid(1, 7))


def test_a_gpu_without_mig_is_had_whole_and_one_with_mig_not() -> None:
    assert opened({2}, set()) == (node().gpus[2].uuid,)
    assert opened({0}, set()) == ()


def test_who_administers_has_nothing_in_particular() -> None:
    assert opened({0, 2}, {1, 12, 13}) == opened({0, 2}, {2, 12, 13}) == ()


def test_where_there_is_no_proc(tmp_path: Path) -> None:
    assert running_containers("", str(tmp_path)) == ()
