"""The simulated driver and the raw tables return equal lists, placements and refusals for any sequence of actions."""

from __future__ import annotations

import errno

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from system.sim.kernel_setup import PCI, Kernel
from system.sim.vgpu_oracle import VgpuOracle

BOARDS = {
    "a2": "a2",
    "a40": "a40",
    "l40s": "l40s",
    "a30": "a30",
    "a100-sxm4-40gb": "a100-sxm4-40gb",
    "h100-nvl": "h100-nvl",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000",
}
REFUSALS = {"ok": 0, "busy": errno.EIO, "kind": errno.EIO, "size": errno.EIO, "place": errno.EIO}
NONE = {"4294967295", "65535"}


class Acts(RuleBasedStateMachine):
    """Random functions, modes, GPU instances, vGPUs and reboots on a board, in either framework."""

    @initialize(product=st.sampled_from(sorted(BOARDS)), framework=st.sampled_from(("mdev", "vfio")))
    def board(self, product: str, framework: str) -> None:
        self.environment = framework
        self.node = Kernel(f"{BOARDS[product]}:{framework}")
        self.oracle = VgpuOracle(product)
        self.vfs: list[str] = []
        self.made = 0
        self.functions_on()

    def _wiped(self) -> None:
        self.oracle.there, self.oracle.instances, self.oracle.mixed = {}, {}, False
        self.oracle.mixed_instances = set()

    @rule()
    def functions_on(self) -> None:
        assert self.node.manage("-e") == 0
        self._wiped()
        self.vfs = self.node.vfs()
        assert len(self.vfs) == int(self.node.files.read(f"{self.node.pf}/sriov_totalvfs"))

    @rule()
    def functions_off(self) -> None:
        assert self.node.manage("-d") == 0
        self._wiped()
        self.vfs = []
        assert self.node.vfs() == []

    @rule(on=st.booleans())
    def mig_mode(self, on: bool) -> None:
        gpu = self.node.gpu
        code = self.node.ask(f"DeviceSetMigMode 0 -1 -1 {int(on)}", self.node.open(7))[0]
        self.node.node.sessions.clear()
        if gpu.table is None:
            assert code == 3
            return
        assert code == (19 if self.oracle.mig and not on and self.vfs else 0)
        if gpu.state.mig != self.oracle.mig:
            assert not self.oracle.there
            assert not self.oracle.instances
            assert on or not self.vfs
            if gpu.table.family.mode.change_needs_gpu_reset:
                assert not self.vfs, "a reset with functions"
            self.oracle.mig, self.oracle.mixed = on, False
        gpu.state.pending = gpu.state.mig  # otherwise the refused mode would take effect at the reboot

    @precondition(lambda self: self.node.gpu.state.mig)
    @rule(pick=st.integers(0, 99))
    def instance(self, pick: int) -> None:
        profiles = self.node.gpu.profiles
        profile = profiles[pick % len(profiles)]
        link = self.node.open(7)
        answer = self.node.ask(f"DeviceCreateGpuInstance 0 -1 -1 {profile.id}", link)
        self.node.node.sessions.clear()
        if answer[0] == 0:
            self.oracle.instances[answer[1]] = profile.id

    @precondition(lambda self: self.oracle.instances)
    @rule(pick=st.integers(0, 99))
    def destroy_instance(self, pick: int) -> None:
        gi = sorted(self.oracle.instances)[pick % len(self.oracle.instances)]
        code = self.node.ask(f"GpuInstanceDestroy 0 {gi} -1", self.node.open(7))[0]
        self.node.node.sessions.clear()
        held = any(v.gi == gi for v in self.oracle.there.values())
        assert code == (19 if held else 0)
        if not held:
            del self.oracle.instances[gi]
            self.oracle.mixed_instances.discard(gi)

    @precondition(lambda self: self.oracle.instances)
    @rule(pick=st.integers(0, 99), on=st.booleans())
    def mixed_size_inside(self, pick: int, on: bool) -> None:
        gi = sorted(self.oracle.instances)[pick % len(self.oracle.instances)]
        code = self.node.ask(f"GpuInstanceSetVgpuHeterogeneousMode 0 {gi} -1 {int(on)}", self.node.open(7))[0]
        self.node.node.sessions.clear()
        shared = any(r["mig"]["max_per_gi"] > 1 for r in self.oracle.rows if r["kind"] == "mig-backed")
        if not shared:
            assert code == 3
        elif any(v.gi == gi for v in self.oracle.there.values()):
            assert code == 19
        else:
            assert code == 0
            (self.oracle.mixed_instances.add if on else self.oracle.mixed_instances.discard)(gi)

    @rule(on=st.booleans())
    def mixed_size(self, on: bool) -> None:
        code = self.node.ask(f"DeviceSetVgpuHeterogeneousMode 0 -1 -1 {int(on)}", self.node.open(7))[0]
        self.node.node.sessions.clear()
        if self.oracle.mig or not self.oracle.doc["mixed_size"]:
            assert code == 3
        elif self.oracle.there or not self.vfs:
            assert code == 19
        else:
            assert code == 0
            self.oracle.mixed = on

    @precondition(lambda self: self.vfs)
    @rule(where=st.integers(0, 99), pick=st.integers(0, 999), offered=st.booleans())
    def create(self, where: int, pick: int, offered: bool) -> None:
        function = self.vfs[where % len(self.vfs)]
        choice = (self.oracle.listed() if offered else []) or [r["id"] for r in self.oracle.rows]
        type_id = choice[pick % len(choice)]
        self.made += 1
        expected = self.oracle.create(function, type_id)
        code = self.node.make(function, type_id, self.made)
        if expected == "full":
            assert code == (errno.ENOSPC if self.environment == "mdev" else errno.EIO)
        else:
            assert code == REFUSALS[expected], expected

    @precondition(lambda self: self.oracle.there)
    @rule(pick=st.integers(0, 99))
    def remove(self, pick: int) -> None:
        function = sorted(self.oracle.there)[pick % len(self.oracle.there)]
        assert self.node.drop(function) == 0
        del self.oracle.there[function]

    @rule()
    def reboot(self) -> None:
        self.node.ok("reboot")
        self._wiped()
        table = self.node.gpu.table
        self.oracle.mig = self.oracle.mig and table is not None and table.family.mode.mode_survives_reboot
        assert self.node.gpu.state.mig == self.oracle.mig
        self.vfs = []
        assert self.node.vfs() == []
        assert self.node.files.read(f"{self.node.pf}/sriov_numvfs") == "0"

    @invariant()
    def lists_agree(self) -> None:
        """Assert that every free function shows the same list and a function with a vGPU shows none."""
        free = [vf for vf in self.vfs if vf not in self.oracle.there]
        expected = self.oracle.listed()
        for vf in {*free[:1], *free[-1:]}:
            assert self.node.listed(vf) == expected
        for vf in self.oracle.there:
            assert self.node.listed(vf) == []

    @invariant()
    def vgpus_agree(self) -> None:
        """Assert type, GPU instance and placement of each. Placements never overlap; counts stay below the maxima."""
        state = self.node.gpu.state
        assert {v.function: v.type_id for v in state.vgpus} == {f: v.row["id"] for f, v in self.oracle.there.items()}
        for vgpu in state.vgpus:
            there = self.oracle.there[vgpu.function]
            assert (vgpu.gi, vgpu.placement) == tuple(-1 if x is None else x for x in (there.gi, there.place))
        cells = [(v.gi, c) for v in self.oracle.there.values() for c in v.cells]
        assert len(cells) == len(set(cells))
        if not self.oracle.mig and not self.oracle.mixed:
            assert all(len(state.vgpus) <= v.row["max"] for v in self.oracle.there.values())

    @invariant()
    def files_tell_the_driver_s_choice(self) -> None:
        if self.environment == "mdev":
            return
        for function, there in list(self.oracle.there.items())[:2]:
            folder = f"{PCI}/{function}/nvidia"
            assert self.node.files.read(f"{folder}/current_vgpu_type") == str(there.row["id"])
            for file, value in (("gpu_instance_id", there.gi), ("placement_id", there.place)):
                answer = self.node.files.read(f"{folder}/{file}")
                assert answer == str(value) if value is not None else answer in NONE
        for function in [vf for vf in self.vfs if vf not in self.oracle.there][:1]:
            assert self.node.read(f"{PCI}/{function}/nvidia/placement_id") == errno.ENXIO


@pytest.mark.parametrize("depth", [25])
def test_the_driver_and_the_tables_agree(depth: int) -> None:
    run_state_machine_as_test(
        Acts,
        settings=settings(
            max_examples=60, stateful_step_count=depth, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
