"""Processes that have a VFIO device open, and the limits of that check."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Holder
from aliquot.hardware.kernel.vfio_holders import Holders, guest_name

from .tree import Tree

GROUP = ("/dev/vfio/91",)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.process(41, "/dev/null", "/dev/vfio/vfio", "/dev/vfio/91")
    made.process(7, "/dev/vfio/vfio", "socket:[12]", cmdline="bash\0")
    made.put("/proc/meminfo", "")
    return made


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["qemu", "-name", "guest=web,debug-threads=on"], "web"),
        (["qemu", "-name", "debug-threads=on,guest=a=b"], "a=b"),
        (["qemu", "-name", "plain,process=x"], "plain"),
        (["qemu", "-name", "process=x"], ""),
        (["qemu", "-name"], ""),
        (["bash"], ""),
        ([], ""),
    ],
)
def test_the_name_of_a_guest(words: list[str], name: str) -> None:
    assert guest_name(words) == name


def test_by_group_and_by_device(tree: Tree) -> None:
    tree.process(52, "/dev/vfio/devices/vfio3", "/dev/vfio/noiommu-92", cmdline="dpdk-testpmd\0")
    observation = Holders(tree)
    assert observation.of(GROUP) == (Holder("vm", "41", "web"),)
    assert observation.of(("/dev/vfio/90", "/dev/vfio/devices/vfio3")) == (Holder("process", "52", "qemu-system-x86"),)
    assert observation.of(("/dev/vfio/92",)) == (Holder("process", "52", "qemu-system-x86"),)
    assert observation.of(("/dev/vfio/93",)) == ()
    assert observation.of(()) == ()
    assert observation.of(("/dev/vfio/vfio",)) == (), "every process opens the container device"


def test_several_have_it(tree: Tree) -> None:
    tree.process(5, "/dev/vfio/91", cmdline="qemu\0-name\0guest=db\0")
    assert [str(h) for h in Holders(tree).of(GROUP)] == ["vm 5 (db)", "vm 41 (web)"]


def test_processes_that_end_meanwhile(tree: Tree) -> None:
    class Ending(Tree):
        def names(self, path: str) -> tuple[str, ...]:
            if path == "/proc/7/fd":
                raise ProcessLookupError(errno.ESRCH, "gone", path)
            return super().names(path)

        def link(self, path: str) -> str:
            if path == "/proc/41/fd/0":
                raise FileNotFoundError(errno.ENOENT, "closed", path)
            return super().link(path)

    assert Holders(Ending(Path(tree.root))).of(GROUP) == (Holder("vm", "41", "web"),)
    assert Holders(Ending(Path(tree.root))).of(("/dev/vfio/90",)) == (), "nothing is hidden"


def test_without_proc(tmp_path: Path) -> None:
    (holder,) = Holders(Tree(tmp_path)).of(GROUP)
    assert (holder.kind, holder.id) == ("process", "unknown")
    assert "ENOENT" in holder.name


def test_in_a_namespace_of_its_own(tree: Tree) -> None:
    # In a container without the host's process ids no process is visible, which proves nothing.
    os.unlink(f"{tree.root}/proc/41/fd/2")
    tree.tie("/proc/self/ns/pid", "pid:[4026532511]")
    (holder,) = Holders(tree).of(GROUP)
    assert "hostPID" in holder.name
    os.unlink(f"{tree.root}/proc/self/ns/pid")
    tree.tie("/proc/self/ns/pid", "pid:[4026531836]")
    tree.folder("/proc/1/fd")
    assert Holders(tree).of(GROUP) == ()


def test_a_machine_that_was_jailed(tree: Tree) -> None:
    # A process in a chroot (Firecracker's jailer, a driver container) opened its own device node, with a longer path.
    tree.process(60, "/jails/vm1/dev/vfio/95", "/jails/vm1/dev/vfio/vfio", cmdline="vmm\0")
    tree.process(61, "/jails/x/dev/vfio/devices/vfio8 (deleted)", cmdline="vmm\0")
    observation = Holders(tree)
    assert [h.id for h in observation.of(("/dev/vfio/95",))] == ["60"]
    assert [h.id for h in observation.of(("/dev/vfio/devices/vfio8",))] == ["61"]
    assert observation.of(("/dev/vfio/vfio",)) == ()


def test_processes_that_proc_does_not_list(tree: Tree) -> None:
    # With hidepid, /proc omits processes that the caller may not trace: if process 1 is missing, others are, too.
    os.unlink(f"{tree.root}/proc/41/fd/2")
    tree.tie("/proc/self/ns/pid", "pid:[4026531836]")
    (holder,) = Holders(tree).of(GROUP)
    assert "hidepid" in holder.name
    tree.put("/proc/1/comm", "systemd\n")
    tree.folder("/proc/1/fd")
    assert Holders(tree).of(GROUP) == ()
