"""The same contract for both connections to a real libvirtd: the Python binding and ``virsh``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt.connect import open_libvirt
from aliquot.libvirt.errors import LibvirtError, NoLibvirtError, NoVmError, TimedOutError
from aliquot.libvirt.models import MDEV, PCI, Hostdev
from aliquot.libvirt.port import Libvirt
from aliquot.libvirt.virsh import Virsh

from .conftest import Machines

UUID = "c73f1fa6-489e-4834-9476-d70dabd98c4{}"
UNKNOWN_UUID = "00000000-1111-4222-8333-444444444444"


def mdev(n: int, *, ramfb: bool | None = None) -> Hostdev:
    return Hostdev(MDEV, uuid=UUID.format(n), model="vfio-pci", display=ramfb, ramfb=ramfb)


def function(n: int, *, managed: bool = False) -> Hostdev:
    return Hostdev(PCI, address=f"0000:3b:00.{n}", managed=managed)


def test_both_sides_of_a_machine_are_read(libvirt: Libvirt, machines: Machines) -> None:
    off = machines.define("off", xml.build(mdev(0, ramfb=True)), xml.build(function(4)))
    on = machines.define("on", graphics=False)
    machines.start("on")
    libvirt.attach(on, xml.build(function(5, managed=True)), live=False, config=True)
    loose = machines.transient("loose")
    found = {d.name: d for d in libvirt.domains()}
    assert found.keys() >= {"off", "on", "loose"}
    assert (found["off"].uuid, found["off"].running, found["off"].graphics) == (off, False, True)
    first, second = found["off"].config
    assert (first.kind, first.uuid, first.model, first.display, first.ramfb) == (
        MDEV,
        UUID.format(0),
        "vfio-pci",
        True,
        True,
    )
    assert (second.kind, second.address, second.managed) == (PCI, "0000:3b:00.4", False)
    assert (found["on"].running, found["on"].live, found["on"].graphics) == (True, (), False)
    assert [(h.address, h.managed) for h in found["on"].config] == [("0000:3b:00.5", True)]
    assert (found["loose"].uuid, found["loose"].persistent, found["loose"].running) == (loose, False, True)
    assert libvirt.domain(off) == found["off"]


def test_the_daemon_tells_its_version(libvirt: Libvirt) -> None:
    reported = subprocess.run(["virsh", "--version"], capture_output=True, text=True, check=True).stdout
    assert libvirt.version() == tuple(map(int, reported.split(".")[:2]))


def test_a_device_goes_in_and_out_of_a_definition(libvirt: Libvirt, machines: Machines) -> None:
    uuid = machines.define("one")
    for hostdev in (mdev(1, ramfb=True), mdev(2), function(6)):
        libvirt.attach(uuid, xml.build(hostdev), live=False, config=True)
    assert [h.key for h in libvirt.domain(uuid).config] == [UUID.format(1), UUID.format(2), "0000:3b:00.6"]
    for hostdev in libvirt.domain(uuid).config[:2]:
        libvirt.detach(uuid, hostdev.text, live=False, config=True)
    assert [h.key for h in libvirt.domain(uuid).config] == ["0000:3b:00.6"]


def code(call: object, *arguments: object, **more: object) -> tuple[str, LibvirtError]:
    with pytest.raises(LibvirtError) as caught:
        call(*arguments, **more)  # type: ignore[operator]
    assert "Error" not in caught.value.brief
    assert caught.value.details[0].startswith("libvirt: ")
    return caught.value.code, caught.value


def test_refusals_are_distinguished(libvirt: Libvirt, machines: Machines) -> None:
    uuid = machines.define("one", xml.build(mdev(1)), graphics=False)
    config = {"live": False, "config": True}
    assert code(libvirt.domain, UNKNOWN_UUID)[0] == "NO_VM"
    assert code(libvirt.attach, UNKNOWN_UUID, xml.build(mdev(1)), **config)[0] == "NO_VM"
    assert code(libvirt.attach, uuid, xml.build(mdev(1)), **config)[0] == "ATTACHED"
    assert code(libvirt.attach, uuid, xml.build(mdev(2)), live=True, config=False)[0] == "VM_NOT_RUNNING"
    assert code(libvirt.attach, uuid, xml.build(mdev(2, ramfb=True)), **config)[0] == "DISPLAY"
    assert code(libvirt.detach, uuid, xml.build(mdev(2)), **config)[0] == "NOT_ATTACHED"
    assert code(libvirt.detach, uuid, xml.build(function(4)), **config)[0] == "NOT_ATTACHED"
    assert code(libvirt.start_mdev, "mdev_none")[0] == "NO_MDEV"
    with pytest.raises(LibvirtError, match="mdev"):
        libvirt.define_mdev("<device><parent>pci_0000_3b_00_4</parent><capability type='mdev'/></device>")


def test_no_vfio_is_reported_in_our_words(libvirt: Libvirt, machines: Machines) -> None:
    # The daemon sees no VFIO on this host.
    if os.path.exists("/dev/vfio/vfio"):
        pytest.skip("this machine has VFIO")
    for n, hostdev in enumerate((mdev(1), function(4), function(4, managed=True))):
        uuid = machines.define(f"start{n}", xml.build(hostdev))
        refused, error = code(libvirt.start, uuid)
        assert refused == "NO_VFIO"
        assert "modprobe vfio-pci" in str(error.next_step)
    running = machines.define("running")
    libvirt.start(running)
    assert code(libvirt.attach, running, xml.build(mdev(1)), live=True, config=False)[0] == "NO_VFIO"
    assert code(libvirt.start, running)[0] == "VM_RUNNING"


def test_libvirt_itself_takes_two_ramfb_and_fails_at_the_start(libvirt: Libvirt, machines: Machines) -> None:
    # libvirt accepts the definition, and the VM never starts again. Therefore Aliquot checks first.
    uuid = machines.define("two")
    for n in (1, 2):
        libvirt.attach(uuid, xml.build(mdev(n, ramfb=True)), live=False, config=True)
    assert code(libvirt.start, uuid)[0] == "RAMFB"


def test_mdevs_of_a_machine_without_any(libvirt: Libvirt) -> None:
    assert libvirt.mdevs() == ()


def test_no_daemon(through: str, tmp_path: Path) -> None:
    with pytest.raises(NoLibvirtError) as caught, open_libvirt(f"qemu+unix:///system?socket={tmp_path}/none", through):
        pass
    assert caught.value.next_step == "systemctl start libvirtd (or virtqemud)"


def test_a_driver_that_cannot_attach(through: str) -> None:
    # The driver is libvirt's own test driver.
    with open_libvirt("test:///default", through) as connection:
        (domain,) = connection.domains()
        assert (domain.name, domain.running) == ("test", True)
        assert code(connection.attach, domain.uuid, xml.build(mdev(1)), live=False, config=True)[0] == "NOT_SUPPORTED"


def _patient(through: str) -> Callable[..., Libvirt]:
    if through == "virsh":
        return Virsh
    from aliquot.libvirt.binding import LibvirtPython

    return LibvirtPython


def test_a_daemon_that_hangs_is_given_up(through: str, tmp_path: Path) -> None:
    # A socket accepts the connection and never answers.
    path = tmp_path / "s"
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen(9); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as mute:
        while not path.exists():
            time.sleep(0.02)
        began = time.monotonic()
        address = f"qemu+unix:///system?socket={path}"
        with pytest.raises(TimedOutError, match="did not answer within 1 s"):
            _patient(through)(address, bound_s=1)
        assert time.monotonic() - began < 10
        mute.terminate()


def test_virsh_that_is_not_there() -> None:
    with pytest.raises(NoLibvirtError, match="cannot run virsh-none"):
        Virsh("test:///default", program="virsh-none")


def test_a_name_that_is_a_number_is_no_id(libvirt: Libvirt, machines: Machines) -> None:
    machines.define("1")
    running = machines.define("other")
    machines.start("other")
    names = {d.uuid: d.name for d in libvirt.domains()}
    assert names[running] == "other"
    assert "1" in names.values()


def test_a_domain_that_disappears_is_left_out(libvirt: Libvirt, machines: Machines) -> None:
    uuid = machines.define("short")
    machines.virsh("undefine", "short")
    with pytest.raises(NoVmError):
        libvirt.domain(uuid)
