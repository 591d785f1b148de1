"""The instance that a drift concerns, as values: a page draws it without parsing a sentence."""

from __future__ import annotations

from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.plan import Drift, DriftInstance
from aliquot.core.planner.verify import verify
from support import factory

A100 = catalog.family("a100-40gb")


def _requested(name: str, start: int | None) -> DesiredInstance:
    profile = A100.by_name[name]
    return DesiredInstance(profile.id, name, (profile.default_compute.id,), start)


def _drift(*wanted: DesiredInstance) -> list[Drift]:
    inventory = factory.with_instances(factory.inventory("a100-sxm4-40gb", enabled=True), 0, "1g.5gb@2")
    pci = inventory.gpus[0].pci
    return list(verify(inventory, Desired((DesiredGpu(pci=pci, mig=True, instances=wanted),))))


def test_an_instance_that_is_missing_is_named_with_its_place_where_one_was_asked() -> None:
    placed, anywhere, extra = _drift(_requested("3g.20gb", 4), _requested("2g.10gb", None))
    assert (placed.kind, placed.instance) == ("missing", DriftInstance("3g.20gb", "4:4"))
    assert (anywhere.kind, anywhere.instance) == ("missing", DriftInstance("2g.10gb"))
    assert extra.kind == "extra"


def test_an_instance_that_should_not_be_there_is_named_by_its_id() -> None:
    (extra,) = _drift()
    assert extra.kind == "extra"
    assert isinstance(extra.instance, DriftInstance)
    assert (extra.instance.profile, extra.instance.placement) == ("1g.5gb", "2:1")
    assert f"(id {extra.instance.id}) should not be there" in extra.message
