"""Findings about the API server: its release, and the feature gates that show in what it keeps of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.cli.doctor.finding import DoctorFinding, first_names
from aliquot.cli.dra.check_facts import (
    EXTENDED,
    EXTENDED_STEP,
    PARTITIONABLE,
    PARTITIONABLE_STEP,
    TAINTS,
    DraFacts,
    resource_was_dropped,
)

SERVER = "API server"
FIRST, _GATES_ON = (1, 34), (1, 36)
"""The first release with ``resource.k8s.io/v1``, and the first with the feature gates on by default."""


def server_findings(facts: DraFacts) -> Iterator[DoctorFinding]:
    """Check the release, and what the server dropped from slices and device classes."""
    if facts.version is not None:
        yield _release(facts)
    unseen = [TAINTS]
    for gate, finding in ((PARTITIONABLE, _counters(facts)), (EXTENDED, _resource_names(facts))):
        if finding is None:
            unseen.insert(0, gate)
        else:
            yield finding
    if any(device.taints for slices in facts.own.values() for each in slices for device in each.spec.devices):
        unseen.remove(TAINTS)
    gates = f"{', '.join(unseen)} of the API server, and " if unseen else ""
    message = (
        f"no object shows these feature gates: {gates}those of scheduler and kubelets. From 1.36 they are on by default"
    )
    yield DoctorFinding(SERVER, "UNSEEN_GATES", "note", message, next_step="kubectl get --raw /metrics")


def _release(facts: DraFacts) -> DoctorFinding:
    release, named = facts.release, f"Kubernetes {facts.version}"
    step = "upgrade the control plane to Kubernetes 1.36"
    if release == (0, 0):
        return DoctorFinding(SERVER, "SERVER_VERSION", "note", f"{named}: the release is not known", "kubectl version")
    if release < FIRST:
        message = f"{named}: Aliquot needs resource.k8s.io/v1, which 1.34 brought"
        return DoctorFinding(SERVER, "SERVER_VERSION", "problem", message, step)
    if release < _GATES_ON:
        message = f"{named} has these feature gates off by default: {PARTITIONABLE}, {EXTENDED}, {TAINTS}"
        gates = f"{PARTITIONABLE}=true,{EXTENDED}=true,{TAINTS}=true"
        return DoctorFinding(
            SERVER, "SERVER_VERSION", "note", message, f"set --feature-gates={gates} on the control plane and kubelets"
        )
    return DoctorFinding(SERVER, "SERVER_VERSION", "ok", named)


def _counters(facts: DraFacts) -> DoctorFinding | None:
    """Return whether the server keeps counters. None if no MIG device is published: only those always have some."""
    mig = {
        node: [device for each in slices for device in each.spec.devices if "profile" in device.attributes]
        for node, slices in facts.own.items()
    }
    without = sorted(node for node, devices in mig.items() if any(not d.consumes_counters for d in devices))
    if without:
        message = (
            f"the slices of {first_names(without)} have MIG devices without counters: the API server dropped them, so "
            f"claims can get one GPU twice. Its feature gate {PARTITIONABLE} is off, or was when they were written"
        )
        return DoctorFinding(SERVER, "PARTITIONABLE_DEVICES", "problem", message, PARTITIONABLE_STEP)
    if any(mig.values()):
        message = f"the API server kept the counters of MIG devices ({PARTITIONABLE})"
        return DoctorFinding(SERVER, "PARTITIONABLE_DEVICES", "ok", message)
    return None


def _resource_names(facts: DraFacts) -> DoctorFinding | None:
    """Return whether the server keeps resource names of classes. None if no class shows it."""
    dropped = sorted(each.name for each in facts.classes or () if resource_was_dropped(each))
    if dropped:
        message = (
            f"the API server dropped extendedResourceName from {first_names(dropped)}, so pods that request the "
            f"resource get no claim. Its feature gate {EXTENDED} is off, or was when they were written"
        )
        return DoctorFinding(SERVER, "EXTENDED_RESOURCES", "problem", message, EXTENDED_STEP)
    if any(each.spec.extended_resource_name for each in facts.classes or ()):
        message = f"the API server kept the resource names of device classes ({EXTENDED})"
        return DoctorFinding(SERVER, "EXTENDED_RESOURCES", "ok", message)
    return None
