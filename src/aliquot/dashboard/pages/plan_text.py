"""A plan in sentences: what it will do and what stays, what its button says, and the text for a ticket."""

from __future__ import annotations

import re
from collections.abc import Sequence

from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import Act, Preview

MOST_NAMED = 3
"""Of more things only the number and the letters are said."""


def promise(preview: Preview) -> str:
    """What will happen and what stays, in one sentence."""
    moved = moves(preview.acts)
    there = [act for pair in moved for act in pair]
    deeds = [*_moved(moved), *_deeds([act for act in preview.acts if act not in there])]
    stays = preview.summary.split(",")[0].strip() if "kept" in preview.summary else ""
    count = stays.split(" ")[0]
    rest = "Everything else stays as it is."
    if count.isdigit() and int(count):
        rest = f"{words.number(int(count), 'instance')} {'stays' if count == '1' else 'stay'} untouched."
    return f"This will {words.listed(deeds)}{_where(preview)}. {rest}" if deeds else ""


def moves(acts: Sequence[Act]) -> tuple[tuple[Act, Act], ...]:
    """Instances that are destroyed and made again elsewhere on the same GPU."""
    out = []
    free = [a for a in acts if a.verb == "create" and " at " in a.what]
    for gone in acts:
        if gone.verb != "destroy" or " at " not in gone.what:
            continue
        here = (gone.node, gone.gpu, gone.what.split(" at ")[0])
        again = next((a for a in free if (a.node, a.gpu, a.what.split(" at ")[0]) == here), None)
        if again is not None:
            free.remove(again)
            out.append((gone, again))
    return tuple(out)


def _moved(pairs: Sequence[tuple[Act, Act]]) -> list[str]:
    """``move c (2g.10gb) to slices 2-3``."""
    if len(pairs) > MOST_NAMED:
        return [f"move {len(pairs)} instances"]
    out = []
    for gone, again in pairs:
        profile, _, where = words.placed(words.clean(again.what, 80)).partition(" on ")
        out.append(f"move {gone.letter} ({profile}) to {where}")
    return out


def _deeds(acts: Sequence[Act]) -> list[str]:
    """``destroy b (2g.10gb on slices 4-5)``; of many their number, size and letters."""
    out = []
    for verb in dict.fromkeys(map(_verb, acts)):
        own = [a for a in acts if _verb(a) == verb]
        letters = [a.letter for a in own if a.letter]
        sizes = {re.split(r" at | on |,", a.what)[0] for a in own}
        if verb not in _PLAIN:
            out.append(verb)
        elif len(own) <= MOST_NAMED:
            out.append(f"{verb} {words.listed(_thing(a) for a in own)}")
        else:
            named = f" ({', '.join(letters)})" if len(letters) == len(own) and len(own) <= 8 else ""
            out.append(
                f"{verb} {len(own)} {'x ' + words.clean(sizes.pop(), 60) if len(sizes) == 1 else 'things'}{named}"
            )
    return out


_PLAIN = ("destroy", "create", "set", "reset")
_SWITCHES = (
    (re.compile(r"virtual functions? on$"), "switch on virtual functions"),
    (re.compile(r"virtual functions? off$"), "switch off virtual functions"),
    (re.compile(r"^MIG mode enabled$"), "switch on MIG mode"),
    (re.compile(r"^MIG mode disabled$"), "switch off MIG mode"),
    (re.compile(r"^mixed-size mode on$"), "switch on mixed-size mode"),
    (re.compile(r"^mixed-size mode off$"), "switch off mixed-size mode"),
)


def _verb(act: Act) -> str:
    """What an act does, as people say it."""
    if act.verb != "set":
        return act.verb
    return next((said for pattern, said in _SWITCHES if pattern.search(act.what)), "set")


def _thing(act: Act) -> str:
    what = words.placed(words.clean(act.what, 80))
    return f"{act.letter} ({what})" if act.letter else what


def _where(preview: Preview) -> str:
    gpus = {(a.node, a.gpu) for a in preview.acts if a.gpu}
    if len(gpus) == 1:
        node, gpu = next(iter(gpus))
        return f" on GPU {gpu} of {words.clean(node)}"
    nodes = {node for node, _ in gpus}
    if not gpus:
        return ""
    return f" on {len(gpus)} GPUs of {words.clean(next(iter(nodes))) if len(nodes) == 1 else f'{len(nodes)} nodes'}"


def button(preview: Preview) -> str:
    """What the button says that applies it: what it does."""
    verbs = words.listed(dict.fromkeys(map(_verb, preview.acts)))
    gpus = {(a.node, a.gpu) for a in preview.acts if a.gpu}
    where = f" on {len(gpus)} GPUs" if len(gpus) > 1 else f" on GPU {next(iter(gpus))[1]}" if gpus else ""
    return f"{verbs[:1].upper()}{verbs[1:]}{where}" if verbs else "Apply"


def text(preview: Preview) -> str:
    """The plan as lines that can be pasted into a ticket."""
    out = [words.clean(preview.title, 300), words.clean(preview.summary, 400)]
    for each in preview.pictures:
        out += [f"{words.clean(each.node)} {words.clean(each.title)}", f"  now      {words.clean(each.now, 200)}"]
        out += [f"  planned  {words.clean(each.planned, 200)}"] if each.planned else []
    for n, act in enumerate(preview.acts, 1):
        head = " ".join(filter(None, (act.verb, act.letter, words.clean(act.what, 200))))
        out.append(f"{n:>3} {act.gpu}  {head}  ({words.clean(act.reason, 300)})")
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
