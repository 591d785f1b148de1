"""A plan that somebody looks at: now and planned side by side, each act with its reason, what is in the way; then yes
or no, how it goes, and how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.rendering.mig_picture import Piece
from aliquot.dashboard import formatting as words
from aliquot.dashboard import forms
from aliquot.dashboard.change_requests import Ask, Cut
from aliquot.dashboard.gpu_bars import Bar, of_plan
from aliquot.dashboard.page import Region, Shown, Visit
from aliquot.dashboard.pages import plan_text as deeds
from aliquot.dashboard.pages.history import ENDS
from aliquot.dashboard.pages.shared import FLEET, Crumb, refusals
from aliquot.dashboard.pending_changes import ENDED, RUNNING, WAITING, Sheet
from aliquot.dashboard.view_models import Act, Obstacle, Picture, Preview

HELD = ("IN_USE", "HELD")
"""Codes of what is refused for its holders: waiting for them, or force, is a way on."""
GONE = "This plan is not kept any more: plans that nobody applies are thrown away after an hour, or when too many wait."


class Pair(msgspec.Struct, frozen=True):
    """One GPU now and planned, in words and, where it can be drawn, as bars."""

    id: str
    title: str
    node: str
    now: str
    planned: str
    before: Bar | None
    after: Bar | None


class Heads(msgspec.Struct, frozen=True):
    """What is written over the two pictures of a plan, and over its acts."""

    before: str
    after: str
    acts: str


FAILED = Heads("Before", "Planned", "What should have been done, in this order")
HEADS = {
    "": Heads("Now", "Planned", "What will be done, in this order"),
    "done": Heads("Before", "After", "What was done, in this order"),
    "refused": Heads("When it was planned", "Planned", "What would have been done, in this order"),
}
"""By how it ended: a refused plan was made from what is no more."""


class Step(msgspec.Struct, frozen=True):
    """One act in words."""

    where: str
    verb: str
    letter: str
    what: str
    reason: str


async def show(visit: Visit) -> Shown:
    sheet = visit.desk.find(visit.params["id"])
    if sheet is None:
        return Shown(
            "absent.html",
            "No such plan",
            context={"what": "plan", "name": "", "back": FLEET, "why": GONE, "looking": False},
            status=404,
        )
    preview = sheet.preview
    tag = str(type(sheet.ask).__struct_config__.tag)
    may = (await refusals(visit, (tag,)))[tag]
    heads, said, fleet = (
        HEADS.get(sheet.done.status if sheet.done else "", FAILED),
        outcome(sheet, may),
        visit.source.fleet,
    )
    nodes = tuple(
        (words.clean(n), words.path("nodes", n)) for n in preview.nodes if n in fleet.by_name or not fleet.ready
    )
    regions = (
        Region(
            "outcome", "plan_outcome.html", (sheet.state, sheet.lines, sheet.done, may, nodes), said | {"nodes": nodes}
        ),
        Region("plan", "plan_body.html", (sheet.id, heads), body(preview, heads)),
    )
    crumbs = (FLEET, *(Crumb(name, path) for name, path in nodes[:1]))
    return Shown("plan.html", words.clean(preview.title) or "Plan", regions, {"crumbs": crumbs})


def outcome(sheet: Sheet, may: str) -> dict[str, object]:
    """Whether it can be applied, how far it is, how it ended."""
    preview, done = sheet.preview, sheet.done
    word, mood = ENDS.get(done.status, (done.status, "")) if done else ("", "")
    return {
        "id": sheet.id,
        "state": sheet.state,
        "waiting": sheet.state == WAITING,
        "running": sheet.state == RUNNING,
        "ended": sheet.state == ENDED,
        "preview": preview,
        "lines": tuple(words.clean(line, 300) for line in sheet.lines),
        "steps": len(preview.acts),
        "acts": min(sum(": waiting for " not in line for line in sheet.lines), len(preview.acts)),
        "done": done,
        "ending": ending(word, done.sentence) if done else "",
        "mood": mood,
        "by": words.clean(sheet.applied_by),
        "took": words.took(sheet.ended - sheet.started) if sheet.ended else "",
        "again": forms.form_of(sheet.ask),
        "with_force": _with(sheet.ask, "force"),
        "with_wait": _with(sheet.ask, "wait"),
        "fitting": _fitting(sheet),
        "back": way_back(preview) if done and done.status == "done" else (),
        "details": tuple(words.clean(s, 600) for s in done.details if not s.startswith("fingerprint ")) if done else (),
        "held": any(o.holders for o in preview.obstacles) or (done is not None and done.code in HELD),
        "may": may,
        "sentence": deeds.promise(preview),
        "moves": bool(deeds.moves(preview.acts)),
        "button": deeds.button(preview),
        "forced": sheet.ask.policy == "force",
    }


def ending(word: str, sentence: str) -> str:
    """How it ended, once: sentences may start with the word themselves."""
    said = words.clean(sentence, 600)
    if word == ENDS["refused"][0]:
        said = said.removeprefix("Nothing was changed: ")
    if said.casefold().startswith(word.casefold()):
        return said
    return f"{word[:1].upper()}{word[1:]}: {said}" if said else f"{word[:1].upper()}{word[1:]}."


def _with(ask: Ask, policy: str) -> tuple[tuple[str, str], ...]:
    """The same ask with another policy; none where it is that one already."""
    return () if ask.policy == policy else forms.form_of(msgspec.structs.replace(ask, policy=policy))  # type: ignore[arg-type]


def _fitting(sheet: Sheet) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What would fit instead, and the ask for that; ("", ()) where nobody knows."""
    ask, found = sheet.ask, next((o.suggestion for o in sheet.preview.obstacles if o.suggestion), "")
    if not found or not isinstance(ask, Cut) or len(sheet.preview.obstacles) > 1:
        return "", ()
    return words.clean(found, 200), forms.form_of(msgspec.structs.replace(ask, mig=found))


def way_back(preview: Preview) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """For each GPU whose MIG geometry it changed: its PCI address, and the ask for the places that were. None for one
    with instances that were divided further: an ask of the page makes whole ones.
    """
    return tuple(
        (words.clean(each.gpu), forms.form_of(Cut(node=each.node, gpu=each.gpu, mig=_placed(each))))
        for each in preview.pictures
        if each.slices
        and not each.divided
        and not (each.shares_before or each.shares_after)
        and _spots(each.before) != _spots(each.after)
    )


def _spots(pieces: Sequence[Piece]) -> set[tuple[str, str]]:
    return {(piece.profile, str(piece.place)) for piece in pieces}


def _placed(picture: Picture) -> str:
    if not picture.before:
        return "disabled" if "disabled" in picture.now else "empty"
    return ",".join(f"{piece.profile}@{piece.place.start}" for piece in picture.before)


def body(preview: Preview, heads: Heads) -> dict[str, object]:
    """What the plan is; what it was, once it is over."""
    many = len({act.node for act in preview.acts}) > 1
    return {
        "preview": preview,
        "heads": heads,
        "summary": words.clean(preview.summary, 400),
        "pairs": tuple(pair(p, n, heads=heads, blocked=preview.blocked) for n, p in enumerate(preview.pictures)),
        "blocked": preview.blocked,
        "steps": tuple(step(a, many) for a in preview.acts),
        "obstacles": tuple(obstacle(o) for o in preview.obstacles),
        "notes": tuple(words.clean(s, 600) for s in preview.notes),
        "warnings": tuple(words.clean(s, 600) for s in preview.warnings),
        "text": deeds.text(preview),
    }


def pair(picture: Picture, n: int, heads: Heads, *, blocked: bool = False) -> Pair:
    before, after = of_plan(picture, (heads.before.lower(), heads.after.lower())) or (None, None)
    after = None if blocked else after
    title, node = words.clean(picture.title), words.clean(picture.node)
    return Pair(
        f"pair-{n}", title, node, words.clean(picture.now, 200), words.clean(picture.planned, 200), before, after
    )


def step(act: Act, many: bool) -> Step:
    where = f"{words.clean(act.node)} {act.gpu}" if many else act.gpu
    return Step(
        where,
        act.verb,
        act.letter,
        words.placed(words.clean(act.what, 200)),
        words.placed(words.clean(act.reason, 300)),
    )


def obstacle(found: Obstacle) -> Obstacle:
    return Obstacle(
        rule=words.clean(found.rule),
        message=words.placed(words.clean(found.message, 600)),
        node=words.clean(found.node),
        gpu=words.clean(found.gpu),
        holders=tuple(words.clean(h) for h in found.holders),
        suggestion=words.clean(found.suggestion, 200),
        next_step=words.clean(found.next_step, 400),
    )
