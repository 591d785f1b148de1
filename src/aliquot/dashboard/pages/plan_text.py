"""A plan as text: its summary sentence, the label of its button, and the text for a ticket."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.placement import Placement
from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import ActionLine, ChangePreview

MOST_NAMED = 3
"""If there are more, only their number and letters are shown."""


def promise(preview: ChangePreview) -> str:
    """Summarize what the plan changes and what stays."""
    moved = moves(preview.actions)
    moved_actions = [action for pair in moved for action in pair]
    phrases = [*_moved(moved), *_phrases([action for action in preview.actions if action not in moved_actions])]
    rest = "Everything else stays as it is."
    if preview.kept:
        rest = f"{words.number(preview.kept, 'instance')} {'stays' if preview.kept == 1 else 'stay'} untouched."
    return f"This will {words.listed(phrases)}{_where(preview)}. {rest}" if phrases else ""


def moves(actions: Sequence[ActionLine]) -> tuple[tuple[ActionLine, ActionLine], ...]:
    """Pair instances that are destroyed and created again elsewhere on the same GPU."""
    out = []
    free = [a for a in actions if a.verb == "create" and a.placement]
    for destroyed in actions:
        if destroyed.verb != "destroy" or not destroyed.placement:
            continue
        instance = (destroyed.node, destroyed.gpu, destroyed.size)
        created = next((a for a in free if (a.node, a.gpu, a.size) == instance), None)
        if created is not None:
            free.remove(created)
            out.append((destroyed, created))
    return tuple(out)


def _moved(pairs: Sequence[tuple[ActionLine, ActionLine]]) -> list[str]:
    """Format moved instances: ``move c (2g.10gb) to slices 2-3``."""
    if len(pairs) > MOST_NAMED:
        return [f"move {len(pairs)} instances"]
    out = []
    for destroyed, created in pairs:
        where = words.clean(words.place(Placement.parse(created.placement)) + created.inside, 80)
        out.append(f"move {destroyed.letter} ({created.size}) to {where}")
    return out


def _phrases(actions: Sequence[ActionLine]) -> list[str]:
    """Format actions: ``destroy b (2g.10gb on slices 4-5)``; for many, their number, size and letters."""
    out = []
    for verb in dict.fromkeys(map(_verb, actions)):
        own = [a for a in actions if _verb(a) == verb]
        letters = [a.letter for a in own if a.letter]
        sizes = {a.size or a.what for a in own}
        if verb not in _PLAIN:
            out.append(verb)
        elif len(own) <= MOST_NAMED:
            out.append(f"{verb} {words.listed(_thing(a) for a in own)}")
        else:
            named = f" ({', '.join(letters)})" if len(letters) == len(own) and len(own) <= 8 else ""
            out.append(
                f"{verb} {len(own)} {'x ' + words.clean(sizes.pop(), 60) if len(sizes) == 1 else 'devices'}{named}"
            )
    return out


_PLAIN = ("destroy", "create", "set", "reset")


def _verb(action: ActionLine) -> str:
    """Return the verb of an action, with ``enable`` or ``disable`` for features."""
    return f"{'enable' if action.on else 'disable'} {action.feature}" if action.feature else action.verb


def _thing(action: ActionLine) -> str:
    named = what(action, 80)
    return f"{action.letter} ({named})" if action.letter else named


def what(action: ActionLine, most: int) -> str:
    """Return the object of an action: for a GPU instance, its profile and slices."""
    if not action.placement:
        return words.clean(action.what, most)
    where = words.place(Placement.parse(action.placement))
    return words.clean(f"{action.size} on {where}{action.inside}", most)


def _where(preview: ChangePreview) -> str:
    gpus = {(a.node, a.gpu) for a in preview.actions if a.gpu}
    if len(gpus) == 1:
        node, gpu = next(iter(gpus))
        return f" on GPU {gpu} of {words.clean(node)}"
    nodes = {node for node, _ in gpus}
    if not gpus:
        return ""
    return f" on {len(gpus)} GPUs of {words.clean(next(iter(nodes))) if len(nodes) == 1 else f'{len(nodes)} nodes'}"


def button(preview: ChangePreview) -> str:
    """Return the label of the apply button: what the plan does."""
    verbs = words.listed(dict.fromkeys(map(_verb, preview.actions)))
    gpus = {(a.node, a.gpu) for a in preview.actions if a.gpu}
    where = f" on {len(gpus)} GPUs" if len(gpus) > 1 else f" on GPU {next(iter(gpus))[1]}" if gpus else ""
    return f"{verbs[:1].upper()}{verbs[1:]}{where}" if verbs else "Apply"


def text(preview: ChangePreview) -> str:
    """Format the plan as plain text for a ticket."""
    out = [words.clean(preview.title, 300), words.clean(preview.summary, 400)]
    for each in preview.pictures:
        out += [f"{words.clean(each.node)} {words.clean(each.title)}", f"  now      {words.clean(each.now, 200)}"]
        out += [f"  planned  {words.clean(each.planned, 200)}"] if each.planned else []
    for n, action in enumerate(preview.actions, 1):
        head = " ".join(filter(None, (action.verb, action.letter, words.clean(action.what, 200))))
        out.append(f"{n:>3} {action.gpu}  {head}  ({words.clean(action.reason, 300)})")
    for o in preview.obstacles:
        out += [
            f"blocked[{words.clean(o.rule)}]: {words.clean(o.message, 600)}",
            *(f"  holder  {words.clean(h)}" for h in o.holders),
        ]
        out += [f"  nearest that fits: {words.clean(o.suggestion, 200)}"] if o.suggestion else []
        out += [f"  next    {words.clean(o.next_step, 400)}"] if o.next_step else []
    out += [f"note: {words.clean(s, 600)}" for s in preview.notes]
    out += [f"warning: {words.clean(s, 600)}" for s in preview.warnings]
    return "\n".join(line for line in out if line)
