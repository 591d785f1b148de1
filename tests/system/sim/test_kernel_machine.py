"""Any sequence of writes to drivers, functions, vGPUs and VMs leaves a consistent tree."""

from __future__ import annotations

import errno

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from system.sim.kernel_setup import PCI, Kernel, uuid

DRIVERS = "/sys/bus/pci/drivers"
NUMBER = st.integers(0, 999)
KNOWN = {
    0,
    *(errno.EBUSY, errno.EINVAL, errno.ENODEV, errno.EEXIST, errno.EIO, errno.ENOSPC, errno.ENOENT, errno.EACCES),
    *(errno.EPERM, errno.ERANGE, errno.ENXIO),
}


class Writes(RuleBasedStateMachine):
    """Two GPUs in one of two frameworks, one with a foreign device in its IOMMU group. NVML is not open."""

    @initialize(template=st.sampled_from(("a2:mdev:grouped,a30:mdev", "a2:vfio:grouped,a30:vfio", "tesla-t4:mdev,a2")))
    def node_starts(self, template: str) -> None:
        self.node = Kernel(template)
        self.made = 0
        self.node.manage()
        for number in range(3):
            self.create(number, 0)

    def addresses(self) -> list[str]:
        """Return every function except the root ports, which do not change."""
        return [a for a in self.node.files.names(PCI) if not a.startswith("0000:00:")]

    def pick(self, number: int) -> str:
        """Choose a GPU, a device beside it, a function with a vGPU or one of the first."""
        gpus = [g.state for g in self.node.node.gpus]
        found = [g.pci for g in gpus] + [v.function for g in gpus for v in g.vgpus]
        found += [a for a in self.addresses() if a.endswith((".1", ".4"))][:3]
        return found[number % len(found)]

    @rule(
        number=NUMBER, driver=st.sampled_from(("nvidia", "vfio-pci", "igb")), verb=st.sampled_from(("bind", "unbind"))
    )
    def drivers(self, number: int, driver: str, verb: str) -> None:
        assert self.node.write(f"{DRIVERS}/{driver}/{verb}", self.pick(number)) in KNOWN

    @rule(number=NUMBER, driver=st.sampled_from(("vfio-pci", "nvidia", "nonsense", "\n")))
    def override(self, number: int, driver: str) -> None:
        assert self.node.write(f"{PCI}/{self.pick(number)}/driver_override", driver) == 0

    @rule(number=NUMBER)
    def probe(self, number: int) -> None:
        assert self.node.write("/sys/bus/pci/drivers_probe", self.pick(number)) in KNOWN

    @rule(number=NUMBER)
    def hand_over(self, number: int) -> None:
        address = self.pick(number)
        self.node.write(f"{PCI}/{address}/driver_override", "vfio-pci")
        self.node.write(f"{DRIVERS}/nvidia/unbind", address)
        self.node.write("/sys/bus/pci/drivers_probe", address)

    @rule(verb=st.sampled_from(("new_id", "remove_id")))
    def ids(self, verb: str) -> None:
        assert self.node.write(f"{DRIVERS}/vfio-pci/{verb}", "10de 25b6") in KNOWN

    @rule(number=NUMBER, on=st.booleans())
    def functions(self, number: int, on: bool) -> None:
        self.node.manage("-e" if on else "-d", self.node.node.gpus[number % 2].state.pci)

    @rule(number=NUMBER, kind=NUMBER)
    def create(self, number: int, kind: int) -> None:
        gpus = [g.state for g in self.node.node.gpus]
        functions = [a for a in self.addresses() if not a.endswith(".0") or a in [g.pci for g in gpus]]
        address = functions[number % min(len(functions), 8)]
        types = f"{PCI}/{address}/mdev_supported_types"
        self.made += 1
        if self.node.files.exists(types):
            names = self.node.files.names(types)
            assert self.node.write(f"{types}/{names[kind % len(names)]}/create", uuid(self.made)) in KNOWN
        elif self.node.files.exists(f"{PCI}/{address}/nvidia"):
            listed = self.node.listed(address) or [746]
            assert self.node.make(address, listed[kind % len(listed)]) in KNOWN

    @rule(number=NUMBER)
    def remove(self, number: int) -> None:
        vgpus = [v for g in self.node.node.gpus for v in g.state.vgpus]
        if vgpus:
            assert self.node.drop(vgpus[number % len(vgpus)].function) in (0, errno.EBUSY)

    @rule(number=NUMBER)
    def machine_starts(self, number: int) -> None:
        vgpus = [v.uuid or v.function for g in self.node.node.gpus for v in g.state.vgpus]
        choice = vgpus + self.addresses()
        device = choice[number % len(choice)] if number % 2 or not vgpus else vgpus[number % len(vgpus)]
        self.node.control("vm-start", name=f"vm{number}", devices=[device])

    @rule(number=NUMBER)
    def unplug(self, number: int) -> None:
        """Unbind a device of a running VM, which must be refused."""
        opened = [d for vm in self.node.node.state.vms for d in vm.devices]
        if not opened:
            return
        device = opened[number % len(opened)]
        carriers = {v.uuid: v.function for g in self.node.node.gpus for v in g.state.vgpus if v.uuid}
        function = carriers.get(device, device)
        driver = self.node.files.real(f"{PCI}/{function}/driver")
        assert self.node.write(f"{driver}/unbind", function) == errno.EBUSY
        if any(v.function == function for g in self.node.node.gpus for v in g.state.vgpus):
            held = [v for v in self.node.files.names(f"{PCI}/{function}") if v == device]
            remove = f"{held[0]}/remove" if held else "nvidia/current_vgpu_type"
            if device in carriers or self.node.files.exists(f"{PCI}/{function}/nvidia"):
                assert self.node.write(f"{PCI}/{function}/{remove}", "1" if held else "0") == errno.EBUSY

    @rule()
    def machines_stop(self) -> None:
        for vm in list(self.node.node.state.vms):
            self.node.ok("vm-stop", name=vm.name)

    @rule(kernel=st.sampled_from((None, "mdev", "vfio", "none")))
    def reboot(self, kernel: str | None) -> None:
        self.node.ok("reboot", kernel=kernel)
        assert all(self.node.files.exists(f"{PCI}/{a}/driver") for a in self.addresses())

    @invariant()
    def links_agree(self) -> None:
        files = self.node.files
        bound = {
            a: files.real(f"{PCI}/{a}/driver").rpartition("/")[2]
            for a in self.addresses()
            if files.exists(f"{PCI}/{a}/driver")
        }
        for driver in ("nvidia", "vfio-pci", "igb"):
            listed = {n for n in files.names(f"{DRIVERS}/{driver}") if ":" in n}
            assert listed == {a for a, d in bound.items() if d == driver}
        physical = [g.state.pci for g in self.node.node.gpus]
        assert set(files.names("/proc/driver/nvidia/gpus")) == {p for p in physical if bound.get(p) == "nvidia"}

    @invariant()
    def groups_agree(self) -> None:
        files, mdevs = self.node.files, [v.uuid for g in self.node.node.gpus for v in g.state.vgpus if v.uuid]
        seen = [m for g in files.names("/sys/kernel/iommu_groups") for m in self._members(g)]
        assert sorted(seen) == sorted([*files.names(PCI), *mdevs])
        if files.exists("/sys/bus/mdev"):
            assert sorted(files.names("/sys/bus/mdev/devices")) == sorted(mdevs)
        for mdev in mdevs:
            handle = files.real(f"/sys/bus/mdev/devices/{mdev}/iommu_group").rpartition("/")[2]
            assert files.exists(f"/dev/vfio/{handle}")

    def _members(self, group: str) -> tuple[str, ...]:
        return self.node.files.names(f"/sys/kernel/iommu_groups/{group}/devices")

    @invariant()
    def functions_agree(self) -> None:
        for gpu in self.node.node.gpus:
            pf = f"{PCI}/{gpu.state.pci}"
            if not self.node.files.exists(f"{pf}/sriov_numvfs"):
                continue
            vfs = self.node.vfs(pf)
            assert len(vfs) == int(self.node.files.read(f"{pf}/sriov_numvfs"))
            assert all(self.node.files.real(f"{PCI}/{vf}/physfn") == self.node.files.real(pf) for vf in vfs)
            assert not vfs or gpu.state.driver == "nvidia", "a driver let go of a GPU with functions"

    @invariant()
    def what_a_machine_has_open_stays(self) -> None:
        """Assert that no write removed a vGPU, a function or a driver that a running VM uses."""
        there = {v.uuid for g in self.node.node.gpus for v in g.state.vgpus} | set(self.addresses())
        for vm in self.node.node.state.vms:
            assert set(vm.devices) <= there
            opened = {
                self.node.files.link(f"/proc/{vm.pid}/fd/{n}") for n in self.node.files.names(f"/proc/{vm.pid}/fd")
            }
            assert any(o.removeprefix("/dev/vfio/").isdigit() for o in opened)
            assert all(self.node.files.exists(o) for o in opened)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [30])
def test_the_tree_agrees_with_itself(steps: int) -> None:
    run_state_machine_as_test(
        Writes,
        settings=settings(
            max_examples=40, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
