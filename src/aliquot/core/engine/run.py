"""The state that the GPUs of one apply share, and the only way to call the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.journal_step import JournalStep, destruction_of_vgpu
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.nvml_return_codes import REFUSALS
from aliquot.core.model.plan import Policy
from aliquot.errors import AliquotError, HardwareError, InUseError, PermissionDeniedError
from aliquot.foundation.callbacks import Report

T = TypeVar("T")

POLL_S = 0.05
SETTLE_S = 2.0
"""How long a destroy is tried again while the driver reports "in use" for an idle instance, in seconds.

The driver takes some tenths of a second to release a process that has ended (measured by the authors of FAR,
arXiv 2507.13601).
"""


class Run:
    """An apply. ``stopping`` makes the other GPUs stop at their next action. ``attempted`` are GPU and step of the
    calls that the driver did not refuse, including those of an interrupted run that this one resumes.
    """

    def __init__(
        self,
        context: ExecutionContext,
        policy: Policy,
        run_id: str,
        report: Report,
        *,
        attempted: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.context = context
        self.policy = policy
        self.run_id = run_id
        self.report = report
        self.undoing = False
        self.stopping = False
        self.calls = 0
        self.unrecorded = False
        self.attempted = set(attempted)

    def for_rollback(self) -> Run:
        """Return the run that undoes this one. It ends no holder, and neither journal nor report can stop it."""
        back = Run(self.context, Policy(), self.run_id, _unfailing(self.report))
        back.undoing = True
        return back

    def stop(self) -> None:
        """Make all GPUs stop at their next action."""
        self.stopping = True

    def destroy_vgpu(self, pci: str, vgpu: Vgpu) -> None:
        """Destroy exactly the vGPU that was observed: the backend compares type, UUID and ownership token again."""
        backend = self.context.backend
        self.call(
            pci,
            destruction_of_vgpu(vgpu),
            lambda: backend.destroy_vgpu(pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token),
        )

    def call(self, pci: str, journal_step: JournalStep, driver_call: Callable[[], T]) -> T:
        """Journal the intent and call the driver. Tries again while the driver still releases what has just ended."""
        step = str(journal_step)
        self.note(JournalEntry("intent", self.run_id, gpu=pci, step=step), durable=True)
        self.attempted.add((pci, step))
        patience = self.policy.timeout_s if self.policy.held == "wait" else SETTLE_S
        deadline = self.context.clock.now() + patience
        while True:
            self.calls += 1
            try:
                result = driver_call()
            except AliquotError as error:
                if isinstance(error, InUseError) and self.context.clock.now() < deadline:
                    self.context.clock.sleep(POLL_S)
                    continue
                if was_refused(error):
                    self.attempted.discard((pci, step))
                    self.note(JournalEntry("refused", self.run_id, gpu=pci, step=step), durable=False)
                raise
            self.note(JournalEntry("done", self.run_id, gpu=pci, step=step), durable=False)
            return result

    def note(self, entry: JournalEntry, *, durable: bool) -> None:
        """Write to the journal. A journal that cannot be written does not stop a rollback."""
        try:
            self.context.journal.append(entry, durable=durable)
        except Exception:
            if durable and not self.undoing:
                raise
            self.unrecorded = True


def _unfailing(report: Report) -> Report:
    """Return a report that ignores its errors: a line that cannot be printed must not stop a rollback."""

    def attempt(line: str) -> None:
        with suppress(Exception):
            report(line)

    return attempt


def was_refused(error: AliquotError) -> bool:
    """Report whether the driver refused the call and changed nothing."""
    code = error.nvml_code if isinstance(error, HardwareError) else None
    return isinstance(error, InUseError | PermissionDeniedError) or code in REFUSALS
