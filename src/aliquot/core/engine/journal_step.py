"""Driver calls as steps of the journal (``create gi 1g.5gb 0:1``): built, written and parsed only here."""

from __future__ import annotations

import msgspec

from aliquot.core.model.actions import (
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.inventory import Vgpu

SteppedAction = (
    Create
    | CreateCompute
    | CreateVgpu
    | Destroy
    | DestroyCompute
    | Reset
    | SetFunctions
    | SetMixedSize
    | SetMode
    | SetPassthrough
    | SetScheduler
)
"""The actions that define their call completely. A vGPU is destroyed as it was observed."""


class JournalStep(msgspec.Struct, frozen=True):
    """A step of the journal. Parts that a step does not have are ""."""

    verb: str
    """create, destroy, mode, functions, mixed-size, scheduler, passthrough or reset."""
    argument: str = ""
    """The argument of a verb other than create and destroy."""
    kind: str = ""
    """The kind of what is created or destroyed: gi, ci or vgpu."""
    name: str = ""
    """A profile or a vGPU type."""
    placement: str = ""
    instance: str = ""
    """The id of a GPU instance."""
    compute: str = ""
    """The id of a compute instance; in a creation, that of its profile."""
    function: str = ""
    uuid: str = ""

    def __str__(self) -> str:
        """Return the step as the journal records it."""
        match self.kind:
            case "gi":
                words = [self.instance, self.name, self.placement]
            case "ci":
                words = [f"{self.instance}/{self.compute}", self.placement]
            case "vgpu":  # without a UUID it ends with a blank, as in older journals
                return f"{self.verb} vgpu {self.name} {self.function} {self.uuid}"
            case _:
                words = [self.argument, self.function]
        return " ".join(filter(None, [self.verb, self.kind, *words]))


def step_of(action: SteppedAction) -> JournalStep:
    """Return the call that executes an action."""
    match action:
        case Create():
            return JournalStep("create", kind="gi", name=action.profile, placement=action.placement)
        case Destroy():
            instance = str(action.instance)
            return JournalStep("destroy", kind="gi", instance=instance, name=action.profile, placement=action.placement)
        case CreateCompute():
            inside, profile = str(action.instance), str(action.profile_id)
            return JournalStep("create", kind="ci", instance=inside, compute=profile, placement=action.placement or "")
        case DestroyCompute():
            return destruction_of_compute(action.instance, action.compute_instance)
        case CreateVgpu():
            return JournalStep("create", kind="vgpu", name=action.type, function=action.function, uuid=action.uuid)
        case _:
            return _setting(action)


def _setting(action: Reset | SetFunctions | SetMixedSize | SetMode | SetPassthrough | SetScheduler) -> JournalStep:
    match action:
        case SetMode():
            return JournalStep("mode", action.mode)
        case SetFunctions():
            return JournalStep("functions", str(action.count))
        case SetMixedSize():
            return JournalStep("mixed-size", _on_off(action.on))
        case SetScheduler():
            return JournalStep("scheduler", action.scheduler)
        case SetPassthrough():
            return JournalStep("passthrough", _on_off(action.on), function=action.function)
        case Reset():
            return JournalStep("reset")


def destruction_of_compute(instance: int, compute: int) -> JournalStep:
    """Return the call that destroys a compute instance, also as a part of destroying its GPU instance."""
    return JournalStep("destroy", kind="ci", instance=str(instance), compute=str(compute))


def destruction_of_vgpu(vgpu: Vgpu) -> JournalStep:
    """Return the call that destroys a vGPU as it was observed."""
    return JournalStep("destroy", kind="vgpu", name=vgpu.type, function=vgpu.function, uuid=vgpu.uuid)


def _on_off(on: bool) -> str:
    return "on" if on else "off"


def read_step(text: str) -> JournalStep:
    """Parse a step. One that this version does not know becomes its verb and the rest as the argument."""
    verb, _, argument = text.partition(" ")
    words = argument.split(" ")
    if verb == "passthrough" and len(words) > 1:
        return JournalStep(verb, words[0], function=words[1])
    if verb not in ("create", "destroy"):
        return JournalStep(verb, argument)
    match words:
        case ["gi", *before, profile, placement]:
            return JournalStep(verb, kind="gi", name=profile, placement=placement, instance=" ".join(before))
        case ["ci", where, *placement]:
            instance, _, compute = where.partition("/")
            return JournalStep(verb, kind="ci", placement=" ".join(placement), instance=instance, compute=compute)
        case ["vgpu", *name, function, uuid]:
            return JournalStep(verb, kind="vgpu", name=" ".join(name), function=function, uuid=uuid)
        case _:
            return JournalStep(verb, argument)
