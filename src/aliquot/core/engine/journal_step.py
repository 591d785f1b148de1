"""A driver call as the journal names it (``create gi 1g.5gb 0:1``), read back into values here and nowhere else."""

from __future__ import annotations

import msgspec


class JournalStep(msgspec.Struct, frozen=True):
    """``verb`` is create, destroy, mode, functions, mixed-size, passthrough or reset, ``argument`` all that follows it.
    ``kind`` is what is created or destroyed: gi, ci or vgpu. ``name`` is its profile or vGPU type, ``instance`` the id
    of the GPU instance around a compute instance. What a step does not have, or another version wrote, is "".
    """

    verb: str
    argument: str = ""
    kind: str = ""
    name: str = ""
    placement: str = ""
    instance: str = ""
    function: str = ""


def read_step(text: str) -> JournalStep:
    """Return the values of a step; of one that this version does not know, only its verb and the rest."""
    verb, _, argument = text.partition(" ")
    words = argument.split(" ")
    if verb == "passthrough" and len(words) > 1:
        return JournalStep(verb, words[0], function=words[1])
    if verb not in ("create", "destroy"):
        return JournalStep(verb, argument)
    match words:
        case ["gi", *_, profile, placement]:
            return JournalStep(verb, argument, "gi", profile, placement)
        case ["ci", where, *placement]:
            return JournalStep(verb, argument, "ci", "", " ".join(placement), where.partition("/")[0])
        case ["vgpu", *name, function, _]:
            return JournalStep(verb, argument, "vgpu", " ".join(name), function=function)
        case _:
            return JournalStep(verb, argument)
