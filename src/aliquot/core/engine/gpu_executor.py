"""Carries out the actions of one GPU: journal, then act, and never on something that is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from aliquot.core.engine import holder_check as holding
from aliquot.core.engine import vgpu_actions as virtual
from aliquot.core.engine.action_text import creation_step, describe
from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.holder_check import POLL_S
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.step_timing import name_of
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.core.model.nvml_return_codes import REFUSALS
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Policy
from aliquot.errors import AliquotError, HardwareError, InUseError, PermissionDeniedError
from aliquot.foundation.callbacks import Report

T = TypeVar("T")

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

    def execute_actions(self, actions: Sequence[Action]) -> AliquotError | None:
        """Carry out a lane. The error that stopped it, or None."""
        # The driver creates nothing while a client is on the whole GPU: find out before anything is destroyed.
        needs_idle_gpu = any(isinstance(a, Create | CreateCompute) for a in actions) and not self.undoing
        for action in actions:
            if self.stopping:
                return None
            try:
                with self.context.timed(name_of(action), action):
                    self._execute(action, needs_idle_gpu)
            except Exception as error:  # noqa: BLE001 - whatever it is, what was begun goes back
                cause = as_aliquot_error(error)
                self.stopping = not self.undoing
                self.note(JournalEntry("failed", self.run_id, gpu=action.gpu, text=cause.brief), durable=False)
                return cause
        return None

    def _execute(self, action: Action, needs_idle_gpu: bool) -> None:
        match action:
            case Destroy():
                self._destroy(action, needs_idle_gpu)
            case DestroyCompute():
                inside = action.instance, action.compute_instance
                self.ensure_idle(
                    action.gpu, lambda gpu: (*_compute_holders(gpu, *inside), *(gpu.holders if needs_idle_gpu else ()))
                )
                self._destroy_compute(action.gpu, action.instance, action.compute_instance)
            case Create():
                if self.policy.held != "refuse":
                    self.ensure_idle(action.gpu, lambda gpu: gpu.holders)
                self._create(action)
            case CreateCompute():
                self._create_compute(action)
            case SetMode():
                self._set_mode(action)
            case Reset():
                raise AssertionError("resets run between the lanes, not inside one")
            case _:
                virtual.execute(self, action)
        self.report(describe(action))

    def _destroy(self, action: Destroy, needs_idle_gpu: bool) -> None:
        def holders(gpu: Gpu) -> Sequence[Holder]:
            return (*_instance_holders(gpu, action.instance), *(gpu.holders if needs_idle_gpu else ()))

        current_gpu = self.ensure_idle(action.gpu, holders)
        instance = current_gpu.instance(action.instance)
        if instance is None or (instance.profile_id, instance.placement) != (action.profile_id, action.placement):
            raise InUseError(
                f"GPU {action.gpu}: instance {action.instance} is no longer {action.profile} at {action.placement}",
                details=("somebody else changed this GPU in the meantime",),
                next_step="aliquot plan",
            )
        for compute in instance.compute_instances:
            self._destroy_compute(action.gpu, action.instance, compute.id)
        self.call(
            action.gpu,
            f"destroy gi {action.instance} {action.profile} {action.placement}",
            lambda: self.context.backend.destroy_gpu_instance(action.gpu, action.instance),
        )

    def _destroy_compute(self, pci: str, instance: int, compute: int) -> None:
        backend = self.context.backend
        self.call(
            pci,
            f"destroy ci {instance}/{compute}",
            lambda: backend.destroy_compute_instance(pci, instance, compute),
        )

    def _create(self, action: Create) -> None:
        place = Placement.parse(action.placement)
        backend = self.context.backend
        made = self.call(
            action.gpu,
            creation_step(action),
            lambda: backend.create_gpu_instance(action.gpu, action.profile_id, place.start, place.size),
        )
        for part in action.compute:
            self._create_compute(
                CreateCompute(
                    gpu=action.gpu,
                    reason=action.reason,
                    instance=made,
                    profile=part.profile,
                    profile_id=part.profile_id,
                    placement=part.placement,
                )
            )

    def _create_compute(self, action: CreateCompute) -> None:
        place = Placement.parse(action.placement) if action.placement else None
        start, size = (place.start, place.size) if place else (None, 0)
        backend = self.context.backend
        self.call(
            action.gpu,
            creation_step(action),
            lambda: backend.create_compute_instance(action.gpu, action.instance, action.profile_id, start, size),
        )

    def destroy_vgpu(self, pci: str, vgpu: Vgpu) -> None:
        """Destroy exactly the vGPU that was seen: the backend compares type, UUID and claim once more."""
        backend = self.context.backend
        self.call(
            pci,
            f"destroy vgpu {vgpu.type} {vgpu.function} {vgpu.uuid}",
            lambda: backend.destroy_vgpu(pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token),
        )

    def _set_mode(self, action: SetMode) -> None:
        self.ensure_idle(action.gpu, lambda gpu: gpu.holders)
        enabled = action.mode == "enabled"
        self.call(action.gpu, f"mode {action.mode}", lambda: self.context.backend.set_mode(action.gpu, enabled))

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

    def ensure_idle(self, pci: str, holders: Callable[[Gpu], Sequence[Holder]]) -> Gpu:
        """Read the GPU again and make sure that nobody is on it, as the policy says. The fresh look."""
        return holding.ensure_idle(self, pci, holders)


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


def as_aliquot_error(error: Exception) -> AliquotError:
    """Return an error of ours as it is, and any other as an internal fault: what was begun goes back all the same."""
    if isinstance(error, AliquotError):
        return error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return AliquotError(
        f"internal fault: {type(error).__name__}: {error}",
        details=(where,) if where else (),
        next_step="report it with this message; the same command may be run again",
    )


def _instance_holders(gpu: Gpu, instance_id: int) -> Sequence[Holder]:
    instance = gpu.instance(instance_id)
    return instance.holders if instance else ()


def _compute_holders(gpu: Gpu, instance_id: int, compute_id: int) -> Sequence[Holder]:
    instance = gpu.instance(instance_id)
    found = instance.compute_instances if instance else ()
    return next((c.holders for c in found if c.id == compute_id), ())


def reset_gpus(context: ExecutionContext, run: Run, pcis: Sequence[str]) -> list[AliquotError]:
    """Reset some GPUs side by side, our own NVML session closed meanwhile: it is a client like any other."""

    def job(pci: str) -> Callable[[], AliquotError | None]:
        def attempt() -> AliquotError | None:
            try:
                with context.timed("reset", Reset(gpu=pci, reason="")):
                    run.call(pci, "reset", lambda: context.host.reset(pci))
            except Exception as error:  # noqa: BLE001 - whatever it is, what was begun goes back
                return as_aliquot_error(error)
            run.report(f"GPU {pci}: reset")
            return None

        return attempt

    with context.backend.suspend():
        results = context.workers.run([job(pci) for pci in pcis], run.stop)
    errors = [r for r in results if r is not None]
    return errors or [
        _inactive(gpu) for gpu in map(context.backend.read_gpu, pcis) if gpu.mig.current != gpu.mig.pending
    ]


def _inactive(gpu: Gpu) -> HardwareError:
    return HardwareError(
        f"GPU {gpu.pci} was reset, but MIG mode is still {gpu.mig.current} ({gpu.mig.pending} is pending)",
        next_step="reboot the node, then: aliquot plan",
    )
