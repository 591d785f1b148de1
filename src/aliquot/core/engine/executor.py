"""The lanes of a plan side by side, with the resets between them."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.engine.gpu_executor import execute_actions, reset_gpus
from aliquot.core.engine.run import Run
from aliquot.core.model.actions import Action, Reset
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError


def execute(run: Run, plan: Plan) -> AliquotError | None:
    """All lanes up to their reset, the resets together, then the rest. The first error in PCI order, or None."""
    split = {pci: _split(actions) for pci, actions in plan.actions_by_gpu.items()}
    error = _run_in_parallel(run, [first for first, _, _ in split.values()])
    if error is not None:
        return error
    resets = [pci for pci, (_, needs, _) in split.items() if needs]
    if resets:
        pending = [g.pci for g in map(run.context.backend.read_gpu, resets) if g.mig.current != g.mig.pending]
        errors = reset_gpus(run.context, run, pending) if pending else []
        if errors:
            return errors[0]
    return _run_in_parallel(run, [rest for _, _, rest in split.values()])


def _split(actions: Sequence[Action]) -> tuple[Sequence[Action], bool, Sequence[Action]]:
    for n, action in enumerate(actions):
        if isinstance(action, Reset):
            return actions[:n], True, actions[n + 1 :]
    return actions, False, ()


def _run_in_parallel(run: Run, action_lists: Sequence[Sequence[Action]]) -> AliquotError | None:
    jobs = [lambda actions=actions: execute_actions(run, actions) for actions in action_lists if actions]
    results: list[AliquotError | None] = run.context.workers.run(jobs, run.stop) if jobs else []
    return next((r for r in results if r is not None), None)
