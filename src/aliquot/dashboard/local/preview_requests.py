"""From what a person asks to its preview, given a fresh look at each node that it concerns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.desired import Desired, Fault
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import (
    POLICIES,
    AnyAsk,
    Attach,
    Cut,
    Detach,
    MakeRoom,
    Repair,
    SetFunctions,
    SetLayout,
    SetVgpus,
    UseConfig,
)
from aliquot.dashboard.local import desired_state as wishes
from aliquot.dashboard.local import previews
from aliquot.dashboard.local.node_access import Seen
from aliquot.dashboard.local.previews import Address, Planned
from aliquot.dashboard.view_models import Preview
from aliquot.errors import AliquotError, BlockedError, ConfigError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile

LONGEST_S = 3600.0


def nodes_of(ask: AnyAsk) -> tuple[str, ...]:
    """The nodes that an ask is about, each once. Raises UsageError for one that is about none."""
    match ask:
        case SetFunctions():
            found = tuple(dict.fromkeys(node for node, _ in map(_split, ask.gpus)))
        case SetVgpus():
            found = tuple(dict.fromkeys(node for node, _ in map(_split, ask.places)))
        case UseConfig():
            found = tuple(dict.fromkeys(ask.nodes))
        case _:
            found = (ask.node,)
    if not found:
        raise UsageError("nothing is chosen: tick at least one")
    return found


def _split(word: str) -> tuple[str, str]:
    """``node/name``. Raises UsageError."""
    node, slash, name = word.partition("/")
    if not (slash and node and name):
        raise UsageError(f"{word!r} is not NODE/NAME")
    return node, name


def policy(ask: AnyAsk) -> Policy:
    """What may be done to held instances. Raises UsageError."""
    if ask.policy not in POLICIES:
        raise UsageError(f"{ask.policy!r} is no policy for held instances; there are: {', '.join(POLICIES)}")
    if not 0 <= ask.timeout_s <= LONGEST_S:
        raise UsageError(f"the time to wait is 0 to {LONGEST_S:.0f} seconds")
    return Policy(held=ask.policy, timeout_s=ask.timeout_s)


def preview(ask: AnyAsk, seen: Mapping[str, Seen], file: ConfigFile | None, address: Address) -> Preview:
    """What it comes to for the nodes that were ``seen``. Raises AliquotError for what is wrong on every machine; what
    is not possible here or now is in the obstacles. A GPU that is not there any more is one of these.
    """
    rules = policy(ask)
    planned = []
    for node in nodes_of(ask):
        if node not in seen:
            continue
        look = seen[node]
        try:
            desired = wish(ask, node, look, file)
        except BlockedError as error:
            desired = Desired((), faults=(Fault(error.code, _told(error), next_step=error.next_step),))
        planned.append(Planned(node, plan(look.inventory, desired, rules), look.inventory))
    extra = []
    if isinstance(ask, MakeRoom) and planned and planned[0].plan.blocked and ask.policy == "refuse":
        other = previews.instead(ask, planned[0].inventory, address)
        extra = [other] if other is not None else []
    made = previews.preview(title(ask), planned, address)
    return msgspec.structs.replace(made, obstacles=(*made.obstacles, *extra))


def _told(error: AliquotError) -> str:
    return "; ".join((error.brief, *error.details))


def wish(ask: AnyAsk, node: str, seen: Seen, file: ConfigFile | None) -> Desired:
    """The wish of one ask for one node."""
    inventory = seen.inventory
    match ask:
        case Cut():
            return wishes.cut(ask, inventory)
        case MakeRoom():
            return wishes.room(ask, inventory)
        case SetLayout():
            return wishes.layout(ask, inventory)
        case SetFunctions():
            return wishes.functions(_mine(ask.gpus, node), ask.on, inventory)
        case SetVgpus():
            return wishes.vgpus(_mine(ask.places, node), ask.type, inventory)
        case UseConfig():
            if file is None:
                raise ConfigError("this page was started without a config file: give it one with --file")
            return wishes.config(file, ask.config, inventory)
        case Repair():
            if not seen.kept:
                raise ConfigError("nothing is recorded to go back to: nobody has asked for anything yet")
            return wishes.repair(seen.kept, inventory)
        case Attach() | Detach():
            raise AssertionError("machines are asked of libvirt, not of the planner")


def _mine(words: Sequence[str], node: str) -> tuple[str, ...]:
    return tuple(name for where, name in map(_split, words) if where == node)


def title(ask: AnyAsk) -> str:
    """An ask in a few words."""
    match ask:
        case Cut():
            where = f"GPU {ask.gpu} of {ask.node}"
            whole = {"empty": f"Destroy all instances of {where}", "disabled": f"Switch MIG mode off on {where}"}
            return whole.get(ask.mig.strip(), f"Cut {where} into {ask.mig}")
        case MakeRoom():
            return f"Make room for one more {ask.profile} on GPU {ask.gpu} of {ask.node}"
        case SetLayout():
            return f"{'Set' if ask.enabled else 'Switch off'} the MIG configuration of GPU {ask.gpu} of {ask.node}"
        case SetFunctions():
            return f"Switch virtual functions {'on' if ask.on else 'off'}: {_some(ask.gpus, 'GPU')}"
        case SetVgpus():
            what = f"Make {shares.short(ask.type)}" if ask.type else "Destroy the vGPU"
            return f"{what} on {_some(ask.places, 'place')}"
        case UseConfig():
            return f'Use the named config "{ask.config}" on {_some(ask.nodes, "node")}'
        case Repair():
            return f"Bring {ask.node} back to what was asked last"
        case Attach():
            return f"Attach {_some(ask.devices, 'device')} to {ask.machine}"
        case Detach():
            return f"Detach {_some(ask.devices, 'device')} from {ask.machine}"


def _some(words: Sequence[str], what: str) -> str:
    return words[0] if len(words) == 1 else f"{len(words)} {what}s"
