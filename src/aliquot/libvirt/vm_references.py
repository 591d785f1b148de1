"""VMs that are shut off and whose definition names a vGPU that a plan destroys. No process holds it, so it is idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.actions import CreateVgpu, DestroyVgpu
from aliquot.core.model.plan import Plan
from aliquot.libvirt.models import LibvirtDomain


def with_references(plan: Plan, domains: Sequence[LibvirtDomain]) -> Plan:
    """Return the plan with a note for each vGPU that it destroys or replaces and that a shut-off VM uses."""
    return msgspec.structs.replace(plan, notes=(*plan.notes, *_notes(plan, domains)))


def _notes(plan: Plan, domains: Sequence[LibvirtDomain]) -> Iterator[str]:
    shut_off = sorted((d for d in domains if not d.running), key=lambda d: d.name)
    for action in plan.actions:
        if isinstance(action, DestroyVgpu):
            names = _names(action)
            users = {d.name: h.key for d in shut_off for h in d.hostdevs if h.key in names}
            then = next((a.type for a in plan.actions if isinstance(a, CreateVgpu) and names & _names(a)), None)
            end = f"is replaced by {then}" if then else "is destroyed"
            if users:
                vms = f"{', '.join(users)} (shut off)"
                vms = f"VM {vms} uses" if len(users) == 1 else f"VMs {vms} use"
                yield f"{vms} {action.type} ({next(iter(users.values()))}), which {end}"


def _names(action: DestroyVgpu | CreateVgpu) -> set[str]:
    """Return the names of a vGPU in definitions of VMs. The GPU of mdevs of the GPU itself is not one of them."""
    return {action.uuid, action.function} - {action.gpu, ""}
