"""One apply as its lanes see it: what they share, and the one way to call the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.nvml_return_codes import REFUSALS
from aliquot.core.model.plan import Policy
from aliquot.errors import AliquotError, HardwareError, InUseError, PermissionDeniedError
from aliquot.foundation.callbacks import Report

T = TypeVar("T")

POLL_S = 0.05
SETTLE_S = 2.0
"""How long a destroy may answer "in use" although nobody is on the instance: the driver takes some tenths of a second
to let go of a process that has ended (FAR, measured)."""


class Run:
    """One apply as its lanes see it. ``stopping`` asks the other lanes to stop at the next boundary. ``attempted`` are
    GPU and step of the calls that the driver did not refuse, also those of an interrupted run that this one resumes.
    """

    def __init__(
        self,
        context: ExecutionContext,
        policy: Policy,
        run_id: str,
        report: Report,
        *,
        undoing: bool = False,
        attempted: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.context = context
        self.policy = policy
        self.run_id = run_id
        self.report = _unfailing(report) if undoing else report
        self.undoing = undoing
        self.stopping = False
        self.calls = 0
        self.unrecorded = False
        self.attempted = set(attempted)

    def stop(self) -> None:
        """Ask the lanes to stop at their next action."""
        self.stopping = True

    def destroy_vgpu(self, pci: str, vgpu: Vgpu) -> None:
        """Destroy exactly the vGPU that was seen: the backend compares type, UUID and claim once more."""
        backend = self.context.backend
        self.call(
            pci,
            f"destroy vgpu {vgpu.type} {vgpu.function} {vgpu.uuid}",
            lambda: backend.destroy_vgpu(pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token),
        )

    def call(self, pci: str, step: str, driver_call: Callable[[], T]) -> T:
        """Journal the intent, act, and give the driver time to let go of what has just ended."""
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
        """Write to the journal. While undoing, a journal that cannot be written does not stop the way back."""
        try:
            self.context.journal.append(entry, durable=durable)
        except Exception:
            if durable and not self.undoing:
                raise
            self.unrecorded = True


def _unfailing(report: Report) -> Report:
    """Return a report that may fail: on the way back, a line that cannot be shown stops nothing."""

    def attempt(line: str) -> None:
        with suppress(Exception):
            report(line)

    return attempt


def was_refused(error: AliquotError) -> bool:
    """Return whether the driver did nothing of what it was asked for."""
    code = error.nvml_code if isinstance(error, HardwareError) else None
    return isinstance(error, InUseError | PermissionDeniedError) or code in REFUSALS
