"""Names in docs/capacity.md are checked here. The tests of the docs run its commands."""

from __future__ import annotations

from pathlib import Path

from aliquot.cli.views import capacity_view as capacityview
from aliquot.kubernetes.virtual_machines.controller.capacity_metrics import CLAIMED, NAME
from aliquot.kubernetes.virtual_machines.kubevirt import capacity_document as poll
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimClassCapacity
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL, POOL_LABEL, VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import fit
from unit.kubernetes.virtual_machines.controller.test_capacity_pages import ask, made
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4Q, instance, machine, node

PAGE = (Path(__file__).resolve().parents[5] / "docs/capacity.md").read_text()
SEEN = ClusterObservation(
    (node("n1", {A2_4Q: 2}), node("n2", {A2_4Q: 1})),
    vms=(machine("db", A2_4Q),),
    instances=(instance("web", "n1", A2_4Q),),
)


def test_who_has_one_and_who_waits_is_printed_below_the_counts() -> None:
    assert capacityview.text(measure(SEEN)).splitlines() == [
        "RESOURCE                 TOTAL  USABLE  ALLOCATED  WAITING  ALLOCATABLE",
        "nvidia.com/NVIDIA_A2-4Q      3       3          1        1            1",
        "  n1                         2       2          1                     1",
        "  n2                         1       1          0                     1",
        "default/web has 1 of nvidia.com/NVIDIA_A2-4Q on n1",
        "default/db waits for 1 of nvidia.com/NVIDIA_A2-4Q",
    ]


def test_a_refusal_says_what_is_asked_there_taken_and_waited_for() -> None:
    found = fit(measure(SEEN), [VmDemand("default", f"m{n}", {A2_4Q: 2}) for n in range(3)])
    assert found.sentence == (
        f"6 of {A2_4Q} are requested, 1 can still be allocated (3 in the cluster, 1 allocated, 1 pending)"
    )


def test_every_field_and_every_name_is_on_the_page() -> None:
    document = poll.document(measure(SEEN), "", [ClaimClassCapacity("vgpu")])
    names = {*document, *document["resources"][0], *document["resources"][0]["nodes"][0]}
    names |= {*document["deviceClasses"][0], CLAIMED}
    names |= {*ask(made(), "/v1/capacity/fit", resource=A2_4Q)[1], NAME, CLUSTER_LABEL, POOL_LABEL}
    assert not [each for each in names if each not in PAGE]
