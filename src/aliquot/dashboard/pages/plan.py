"""The page of a plan: pictures, actions with reasons, and obstacles; then its progress and outcome."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.action_text import HolderWait
from aliquot.core.model.plan import HeldPolicy
from aliquot.core.model.structured_text import parts_of
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.dashboard import formatting as words
from aliquot.dashboard import forms
from aliquot.dashboard.change_requests import ChangeRequest, PartitionGpu
from aliquot.dashboard.gpu_bars import GpuBar, of_plan
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages import plan_text
from aliquot.dashboard.pages.history import ENDS
from aliquot.dashboard.pages.shared import FLEET, Crumb, refusals
from aliquot.dashboard.pending_changes import ENDED, RUNNING, WAITING, PendingChange
from aliquot.dashboard.view_models import ActionLine, ChangeOutcome, ChangePreview, GpuPicture, Obstacle

HELD = ("IN_USE", "HELD")
"""Codes of refusals because of holders. The policies ``wait`` and ``force`` may help."""
EXPIRED = "This plan has expired. Plans are discarded if they are not applied within an hour, or if there are too many."


class PicturePair(msgspec.Struct, frozen=True):
    """A GPU now and planned, as text and, if possible, as bars."""

    id: str
    title: str
    node: str
    now: str
    planned: str
    before: GpuBar | None
    after: GpuBar | None


class PlanHeadings(msgspec.Struct, frozen=True):
    """The headings of the two pictures of a plan and of its actions."""

    before: str
    after: str
    actions: str


FAILED = PlanHeadings("Before", "Planned", "Planned actions, in this order")
HEADS = {
    "": PlanHeadings("Now", "Planned", "Actions, in this order"),
    "done": PlanHeadings("Before", "After", "Completed actions, in this order"),
    "refused": PlanHeadings("When planned", "Planned", "Planned actions, in this order"),
}
"""Headings by outcome. A refused plan may be based on an earlier state."""


class ActionRow(msgspec.Struct, frozen=True):
    """An action as text."""

    where: str
    verb: str
    letter: str
    what: str
    reason: str


async def show(visit: Visit) -> PageContent:
    change = visit.pending_changes.find(visit.params["id"])
    if change is None:
        return PageContent(
            "absent.html",
            "No such plan",
            context={"what": "plan", "name": "", "back": FLEET, "why": EXPIRED, "looking": False},
            status=404,
        )
    preview = change.preview
    tag = str(type(change.request).__struct_config__.tag)
    may = (await refusals(visit, (tag,)))[tag]
    heads = HEADS.get(change.done.status if change.done else "", FAILED)
    outcome_context, fleet = outcome(change, may), visit.source.fleet
    nodes = tuple(
        (words.clean(n), words.path("nodes", n)) for n in preview.nodes if n in fleet.by_name or not fleet.ready
    )
    regions = (
        Region(
            "outcome",
            "plan_outcome.html",
            (change.state, change.lines, change.done, may, nodes),
            outcome_context | {"nodes": nodes},
        ),
        Region("plan", "plan_body.html", (change.id, heads), body(preview, heads)),
    )
    crumbs = (FLEET, *(Crumb(name, path) for name, path in nodes[:1]))
    return PageContent("plan.html", words.clean(preview.title) or "Plan", regions, {"crumbs": crumbs})


def outcome(change: PendingChange, may: str) -> dict[str, object]:
    """Build the context of the outcome region: apply form, progress, or result."""
    preview, done = change.preview, change.done
    word, mood = ENDS.get(done.status, (done.status, "")) if done else ("", "")
    return {
        "id": change.id,
        "state": change.state,
        "waiting": change.state == WAITING,
        "running": change.state == RUNNING,
        "ended": change.state == ENDED,
        "preview": preview,
        "lines": tuple(words.clean(line, 300) for line in change.lines),
        "steps": len(preview.actions),
        "acts": min(sum(not _is_wait(line) for line in change.lines), len(preview.actions)),
        "done": done,
        "ending": ending(word, done) if done else "",
        "mood": mood,
        "by": words.clean(change.applied_by),
        "took": words.took(change.ended - change.started) if change.ended else "",
        "again": forms.form_of(change.request),
        "with_force": _with_policy(change.request, "force"),
        "with_wait": _with_policy(change.request, "wait"),
        "fitting": _fitting(change),
        "back": rollback_requests(preview) if done and done.status == "done" else (),
        "details": tuple(words.clean(s, 600) for s in done.details) if done else (),
        "held": any(o.holders for o in preview.obstacles) or (done is not None and done.code in HELD),
        "may": may,
        "sentence": plan_text.promise(preview),
        "moves": bool(plan_text.moves(preview.actions)),
        "button": plan_text.button(preview),
        "forced": change.request.policy == "force",
    }


def _is_wait(line: str) -> bool:
    """Report whether a line of the log only says whom the change waits for."""
    return any(isinstance(part, HolderWait) for part in parts_of(line))


def ending(word: str, done: ChangeOutcome) -> str:
    """Combine the outcome's label with what its sentence adds."""
    text = words.clean(done.predicate or done.sentence, 600)
    return f"{word[:1].upper()}{word[1:]}: {text}" if text else f"{word[:1].upper()}{word[1:]}."


def _with_policy(request: ChangeRequest, policy: HeldPolicy) -> tuple[tuple[str, str], ...]:
    """Return the form of the same request with another policy, empty if it has that policy already."""
    return () if request.policy == policy else forms.form_of(msgspec.structs.replace(request, policy=policy))  # type: ignore[arg-type]


def _fitting(change: PendingChange) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the geometry that would fit instead and its form, ("", ()) if there is none."""
    request, found = change.request, next((o.suggestion for o in change.preview.obstacles if o.suggestion), "")
    if not found or not isinstance(request, PartitionGpu) or len(change.preview.obstacles) > 1:
        return "", ()
    return words.clean(found, 200), forms.form_of(msgspec.structs.replace(request, mig=found))


def rollback_requests(preview: ChangePreview) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return the PCI address and the rollback form of each GPU whose MIG geometry changed.

    GPUs with divided instances are omitted, because a request of the page creates only whole ones.
    """
    return tuple(
        (words.clean(each.gpu), forms.form_of(PartitionGpu(node=each.node, gpu=each.gpu, mig=_placed(each))))
        for each in preview.pictures
        if each.slices
        and not each.divided
        and not (each.shares_before or each.shares_after)
        and _placements(each.before) != _placements(each.after)
    )


def _placements(instances: Sequence[DrawnInstance]) -> set[tuple[str, str]]:
    return {(instance.profile, str(instance.place)) for instance in instances}


def _placed(picture: GpuPicture) -> str:
    if not picture.before:
        return "disabled" if picture.mig_disabled else "empty"
    return ",".join(f"{instance.profile}@{instance.place.start}" for instance in picture.before)


def body(preview: ChangePreview, heads: PlanHeadings) -> dict[str, object]:
    """Build the context of the plan region."""
    many = len({action.node for action in preview.actions}) > 1
    return {
        "preview": preview,
        "heads": heads,
        "summary": words.clean(preview.summary, 400),
        "pairs": tuple(pair(p, n, heads=heads, blocked=preview.blocked) for n, p in enumerate(preview.pictures)),
        "blocked": preview.blocked,
        "steps": tuple(step(a, many) for a in preview.actions),
        "obstacles": tuple(obstacle(o) for o in preview.obstacles),
        "notes": tuple(words.clean(s, 600) for s in preview.notes),
        "warnings": tuple(words.clean(s, 600) for s in preview.warnings),
        "text": plan_text.text(preview),
    }


def pair(picture: GpuPicture, number: int, heads: PlanHeadings, *, blocked: bool = False) -> PicturePair:
    before, after = of_plan(picture, (heads.before.lower(), heads.after.lower())) or (None, None)
    after = None if blocked else after
    title, node = words.clean(picture.title), words.clean(picture.node)
    return PicturePair(
        f"pair-{number}", title, node, words.clean(picture.now, 200), words.clean(picture.planned, 200), before, after
    )


def step(action: ActionLine, many: bool) -> ActionRow:
    where = f"{words.clean(action.node)} {action.gpu}" if many else action.gpu
    return ActionRow(
        where,
        action.verb,
        action.letter,
        plan_text.what(action, 200),
        words.sentence(action.reason, 300),
    )


def obstacle(found: Obstacle) -> Obstacle:
    return Obstacle(
        rule=words.clean(found.rule),
        message=words.sentence(found.message, 600),
        node=words.clean(found.node),
        gpu=words.clean(found.gpu),
        holders=tuple(words.clean(h) for h in found.holders),
        suggestion=words.clean(found.suggestion, 200),
        next_step=words.clean(found.next_step, 400),
    )
