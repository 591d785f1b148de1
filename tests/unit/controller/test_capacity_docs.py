"""docs/capacity.md says what the program says."""

from __future__ import annotations

from pathlib import Path

from aliquot.cli import capacityview
from aliquot.controller.devices.figures import NAME
from aliquot.integrations.kubernetes.kubevirt import poll
from aliquot.integrations.kubernetes.kubevirt.capacity import Seen, measure
from aliquot.integrations.kubernetes.kubevirt.demands import CLUSTER_LABEL, POOL_LABEL, Demand
from aliquot.integrations.kubernetes.kubevirt.fit import fit
from unit.controller.test_capacity_pages import ask, made
from unit.kubernetes.kubevirt.machines import A2_4Q, instance, machine, node

PAGE = (Path(__file__).resolve().parents[3] / "docs/capacity.md").read_text()
SEEN = Seen(
    (node("n1", {A2_4Q: 2}), node("n2", {A2_4Q: 1})),
    machines=(machine("db", A2_4Q),),
    instances=(instance("web", "n1", A2_4Q),),
)


def test_the_example_is_what_the_command_prints() -> None:
    lines = capacityview.text(measure(SEEN)).splitlines()
    assert "\n".join(f"    {line}" for line in lines) in PAGE


def test_the_refusal_is_what_the_command_prints() -> None:
    found = fit(measure(SEEN), [Demand("default", f"m{n}", {A2_4Q: 2}) for n in range(3)])
    assert f"blocked[BLOCKED]: {found.sentence}\n" in PAGE


def test_every_field_and_every_name_is_on_the_page() -> None:
    document = poll.document(measure(SEEN))
    names = {*document, *document["resources"][0], *document["resources"][0]["nodes"][0]}
    names |= {*ask(made(), "/v1/capacity/fit", resource=A2_4Q)[1], NAME, CLUSTER_LABEL, POOL_LABEL}
    assert not [each for each in names if each not in PAGE]
