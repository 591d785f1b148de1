"""Rules for VGPUPools: the type must exist. Whether its vGPUs fit shows in the pool's condition, and may change."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from aliquot.core.model.vgpu_types import tables
from aliquot.errors import Message
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit


def create(edit: ObjectEdit[VGPUPool], new: VGPUPool, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if why := explain_unknown_type(new.spec.type_name):
        yield Message(why)


def update(edit: ObjectEdit[VGPUPool], old: VGPUPool, new: VGPUPool, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Check a changed type. One that was written before does not hold up other changes."""
    if new.spec.type_name != old.spec.type_name:
        yield from create(edit, new, snapshot)


def delete(edit: ObjectEdit[VGPUPool], old: VGPUPool, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    yield from ()


def explain_unknown_type(name: str) -> str:
    """Return a sentence with near names if no board has a type of this name; "" otherwise."""
    known = {each.name for found in tables() for each in found.types}
    if name in known:
        return ""
    without_brand = sorted(each for each in known if each.split(" ", 1)[-1] == name)
    near = without_brand or difflib.get_close_matches(name, sorted(known), 3, 0.6)
    verb = "is" if len(near) == 1 else "are"
    return f"no board has a vGPU type {name}" + (f"; near it {verb} {', '.join(near)}" if near else "")
