"""``aliquot explain``: why a profile does not fit now, and the cheapest plan that would make it fit."""

from __future__ import annotations

from aliquot.cli.framework import color as colors
from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import output, profile_names
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.explain import Explanation, GpuAnswer, best_answer, explain
from aliquot.core.rendering import gpu_groups, mig_picture


def run(args: Args) -> int:
    inventory = node.inventory(args)
    pcis: list[str | None] = [gpu.pci for gpu in node.gpus(inventory, args.gpu)] if args.gpu else [None]
    profile_names.check_name(args.profile, inventory)
    found = [explain(inventory, args.profile, pci) for pci in pcis]
    answers = tuple(a for e in found for a in e.answers)
    if args.output == "markdown":
        from aliquot.cli.framework import streams
        from aliquot.cli.views import ticket

        streams.result(ticket.explanation(answers, inventory, args.profile, args.typed_node))
        return 0
    document = Explanation(profile=args.profile, answers=answers)
    output.emit(output.document(document), args.output, _text(answers, inventory, args.typed_node, each=args.each))
    return 0


def _text(answers: tuple[GpuAnswer, ...], inventory: Inventory, typed: str, *, each: bool) -> str:
    """Return the best answer in full and the others in a line, or all of them in full."""
    if not answers:
        return "no GPU of this node is MIG-capable"
    if each:
        return "\n\n".join(_answer(a, inventory, typed) for a in answers)
    best = best_answer(answers)
    sentences = {a.gpu: a.sentence for a in answers if a is not best}
    groups = gpu_groups.group_gpus(
        (inventory.gpu(pci) for pci in sentences), lambda gpu: (gpu.product, sentences[gpu.pci])
    )
    lines = [f"{gpu_groups.group_title(group)}: {sentences[group[0].pci]}" for group in groups]
    return "\n\n".join(filter(None, [_answer(best, inventory, typed), "\n".join(lines)]))


def _answer(answer: GpuAnswer, inventory: Inventory, typed: str) -> str:
    gpu = inventory.gpu(answer.gpu)
    lines = [f"GPU {gpu.index}  {gpu.pci}  {mig_picture.product(gpu)}: {answer.sentence}"]
    if answer.rule:
        lines.append(f"  rule     {answer.rule}")
    if answer.slices:
        lines.append(f"  slices   {' '.join(map(str, answer.slices))}")
    lines += [f"  holder   {holder}" for holder in answer.holders]
    if answer.plan and answer.plan.changes and not answer.fits:
        lines.append("  the cheapest way:")
        lines += [
            f"  {line}".rstrip() for line in plan_views.text(answer.plan, inventory, colors.wanted()).splitlines()
        ]
    if answer.next_step:
        lines.append(f"  next     {next_commands.addressed(answer.next_step, typed)}")
    return "\n".join(lines)
