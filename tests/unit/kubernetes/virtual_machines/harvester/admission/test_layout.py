"""Layout rule against the data that agents publish: the same values, and no refusal of a layout that fits."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, GpuInstance, Mig
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import PlacedInstance, compiled_table
from aliquot.core.planner.rules import allowed
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    MigConfigurationSpec,
    MigConfigurationStatus,
    MigProfileSpec,
    MigProfileStatus,
    PCIDevice,
    PCIDeviceStatus,
)
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_layout as layout
from aliquot.kubernetes.virtual_machines.harvester.mig_configurations import creatable

FAMILIES = ("a100-40gb", "a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb")


def some(family: Family, most: int, seed: int = 7) -> list[tuple[PlacedInstance, ...]]:
    every = [state for states in layout._layouts_by_capacity(family.name).values() for state in states]
    return random.Random(seed).sample(every, min(most, len(every)))


def gpu(family: Family, state: tuple[PlacedInstance, ...]) -> Gpu:
    made = tuple(
        GpuInstance(id=n, profile="", profile_id=p, placement=str(family.by_id[p].placement(start)))
        for n, (p, start) in enumerate(state)
    )
    return Gpu(pci="0000:01:00.0", uuid="", index=0, product="", mig=Mig(True, "enabled", "enabled"), instances=made)


def desired_state(family: Family, state: tuple[PlacedInstance, ...], counts: Counter[int]) -> MigConfiguration:
    """Build a MigConfiguration that was disabled until now, with instances that other programs created."""
    here = gpu(family, state)
    asked = tuple(MigProfileSpec(p.id, f"MIG {p.name}", counts[p.id]) for p in family.profiles)
    reported = tuple(
        MigProfileStatus(creatable(family, here, p.id), p.id, f"MIG {p.name}", p.max_instances) for p in family.profiles
    )
    return MigConfiguration(
        spec=MigConfigurationSpec(profile_spec=asked), status=MigConfigurationStatus(profile_status=reported)
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_the_figures_are_those_that_agents_publish(name: str) -> None:
    family = catalog.family(name)
    b = compiled_table(family)
    for state in some(family, 60):
        theirs = tuple(sorted((p.id, creatable(family, gpu(family, state), p.id)) for p in family.profiles))
        assert layout._capacities(b, state, b.mask(state)) == theirs, state


@pytest.mark.parametrize("name", FAMILIES)
def test_what_can_be_placed_is_never_refused_and_what_cannot_hardly_ever_passes(name: str) -> None:
    family, dice = catalog.family(name), random.Random(3)
    b = compiled_table(family)
    wrong = right = 0
    for state in some(family, 40):
        for wanted in some(family, 12, dice.randrange(1000)):
            counts = Counter(p for p, _ in wanted)
            both = counts + Counter(p for p, _ in state)
            fits = allowed(b, both) and next(pack.arrangements(b, both, state), None) is not None
            answer = layout.why_not_now(desired_state(family, state, counts), family)
            if fits:
                assert answer == "", (state, wanted, answer)
            elif answer:
                right += 1
            else:
                wrong += 1
    assert right > 10 * wrong, (right, wrong)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_empty_gpu_takes_exactly_what_its_tables_allow(name: str) -> None:
    family, dice = catalog.family(name), random.Random(5)
    b = compiled_table(family)
    for _ in range(150):
        counts = Counter(dice.choices([p.id for p in family.profiles], k=dice.randint(1, 5)))
        fits = allowed(b, counts) and next(pack.arrangements(b, counts), None) is not None
        one = desired_state(family, (), counts)
        assert (layout.why_impossible(one, family) == "") == fits, counts
        assert fits == (layout.why_impossible(one, family) == "" and layout.why_not_now(one, family) == "")


def test_the_table_is_that_of_the_board_whose_totals_the_driver_reported() -> None:
    layout_gpu = PCIDevice(status=PCIDeviceStatus(vendor_id="10de", device_id="20b0"))
    a100, a30 = catalog.family("a100-40gb"), catalog.family("a30-24gb")
    found = layout.family_of(desired_state(a100, (), Counter()), layout_gpu)
    assert found is not None
    assert found.name == "a100-40gb"
    assert layout.family_of(desired_state(a30, (), Counter()), layout_gpu) is None
    assert layout.family_of(desired_state(a100, (), Counter()), None) is None
