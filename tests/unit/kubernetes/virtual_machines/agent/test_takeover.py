"""Detection of Harvester's own agent on this node, whatever its pod is called."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.client.objects import Node, ObjectMeta, OwnerReference, Pod, PodStatus
from aliquot.kubernetes.virtual_machines.agent.pcidevices_conflict import pcidevices_conflict, pcidevices_pod

OWNER = OwnerReference("DaemonSet", "harvester-pcidevices-controller")


def pod(labels: dict[str, str] | None = None, owners: tuple[OwnerReference, ...] = (), phase: str = "Running") -> Pod:
    meta = ObjectMeta(name="p", namespace="harvester-system", labels=labels or {}, owner_references=owners)
    return Pod(metadata=meta, status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    "theirs",
    [
        pod(owners=(OWNER,)),
        pod({"app.kubernetes.io/name": "harvester-pcidevices-controller"}),
        pod({"app.kubernetes.io/name": "pcidevices"}),
        pod(owners=(OWNER,), phase="Pending"),
    ],
    ids=["owned", "labelled", "labelled as before", "about to start"],
)
def test_theirs(theirs: Pod) -> None:
    assert pcidevices_pod([pod({"app": "x"}), theirs]) == theirs


@pytest.mark.parametrize(
    "other",
    [
        pod({"app.kubernetes.io/name": "aliquot"}),
        pod(owners=(OwnerReference("DaemonSet", "nvidia-driver-daemonset"),)),
        pod(owners=(OWNER,), phase="Failed"),
        pod(owners=(OwnerReference("Job", "harvester-pcidevices-controller"),)),
    ],
    ids=["ours", "the driver", "ended", "a job of the name"],
)
def test_others(other: Pod) -> None:
    assert pcidevices_pod([other]) is None


@pytest.mark.parametrize(
    ("labels", "step"),
    [
        ({}, "kubectl label node one aliquot.dev/without-pcidevices=true"),
        ({"aliquot.dev/without-pcidevices": "true"}, "optional/beside-pcidevices.yaml"),
    ],
    ids=["not labeled", "labeled, and the DaemonSet does not know"],
)
def test_the_next_step_is_what_is_missing(labels: dict[str, str], step: str) -> None:
    node = Node(metadata=ObjectMeta(name="one", labels=labels))
    why = pcidevices_conflict([pod(owners=(OWNER,))], node)
    assert step in str(why).partition("next:")[2]
    assert ("label node" in str(why)) == (not labels)
    assert pcidevices_conflict([pod({"app": "x"})], node) is None
