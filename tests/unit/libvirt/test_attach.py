"""Results of an attach: checked before any change, then done completely or not at all."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.inventory import HostVirtualization
from aliquot.errors import BlockedError, UsageError
from aliquot.foundation.threads import SystemClock
from aliquot.libvirt import apply as carry
from aliquot.libvirt.attach import AttachTarget, DeviceChange, change_target, find_domain, plan_attach, plan_detach
from aliquot.libvirt.choose import VmDeviceRequest
from aliquot.libvirt.device_rules import VmContext
from aliquot.libvirt.errors import LibvirtError, NoVmError
from aliquot.libvirt.models import Hostdev, LibvirtDomain

from .memory import MemoryLibvirt
from .nodes import A2, L40S, T4, mdev, node, pci, vm

NODE = node(A2, L40S, T4)
RAMFB = {"display": True, "ramfb": True}
DEFINITION = AttachTarget()


def attach(
    domain: LibvirtDomain, *types: tuple[str, int], where: AttachTarget = DEFINITION, devices: tuple[str, ...] = ()
) -> DeviceChange:
    return plan_attach(NODE, domain, VmDeviceRequest(types, devices=devices), where, VmContext(domains=(domain,)))


def rules(change: DeviceChange) -> list[str]:
    return [b.rule for b in change.blockers]


def test_two_vgpus_and_one_boot_display() -> None:
    change = attach(vm("win11"), ("A2-4Q", 2))
    assert [(h.uuid, h.display, h.ramfb) for h in change.devices] == [
        (A2.vgpus[0].uuid, True, True),
        (A2.vgpus[1].uuid, None, None),
    ]
    assert (change.blockers, change.notes) == ((), ())
    assert change.descriptions == ("NVIDIA A2-4Q of GPU 0", "NVIDIA A2-4Q of GPU 0")


def test_a_machine_that_has_its_boot_display_gets_no_second() -> None:
    change = attach(vm("win11", mdev(A2, 0, **RAMFB)), ("A2-4Q", 1))
    assert [(h.uuid, h.ramfb) for h in change.devices] == [(A2.vgpus[1].uuid, None)]
    assert change.blockers == ()


def test_no_boot_display_where_none_can_be() -> None:
    blind = attach(vm("server", graphics=False), ("A2-4Q", 1))
    assert blind.devices[0].ramfb is None
    assert blind.notes == ("no ramFB: VM server has no <graphics> to show it on",)
    assert attach(vm("w"), ("L40S-8Q", 2)).devices == (pci("0000:26:00.4"), pci("0000:26:00.5"))
    assert attach(vm("w"), ("A2-4Q", 1), where=AttachTarget(ramfb="none")).devices[0].ramfb is None


def test_rules_are_those_of_the_whole_machine() -> None:
    assert set(rules(attach(vm("win11", mdev(A2, 0)), ("A2-4A", 1)))) == {"PER_VM", "SERIES"}
    assert "PER_VM" in rules(attach(vm("win11"), ("A2-4Q", 1), ("A2-4A", 1)))
    # Only ``check`` reports errors that existed before and are not worse now.
    old = vm("old", mdev(A2, 0, **RAMFB), mdev(A2, 1, **RAMFB))
    change = plan_attach(NODE, old, VmDeviceRequest((("T4-4Q", 1),)), AttachTarget(), VmContext(domains=(old,)))
    assert "RAMFB" not in rules(change)


def test_a_host_without_iommu() -> None:
    bare = node(L40S, host=HostVirtualization(iommu=False, vfio=True))
    change = plan_attach(bare, vm("l"), VmDeviceRequest((("L40S-8Q", 1),)), AttachTarget(), VmContext())
    assert rules(change) == ["NO_IOMMU"]


def test_vgpus_of_other_machines_are_not_taken() -> None:
    other, mine = vm("other", mdev(A2, 0)), vm("mine", mdev(A2, 1))
    with pytest.raises(BlockedError, match="1 x A2-4Q requested, 0 free of 2"):
        plan_attach(NODE, mine, VmDeviceRequest((("A2-4Q", 1),)), AttachTarget(), VmContext(domains=(other, mine)))


def test_where_a_change_goes() -> None:
    off, on = vm("off"), vm("on", live=())
    loose = vm("loose", live=(), persistent=False)
    assert change_target(off, live=False, config=False) == AttachTarget()
    assert change_target(on, live=False, config=False) == AttachTarget()
    assert change_target(on, live=True, config=False) == AttachTarget(config=False, live=True, ramfb="none")
    assert change_target(on, live=True, config=True) == AttachTarget(config=True, live=True, ramfb="none")
    with pytest.raises(BlockedError) as caught:
        change_target(off, live=True, config=False)
    assert caught.value.code == "VM_NOT_RUNNING"
    with pytest.raises(BlockedError) as caught:
        change_target(loose, live=False, config=False)
    assert caught.value.code == "TRANSIENT"
    with pytest.raises(UsageError, match="cannot be plugged"):
        change_target(on, live=True, config=False, ramfb="on")


def test_notes_say_when_it_holds() -> None:
    on = vm("on", live=())
    assert "at its next start" in attach(on, ("A2-4Q", 1)).notes[0]
    live = attach(on, ("A2-4Q", 1), where=AttachTarget(config=False, live=True, ramfb="none"))
    assert "gone at its next start" in live.notes[0]
    assert "no ramFB" in live.notes[1]


def test_a_machine_by_name_or_uuid() -> None:
    machines = (vm("a"), vm("b"))
    assert find_domain(machines, "b") == find_domain(machines, "uuid-of-b") == machines[1]
    with pytest.raises(NoVmError) as caught:
        find_domain(machines, "c")
    assert caught.value.details == ("VMs in libvirt: a, b",)


def done(libvirt: MemoryLibvirt, name: str) -> list[str]:
    return [h.key for h in libvirt.domain(f"uuid-of-{name}").config]


def test_all_of_them() -> None:
    libvirt, messages = MemoryLibvirt(vm("win11")), list[str]()
    carry.attach(libvirt, attach(vm("win11"), ("A2-4Q", 2)), messages.append)
    assert done(libvirt, "win11") == [v.uuid for v in A2.vgpus[:2]]
    assert messages[0] == f"attached NVIDIA A2-4Q of GPU 0 (mdev {A2.vgpus[0].uuid}) to win11"


def test_the_second_fails_and_the_first_goes_back() -> None:
    libvirt = MemoryLibvirt(vm("win11"))
    first, second = (v.uuid for v in A2.vgpus[:2])
    libvirt.refuse[f"attach {second}"] = "Requested operation is not valid: device is already in use by driver QEMU"
    with pytest.raises(LibvirtError) as caught:
        carry.attach(libvirt, attach(vm("win11"), ("A2-4Q", 2)))
    assert done(libvirt, "win11") == []
    assert caught.value.details[-1] == f"mdev {first} was attached before the error, and is detached again"
    assert libvirt.calls == [("attach", first), ("attach", second), ("detach", first)]


def test_an_undo_that_fails_is_reported() -> None:
    libvirt = MemoryLibvirt(vm("win11"))
    first, second = (v.uuid for v in A2.vgpus[:2])
    libvirt.refuse = {f"attach {second}": "internal error: no", f"detach {first}": "internal error: no again"}
    stays: list[Hostdev] = []
    with pytest.raises(LibvirtError) as caught:
        carry.attach(libvirt, attach(vm("win11"), ("A2-4Q", 2)), on_stay=stays.append)
    assert [each.key for each in stays] == [first]
    assert f"mdev {first} stays attached" in caught.value.details[-1]
    assert caught.value.next_step == "aliquot libvirt check win11"
    assert done(libvirt, "win11") == [first]


def test_what_libvirt_took_and_did_not_do() -> None:
    libvirt = MemoryLibvirt(vm("win11"))
    first, second = (v.uuid for v in A2.vgpus[:2])
    libvirt.deaf = {second}
    with pytest.raises(LibvirtError) as caught:
        carry.attach(libvirt, attach(vm("win11"), ("A2-4Q", 2)))
    assert caught.value.code == "NOT_DONE"
    assert f"mdev {second} is not in the definition" in caught.value.details
    assert done(libvirt, "win11") == []
    assert ("detach", first) in libvirt.calls


def detach(
    domain: LibvirtDomain, *words: str, every: bool = False, types: tuple[tuple[str, int], ...] = ()
) -> DeviceChange:
    return plan_detach(NODE, domain, VmDeviceRequest(types, devices=words), AttachTarget(), all_devices=every)


def test_detach_by_name_by_type_or_all() -> None:
    full = vm("full", mdev(A2, 0, **RAMFB), mdev(A2, 1), pci("0000:26:00.4"), pci("0000:99:00.0", managed=True))
    assert [h.key for h in detach(full, "0000:08:00.5", "0000:26:00.4").devices] == [
        A2.vgpus[1].uuid,
        "0000:26:00.4",
    ]
    assert [h.key for h in detach(full, types=(("A2-4Q", 1),)).devices] == [A2.vgpus[1].uuid]
    assert [h.key for h in detach(full, every=True).devices] == [*(v.uuid for v in A2.vgpus[:2]), "0000:26:00.4"]
    # A missing device can still be detached.
    stale = vm("stale", msgspec.structs.replace(mdev(A2, 0), uuid="c73f1fa6-489e-4834-9476-d70dabd98c40"))
    assert len(detach(stale, "C73F1FA6-489E-4834-9476-D70DABD98C40").devices) == 1
    assert len(detach(stale, every=True).devices) == 1
    for change in (("0000:26:00.5",), ()):
        with pytest.raises(BlockedError) as caught:
            detach(full, *change) if change else detach(vm("none"), every=True)
        assert caught.value.code == "NOT_ATTACHED"
    with pytest.raises(BlockedError, match="has 2 x A2-4Q, not 3"):
        detach(full, types=(("A2-4Q", 3),))


class Hurried(SystemClock):
    """A clock that advances only during sleeps."""

    def __init__(self, libvirt: MemoryLibvirt) -> None:
        self._now = 0.0
        self._libvirt = libvirt

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._libvirt.clings = max(0, self._libvirt.clings - 1)
        if not self._libvirt.clings:
            for uuid, domain in self._libvirt.all.items():
                self._libvirt.all[uuid] = msgspec.structs.replace(domain, live=())


def test_a_guest_lets_go_late_or_never() -> None:
    device = mdev(A2, 0, text="")
    device = msgspec.structs.replace(
        device, text=f"<hostdev mode='subsystem' type='mdev'><source><address uuid='{device.uuid}'/></source></hostdev>"
    )
    running = vm("win11", device, live=(device,))
    for reads, fails in ((5, False), (10_000, True)):
        libvirt = MemoryLibvirt(running)
        libvirt.clings = reads
        change = plan_detach(NODE, running, VmDeviceRequest(), AttachTarget(config=True, live=True), all_devices=True)
        if not fails:
            carry.detach(libvirt, change, Hurried(libvirt))
            assert libvirt.domain(running.uuid).hostdevs == ()
            continue
        with pytest.raises(LibvirtError, match="has not released the device") as caught:
            carry.detach(libvirt, change, Hurried(libvirt))
        assert caught.value.details == (f"mdev {device.uuid} is still in the running VM",)
