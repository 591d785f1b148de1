"""Each driver branch does the same work. Aliquot works around a missing feature or reports it as a blocker in the
plan.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import aliquot.hardware.nvml as nvml_package
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.engine.ports import Backend
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.driver_branches import FIRST_WITH, FLOOR
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.plan import plan
from aliquot.core.planner.verify import verify
from aliquot.errors import HardwareError
from aliquot.hardware.node_backend import NodeGpuDriver
from aliquot.sim.host import SimHost
from aliquot.sim.lifecycle import library
from aliquot.sim.nvml_functions import functions, missing
from contract.conftest import EVERY, Machine
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder

Start = Callable[[str], Machine]

VERSIONS = (
    *("470.256.02", "510.108.03", "515.105.01", "525.147.05", "535.183.01", "550.163.01", "570.172.08"),
    *("580.65.06", "595.45.04"),
)
PLACES = {v: int(v[:3]) >= 525 for v in VERSIONS}
every_branch = pytest.mark.parametrize("version", VERSIONS)
every_kind = pytest.mark.parametrize("kind", EVERY)


def execute_plan(backend: NodeGpuDriver, node: Machine, desired: Desired) -> ApplyOutcome:
    made = plan(backend.read(), desired)
    assert not made.blockers, made.blockers
    ports = ExecutionContext(
        cast(Backend, backend), SimHost(node.node), MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
    )
    return apply(made, ports, lambda line: None)


def compute(gpu: Gpu) -> list[list[str]]:
    return sorted(sorted(c.profile for c in i.compute_instances) for i in gpu.instances)


@every_kind
@every_branch
def test_compute_instances_come_and_go(machine: Start, kind: str, version: str) -> None:
    node = machine(f"a100-sxm4-40gb@{version}")
    backend = node.open(kind)
    desired = adhoc(["0"], ["2c.3g.20gb*2,1c.3g.20gb*2"], backend.read())
    assert execute_plan(backend, node, desired).status == "done"
    gpu = backend.read().gpus[0]
    assert compute(gpu) == [["1c.3g.20gb", "2c.3g.20gb"]] * 2
    assert verify(backend.read(), desired) == ()
    other = adhoc(["0"], ["1c.3g.20gb*3,3g.20gb"], backend.read())
    assert execute_plan(backend, node, other).status == "done"
    assert verify(backend.read(), other) == ()
    with_place = {c["call"] for c in node.node.calls()} & {"GpuInstanceCreateComputeInstanceWithPlacement"}
    assert bool(with_place) == PLACES[version]


@every_branch
def test_a_held_compute_instance_stays_and_others_come_beside_it(machine: Start, version: str) -> None:
    node = machine(f"a100-sxm4-40gb@{version}")
    backend = node.open("shim")
    assert execute_plan(backend, node, adhoc(["0"], ["1c.4g.20gb*4"], backend.read())).status == "done"
    instance = backend.read().gpus[0].instances[0]
    held = next(c for c in instance.compute_instances if c.place.start == 1)
    node.node.hold(0, f"{instance.id}/{held.id}")
    outcome = execute_plan(backend, node, adhoc(["0"], ["1c.4g.20gb,2c.4g.20gb"], backend.read()))
    assert outcome.status == "done"
    after = backend.read().gpus[0]
    assert compute(after) == [["1c.4g.20gb", "2c.4g.20gb"]]
    assert any(c.id == held.id and c.holders for c in after.instances[0].compute_instances)


@every_branch
def test_a_placement_that_the_driver_does_not_choose(machine: Start, version: str) -> None:
    # Only a driver that accepts placements can create a single compute instance at slot 2.
    node = machine(f"a100-sxm4-40gb@{version}")
    backend = node.open("shim")
    inventory = backend.read()
    family = inventory.family(inventory.gpus[0])
    profile = family.by_name["3g.20gb"]
    part = next(c for c in profile.compute if c.name == "1c.3g.20gb")
    desired_gpu = DesiredGpu(
        inventory.gpus[0].pci, True, (DesiredInstance(profile.id, profile.name, (part.id,), 0, (2,)),)
    )
    before = len(node.writes())
    made = plan(inventory, Desired((desired_gpu,)))
    if PLACES[version]:
        assert execute_plan(backend, node, Desired((desired_gpu,))).status == "done"
        assert backend.read().gpus[0].instances[0].compute_instances[0].placement == "2:1"
        return
    assert [(b.rule, made.actions) for b in made.blockers] == [("COMPUTE_PLACEMENT", ())]
    assert "R525" in str(made.blockers[0].next_step)
    assert len(node.writes()) == before


@every_branch
def test_a_change_that_fails_leads_back(machine: Start, version: str) -> None:
    # The last creation is refused. The rollback creates two compute instances again at their chosen places.
    node = machine(f"a100-sxm4-40gb@{version}")
    backend = node.open("shim")
    assert execute_plan(backend, node, adhoc(["0"], ["2c.3g.20gb,1c.3g.20gb,2g.10gb"], backend.read())).status == "done"
    was = backend.read().gpus[0]
    node.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=23, calls=1)
    outcome = execute_plan(backend, node, adhoc(["0"], ["1g.5gb,2g.10gb"], backend.read()))
    assert outcome.status == "undone"
    now = backend.read().gpus[0]
    assert compute(now) == compute(was)
    assert [(i.profile, i.placement) for i in now.instances] == [(i.profile, i.placement) for i in was.instances]


@every_branch
def test_the_library_exports_what_the_branch_has(machine: Start, version: str) -> None:
    node = machine(f"a30@{version}")
    loaded = ctypes.CDLL(library(node.state_dir, node.name))
    absent = {name for name in functions() if not hasattr(loaded, name)}
    assert absent == missing(int(version[:3]))
    assert ("nvmlGpuInstanceCreateComputeInstanceWithPlacement" in absent) != PLACES[version]


def test_another_driver_means_another_library(machine: Start) -> None:
    node = machine("a30@515.105.01")
    placed = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"
    assert not hasattr(ctypes.CDLL(library(node.state_dir, node.name)), placed)
    node.node.inject_fault("replace-driver", version="580.65.06")
    path = Path(library(node.state_dir, node.name))
    assert placed.encode() in path.read_bytes()
    assert hasattr(ctypes.CDLL(f"{path.parent}/./{path.name}"), placed)


def test_every_function_that_the_oldest_branch_lacks_is_known_with_its_branch() -> None:
    # Compares the calls in the sources with the headers of the driver.
    text = "".join(path.read_text() for path in Path(str(nvml_package.__file__)).parent.glob("*.py"))
    called = set(re.findall(r"\bnvml[A-Z]\w+", text)) & functions().keys()
    assert {name: functions()[name] for name in called if functions()[name] > FLOOR} == FIRST_WITH


def test_a_missing_function_is_named_with_its_branch(machine: Start) -> None:
    backend = machine("a100-sxm4-40gb@515.105.01").open("shim")
    pci = backend.read().gpus[0].pci
    assert backend.set_mode(pci, True)
    made = backend.create_gpu_instance(pci, 9, 0, 4)
    with pytest.raises(HardwareError) as caught:
        backend.create_compute_instance(pci, made, 0, 2, 1)
    message = "\n".join(caught.value.details)
    assert "driver 515.105.01 has no nvmlGpuInstanceCreateComputeInstanceWithPlacement" in message
    assert "R525" in str(caught.value.next_step)


def test_a_library_without_process_lists_is_read_and_nothing_is_destroyed(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open("shim")
    assert execute_plan(backend, node, adhoc(["0"], ["3g.20gb,1g.5gb"], backend.read())).status == "done"
    node.node.inject_fault("fail", call="DeviceGetComputeRunningProcesses", code=13)
    inventory = backend.read()
    assert [str(h) for i in inventory.gpus[0].instances for h in i.holders] == [
        "process unknown (this driver does not list processes)"
    ] * 2
    made = plan(inventory, adhoc(["0"], ["3g.20gb"], inventory))
    assert [b.rule for b in made.blockers] == ["HELD"]
    assert "--policy wait" not in str(made.blockers[0].next_step), "the driver would not report that it is idle"
    more = adhoc(["0"], ["3g.20gb,1g.5gb,2g.10gb"], inventory)
    assert execute_plan(backend, node, more).status == "done", "only destruction is refused"
    assert verify(backend.read(), more) == ()
