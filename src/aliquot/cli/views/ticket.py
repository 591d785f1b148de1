"""``-o markdown``: the output of a verb as text to paste into a ticket."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework.markdown import block, bullets, code, page, prose, table
from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker, Drift, Plan
from aliquot.core.model.structured_text import GpuName, StructuredText, parts_of
from aliquot.core.rendering import action_text as action_texts
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import plan_summary as summary

if TYPE_CHECKING:
    from aliquot.core.engine.history import PastRun
    from aliquot.core.planner.explain import GpuAnswer


def plan(made: Plan, inventory: Inventory, commands: Sequence[str], node: str = "") -> str:
    """Return a plan, or why it is blocked. ``commands`` apply it, the last of them exactly."""
    name = f": {prose(made.desired.name)}" if made.desired.name else ""
    head = [f"## {_kind(made)} for {prose(made.node)}{name}"]
    facts = _facts(inventory, [("Fingerprint", code(made.fingerprint, cell=True)), ("Held instances", _policy(made))])
    notes = ["### Notes", "", *bullets([prose(n) for n in made.notes])] if made.notes else []
    if made.blocked:
        return page(head, facts, *(_blocker(b, inventory, node) for b in made.blockers), notes)
    if not made.changes:
        return page(head, [prose(summary.plan_text(made))], facts, notes)
    body = [
        [prose(summary.plan_text(made))],
        facts,
        block(plan_views.pictures(made, inventory)),
        _actions(made, inventory),
    ]
    return page(head, *body, notes, *_how(commands))


def _kind(made: Plan) -> str:
    return "Blocked" if made.blocked else "Plan" if made.changes else "Nothing to do"


def _policy(made: Plan) -> str:
    held = made.policy.held
    if held == "wait":
        return f"wait for them, {made.policy.timeout_s:g} s at most"
    return {"refuse": "never touched", "force": "**ended by force**"}.get(held, held)


def _facts(inventory: Inventory, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    gpus = "1 GPU" if len(inventory.gpus) == 1 else f"{len(inventory.gpus)} GPUs"
    rows = [
        ("Node", f"{code(inventory.node, cell=True)}, {gpus}"),
        ("Driver", code(inventory.driver, cell=True) or "unknown"),
        *more,
    ]
    return table(("", ""), rows)


def _gpu(gpu: Gpu) -> str:
    return f"{gpu.index} {code(gpu.pci, cell=True)}"


def _actions(made: Plan, inventory: Inventory) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for pci, actions in made.actions_by_gpu.items():
        gpu = inventory.gpu(pci)
        for action in actions:
            verb, letter, what = action_texts.describe_action(action, gpu, actions)
            did = f"{verb} {code(letter, cell=True)}".rstrip()
            rows.append((str(len(rows) + 1), _gpu(gpu), did, code(what, cell=True), prose(action.reason)))
    return table(("#", "GPU", "act", "what", "why"), rows, right=(0,))


def _how(commands: Sequence[str]) -> list[list[str]]:
    if not commands:
        return []
    exact = (
        "This carries out exactly this plan, or refuses (exit code 20) because the node changed since. GPU instances "
        "that are held are looked up again before each act."
    )
    return [["### How to carry it out"], block("\n".join(f"$ {c}" for c in commands), "console"), [exact]]


def _blocker(blocker: Blocker, inventory: Inventory, node: str) -> list[str]:
    gpu = next((g for g in inventory.gpus if g.pci == blocker.gpu), None)
    where = f"GPU {gpu.index} {code(gpu.pci)} " if gpu else ""
    rows = [("Rule", code(blocker.rule, cell=True))]
    rows += [("Memory slices in the way", " ".join(map(str, blocker.slices)))] if blocker.slices else []
    rows += [("Held by", code(str(holder), cell=True)) for holder in blocker.holders]
    if blocker.suggestion:
        rows.append(("Nearest that fits", code(blocker.suggestion, cell=True)))
    return [f"### {where}{prose(_predicate(blocker))}", "", *table(("", ""), rows), *_next(blocker.next_step, node)]


def _predicate(blocker: Blocker) -> str:
    """Return the message without its subject, if that is the blocker's GPU, which the heading names."""
    first, *rest = parts_of(blocker.text)
    return str(StructuredText(*rest)) if first == GpuName(blocker.gpu, " ") else blocker.message


def _next(step: str | None, node: str) -> list[str]:
    """Return the next step: a command to copy, or a sentence."""
    if not step:
        return []
    if next_commands.is_command(step):
        return ["", "Next:", "", *block(f"$ {next_commands.addressed(step, node)}", "console")]
    return ["", f"Next: {prose(step)}"]


def verification(inventory: Inventory, drift: Sequence[Drift], name: str, notes: Sequence[str], step: str) -> str:
    """Return whether a node matches its desired state. ``step`` is the command that shows the repair."""
    verdict = "drift" if drift else "as requested"
    head = [f"## {prose(inventory.node)}: {verdict}" + (f" ({prose(name)})" if name else "")]
    rows = [
        (code(d.gpu, cell=True), prose(d.message), code(d.expected, cell=True), code(d.found, cell=True)) for d in drift
    ]
    parts = [_facts(inventory, [("Fingerprint", code(inventory.fingerprint, cell=True))])]
    parts += [table(("GPU", "difference", "should be", "is"), rows), bullets([prose(n) for n in notes])]
    return page(head, *parts, _next(step, "")[1:] if drift else [])


def shown(inventory: Inventory, gpus: Sequence[Gpu], text: str) -> str:
    """Return the GPUs as ``show`` draws them."""
    which = "" if len(gpus) == len(inventory.gpus) else f", GPU {', '.join(str(g.index) for g in gpus)}"
    facts = _facts(inventory, [("Fingerprint", code(inventory.fingerprint, cell=True))])
    return page([f"## {prose(inventory.node)}{which}"], facts, block(text))


def explanation(answers: Sequence[GpuAnswer], inventory: Inventory, profile: str, node: str) -> str:
    """Return why a profile does not fit, GPU by GPU, and the cheapest plan that makes it fit."""
    parts: list[list[str]] = [[f"## Does {code(profile)} fit on {prose(inventory.node)}?"], _facts(inventory)]
    for answer in answers:
        gpu = inventory.gpu(answer.gpu)
        rows = [("Rule", code(answer.rule, cell=True))] if answer.rule else []
        rows += [("Memory slices in the way", " ".join(map(str, answer.slices)))] if answer.slices else []
        rows += [("Held by", code(str(holder), cell=True)) for holder in answer.holders]
        parts += [[f"### GPU {gpu.index} {code(gpu.pci)}, {prose(mig_picture.product(gpu))}"], [prose(answer.sentence)]]
        parts.append(table(("", ""), rows))
        if answer.plan and answer.plan.changes and not answer.fits:
            drawn = block(plan_views.pictures(answer.plan, inventory))
            parts += [["The cheapest way:"], drawn, _actions(answer.plan, inventory)]
        parts.append(_next(answer.next_step, node)[1:])
    return page(*parts, [] if answers else ["No GPU of this node is MIG-capable."])


def history(node: str, found: Sequence[PastRun], ends: dict[str, str]) -> str:
    """Return past changes as a table, the newest first."""
    rows = [
        (
            _when(past.at),
            prose(past.by),
            code(shlex.join(past.command), cell=True),
            prose(past.name),
            "<br>".join(prose(line) for line in past.actions),
            prose(ends.get(past.outcome, past.outcome) + (f": {past.failure}" if past.failure else "")),
        )
        for past in found
    ]
    parts = table(("when", "by", "command", "request", "actions", "outcome"), rows)
    return page([f"## Changes of {prose(node)}"], parts or ["Nothing is recorded."])


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at)) if at else ""
