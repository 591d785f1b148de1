"""Findings about device classes: what pods can request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aliquot.cli.doctor.finding import DoctorFinding, Status, first_names
from aliquot.cli.dra.check_facts import DraFacts, resource_was_dropped
from aliquot.kubernetes.dra.model.device_classes import (
    device_classes,
    preferred_class,
    published_profiles,
    vm_classes,
)
from aliquot.kubernetes.dra.model.naming import OWN_DRIVER
from aliquot.kubernetes.dra.model.objects import DeviceClass

CLASSES = "device classes"


def class_findings(facts: DraFacts) -> Iterator[DoctorFinding]:
    """Compare the classes with those that ``aliquot dra classes`` prints for what the nodes publish."""
    if facts.classes is None:
        return
    found = [*_same_resource(facts.classes), *_compared(facts, facts.classes)]
    yield from found or [DoctorFinding(CLASSES, "CLASSES", "ok", f"every class of {facts.naming.driver} is there")]


def _compared(facts: DraFacts, classes: Sequence[DeviceClass]) -> Iterator[DoctorFinding]:
    if not facts.own:
        yield DoctorFinding(
            CLASSES, "CLASSES", "note", "not compared: without devices of the driver the profiles are not known"
        )
        return
    present = {each.name: each for each in classes}
    own = [each for slices in facts.own.values() for each in slices]
    wanted = (*device_classes(facts.naming, published_profiles(own)), *vm_classes(facts.naming, own))
    missing = [each.name for each in wanted if each.name not in present]
    if missing:
        status: Status = "problem" if len(missing) == len(wanted) else "note"
        message = f"missing, so nothing can request them: {first_names(missing)}. Print the classes, then apply them"
        yield DoctorFinding(CLASSES, "CLASSES", status, message, next_step=_print_command(facts))
    named = [(each, present[each.name]) for each in wanted if each.name in present and each.spec.extended_resource_name]
    without = [
        each.name for each, here in named if not here.spec.extended_resource_name and not resource_was_dropped(here)
    ]
    if without:
        message = (
            f"without a resource name, so that only claims reach them: {first_names(without)}. They were printed with "
            "--claims-only, or the API server dropped the name"
        )
        yield DoctorFinding(CLASSES, "RESOURCE_NAMES", "note", message, next_step=_print_command(facts))
    for each, here in named:
        name, other = each.spec.extended_resource_name, here.spec.extended_resource_name
        if other and other != name:
            message = f"class {each.name} has the resource {other}, so pods that request {name} do not get its devices"
            yield DoctorFinding(CLASSES, "RESOURCE_NAMES", "problem", message, next_step=_print_command(facts))


def _print_command(facts: DraFacts) -> str:
    own = facts.naming.driver == OWN_DRIVER
    return f"aliquot dra classes{'' if own else f' --dra-driver {facts.naming.driver}'}"


def _same_resource(classes: Sequence[DeviceClass]) -> Iterator[DoctorFinding]:
    """Find classes with the same resource name. The API server prefers the one that was created last."""
    by_resource: dict[str, list[DeviceClass]] = {}
    for each in classes:
        if each.spec.extended_resource_name:
            by_resource.setdefault(each.spec.extended_resource_name, []).append(each)
    for resource, group in sorted(by_resource.items()):
        if len(group) > 1:
            ordered = sorted(group, key=lambda each: each.name)
            chosen = preferred_class(ordered)
            names = " and ".join(each.name for each in ordered)
            message = f"{names} have the same resource {resource}: pods that request it get {chosen.name}"
            step = f"kubectl get deviceclasses {' '.join(each.name for each in ordered)} -o yaml"
            yield DoctorFinding(CLASSES, "SAME_RESOURCE", "problem", message, next_step=step)
