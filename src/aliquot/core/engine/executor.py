"""The lanes of a plan side by side, with the resets between them."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.engine.gpu_executor import Run, reset
from aliquot.core.model.actions import Action, Reset
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError


def carry_out(run: Run, plan: Plan) -> AliquotError | None:
    """All lanes up to their reset, the resets together, then the rest. The first error in PCI order, or None."""
    split = {pci: _split(lane) for pci, lane in plan.lanes.items()}
    error = _side_by_side(run, [first for first, _, _ in split.values()])
    if error is not None:
        return error
    resets = [pci for pci, (_, needs, _) in split.items() if needs]
    if resets:
        pending = [g.pci for g in map(run.world.backend.read_gpu, resets) if g.mig.current != g.mig.pending]
        errors = reset(run.world, run, pending) if pending else []
        if errors:
            return errors[0]
    return _side_by_side(run, [rest for _, _, rest in split.values()])


def _split(lane: Sequence[Action]) -> tuple[Sequence[Action], bool, Sequence[Action]]:
    for n, action in enumerate(lane):
        if isinstance(action, Reset):
            return lane[:n], True, lane[n + 1 :]
    return lane, False, ()


def _side_by_side(run: Run, lanes: Sequence[Sequence[Action]]) -> AliquotError | None:
    jobs = [lambda lane=lane: run.lane(lane) for lane in lanes if lane]
    results: list[AliquotError | None] = run.world.workers.run(jobs, run.stop) if jobs else []
    return next((r for r in results if r is not None), None)
