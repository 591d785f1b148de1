"""Predictions against results: random desired states, applied on a simulated node that has its own facts."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import labels
from aliquot.kubernetes.gpu.prediction import predict
from aliquot.sim.template import slug
from laws.property import strategies
from support.selection import laws
from support.simnodes import Node

LAWS = laws(120)
FAMILIES = (*strategies.FAMILIES, "h100-94gb", "b200-180gb")
ESTIMATED = (".multiprocessors", ".memory")
"""Label suffixes that a prediction omits: the simulator estimates their values if the catalog has no row."""


def complete(family: str | None) -> bool:
    """Report whether the catalog has every value of a family that a label contains."""
    table = catalog.family(family).profiles if family else ()
    return all(p.memory_mib and all(c.sm for c in p.compute) for p in table)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, Desired]:
    """Draw a node of two products, maybe with a GPU that cannot be partitioned, after a first request. Return it with a
    second request, sometimes for one GPU only.
    """
    families = [draw(st.sampled_from(FAMILIES)) for _ in range(2)]
    if draw(st.booleans()):
        families[1] = families[0]
    template = [slug(catalog.family(name).products[0].name) for name in families]
    node = Node(",".join(template + draw(st.sampled_from(([], ["tesla-t4"])))))
    pcis = [gpu.pci for gpu in node.backend.read().gpus]
    first, second = (
        [draw(strategies.requests(name, pci)) for name, pci in zip(families, pcis, strict=False)] for _ in range(2)
    )
    node.apply(Desired(tuple(first)))
    return node, Desired(tuple(second[: draw(st.integers(1, 2))]), name="case")


@LAWS
@given(nodes(), st.sampled_from(("none", "single", "mixed")))
def test_labels_and_counts_are_as_predicted(case: tuple[Node, Desired], strategy: MigStrategy) -> None:
    node, desired = case
    inventory, facts = node.read()
    reported, blind = predict(inventory, desired, strategy, facts), predict(inventory, desired, strategy)
    assert node.apply(desired).status in ("done", "nothing")

    inventory, facts = node.read()
    came: dict[str, Any] = labels(inventory, facts, strategy, now=1)
    del came["nvidia.com/gfd.timestamp"]
    missing = set(came) - set(reported.labels)
    assert reported.labels == {name: value for name, value in came.items() if name not in missing}
    assert all(name.endswith(ESTIMATED) for name in missing)
    assert not (missing and all(complete(gpu.family) for gpu in inventory.gpus))
    assert blind.labels.items() <= came.items()

    offered = offer(inventory, facts, strategy)
    assert reported.resources == blind.resources == {r.name: len(r.devices) for r in offered.resources}
    nothing_for_pods = strategy == "none" or (strategy == "single" and not offered.resources)
    assert bool(reported.refusals) == (bool(facts.mig_devices) and nothing_for_pods)
    assert msgspec.json.decode(msgspec.json.encode(reported), type=type(reported)) == reported
