"""Counters of GPUs that serve VMs against brute force: the whole GPU, time-sliced and MIG-backed vGPUs.

The oracle reads the reviewed tables and restates the driver's order of checks (``raw``, ``vgpu_raw``). Time-sliced
devices are alike, so a state is their number, the MIG-backed ones by placement, and whether the function is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.dra.model.counters import fits, taken
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.offer import Offer, offered_devices
from aliquot.kubernetes.dra.model.vm_service import VmService
from laws.oracle import raw, vgpu_raw
from support.selection import dice, samples

BOARDS = {
    "a2": ("A2-4Q", ""),
    "l40s": ("L40S-12Q", ""),
    "l40s small": ("L40S-1Q", ""),
    "a30": ("A30-6C", "a30-24gb"),
    "a100-pcie-40gb": ("A100-5C", "a100-40gb"),
    "h100-80gb-hbm3": ("H100XM-4C", "h100-80gb-sxm"),
    "rtx-pro-6000-blackwell-server-edition": ("DC-12Q", "rtx-pro-6000-96gb"),
}
"""A time-sliced type of each board, and its MIG family."""


class State(msgspec.Struct, frozen=True):
    """Devices that are allocated together."""

    functions: int
    sliced: int
    backed: raw.State


@cache
def offer(board: str) -> Offer:
    sliced, _ = BOARDS[board]
    gpu = factory.gpu(vgpu_raw.make_gpu(board.split()[0])["name"])
    service = VmService(time_sliced=sliced, mig_backed=True)
    return offered_devices(factory.node(gpu), DriverNaming(), mode_changes="any", vms={gpu.pci: service})


def legal(board: str, state: State) -> bool:
    """Report whether the hardware takes these devices together."""
    product, (sliced, family) = board.split()[0], BOARDS[board]
    if state.functions:
        return state.functions == 1 and not state.sliced and not state.backed
    if state.sliced and state.backed:
        return False
    made: vgpu_raw.State = ()
    for _ in range(state.sliced):
        one = vgpu_raw.create(product, "equal", made, sliced)
        if one is None:
            return False
        made = (*made, one)
    return not state.backed or (raw.legal(family, state.backed) and vgpus_fit(product, family, state.backed))


def vgpus_fit(product: str, family: str, instances: raw.State) -> bool:
    """Report whether every GPU instance of the state gets the vGPU of its profile."""
    rows = {p["name"]: p["id"] for p in raw.table(family)["profiles"]}
    there = tuple((number, rows[name]) for number, (name, _) in enumerate(sorted(instances)))
    made: vgpu_raw.State = ()
    for name, _ in sorted(instances):
        one = vgpu_raw.create(product, "mig", made, backed_types(product)[name], there)
        if one is None:
            return False
        made = (*made, one)
    return True


def backed_types(product: str) -> dict[str, str]:
    """Return the first type that has a GPU instance for itself, by profile."""
    found: dict[str, str] = {}
    for short in vgpu_raw.types(product, "mig-backed"):
        mig = vgpu_raw.make_gpu(product)["by_short"][short]["mig"]
        if mig["max_per_gi"] == 1:
            found.setdefault(mig["profile"], short)
    return found


def chosen(found: Offer, state: State) -> list[DraDevice]:
    whole = [each for each in found.devices if each.whole] * state.functions
    sliced = [each for each in found.devices if each.vgpu and each.profile is None]
    backed = [each for each in found.devices if (each.profile, each.start) in state.backed]
    assert len(backed) == len(state.backed)
    return [*whole, *(sliced * 2)[: state.sliced], *backed]


def admitted(found: Offer, devices: Collection[DraDevice]) -> bool:
    return fits(taken(each.uses for each in devices), {}, found.counter_sets[0].counters)


def placements(found: Offer) -> list[raw.Placed]:
    return [(each.profile, each.start) for each in found.devices if each.profile is not None]


def states(board: str) -> Iterator[State]:
    """Return every number of time-sliced vGPUs, every legal set of placements and random ones, and both mixed."""
    found, family = offer(board), BOARDS[board][1]
    every, most = placements(found), sum(bool(each.vgpu) and each.profile is None for each in found.devices)
    random = dice(f"{board} vm counters")
    sets = {frozenset[raw.Placed](), *(frozenset({one}) for one in every)}
    if every:
        legal_sets = [state for state in raw.states(family) if state <= set(every)]
        sets |= set(legal_sets if len(legal_sets) < 200 else random.sample(legal_sets, samples(200)))
        sets |= {frozenset(random.sample(every, random.randint(2, min(5, len(every))))) for _ in range(samples(150))}
    for backed in sorted(sets, key=sorted):
        counts: Sequence[int] = range(most + 2) if not backed else (0, 1, most)
        for sliced in counts:
            yield from (State(functions, sliced, backed) for functions in (0, 1))
    yield State(2, 0, frozenset())


@pytest.mark.parametrize("board", BOARDS)
def test_the_scheduler_admits_exactly_what_the_hardware_takes_together(board: str) -> None:
    found, both = offer(board), [0, 0]
    for state in states(board):
        expected = legal(board, state)
        assert admitted(found, chosen(found, state)) == expected, state
        both[expected] += 1
    assert both[0] > 3
    assert both[1] > 3


@pytest.mark.parametrize("board", BOARDS)
def test_every_placement_of_a_profile_with_a_type_is_offered(board: str) -> None:
    product, family = board.split()[0], BOARDS[board][1]
    profiles = raw.table(family)["profiles"] if family else ()
    types = backed_types(product)
    expected = {(p["name"], s) for p in profiles if p["name"] in types for s in p["placements"]["starts"]}
    assert set(placements(offer(board))) == expected


@pytest.mark.parametrize("board", BOARDS)
def test_the_planner_accepts_the_fullest_states(board: str) -> None:
    found, gpu = offer(board), factory.gpu(vgpu_raw.make_gpu(board.split()[0])["name"])
    node = factory.node(gpu)
    sliced = [each for each in found.devices if each.vgpu and each.profile is None]
    full = [sliced, *([each] for each in found.devices if each.profile is not None)]
    for devices in full:
        vgpus = tuple(DesiredVgpu(0, each.vgpu) for each in devices)
        backed = tuple(
            DesiredInstance(each.profile_id, each.profile, (compute_of(gpu.family or "", each.profile),), each.start)
            for each in devices
            if each.profile is not None
        )
        desired = DesiredGpu(gpu.pci, mig=bool(backed), instances=backed, vgpus=vgpus)
        if gpu.family is None:
            desired = msgspec.structs.replace(desired, mig=None)
        assert plan(node, Desired((desired,))).blockers == (), devices[0].name


def compute_of(family: str, profile: str) -> int:
    from aliquot.core.model import catalog

    return catalog.family(family).by_name[profile].default_compute.id


@pytest.mark.parametrize("board", BOARDS)
def test_counters_are_within_the_limits_of_the_api(board: str) -> None:
    found = offer(board)
    assert len(found.counter_sets) == 1
    totals = found.counter_sets[0].counters
    assert 0 < len(totals) <= 16
    for each in found.devices:
        assert each.counter_set == found.counter_sets[0].name
        assert 0 < len(each.uses) <= 32
        assert all(0 < count <= totals[name] for name, count in each.uses.items())
