"""The execution of a plan's actions, GPUs in parallel. It journals before it acts, and never acts on what is held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aliquot.core.engine import vgpu_actions as virtual
from aliquot.core.engine.action_text import describe
from aliquot.core.engine.holder_check import ensure_idle
from aliquot.core.engine.journal_step import destruction_of_compute, step_of
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.run import Run
from aliquot.core.engine.step_timing import name_of
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.core.model.placement import Placement
from aliquot.errors import AliquotError, HardwareError, InUseError


def execute(run: Run, actions_by_gpu: Mapping[str, Sequence[Action]]) -> AliquotError | None:
    """Execute the actions of each GPU up to its reset, the resets together, then the rest.

    Returns the first error in PCI order, or None.
    """
    split = {pci: _split(actions) for pci, actions in actions_by_gpu.items()}
    error = _run_in_parallel(run, [first for first, _, _ in split.values()])
    if error is not None:
        return error
    resets = [pci for pci, (_, needs, _) in split.items() if needs]
    if resets:
        pending = [g.pci for g in map(run.context.backend.read_gpu, resets) if g.mig.current != g.mig.pending]
        errors = _reset_gpus(run, pending) if pending else []
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


def execute_actions(run: Run, actions: Sequence[Action]) -> AliquotError | None:
    """Execute the actions of one GPU. Returns the error that stopped them, or None."""
    # The driver creates nothing while a client is on the whole GPU: check that before destroying anything.
    needs_idle_gpu = any(isinstance(a, Create | CreateCompute) for a in actions) and not run.undoing
    for action in actions:
        if run.stopping:
            return None
        try:
            with run.context.timed(name_of(action), action):
                _execute(run, action, needs_idle_gpu)
        except Exception as error:  # noqa: BLE001 - any error rolls back what was begun
            cause = as_aliquot_error(error)
            run.stopping = not run.undoing
            run.note(JournalEntry("failed", run.run_id, gpu=action.gpu, text=cause.brief), durable=False)
            return cause
    return None


def _execute(run: Run, action: Action, needs_idle_gpu: bool) -> None:
    match action:
        case Destroy():
            _destroy(run, action, needs_idle_gpu)
        case DestroyCompute():
            inside = action.instance, action.compute_instance
            ensure_idle(
                run, action.gpu, lambda gpu: (*_compute_holders(gpu, *inside), *(gpu.holders if needs_idle_gpu else ()))
            )
            _destroy_compute(run, action.gpu, action.instance, action.compute_instance)
        case Create():
            if run.policy.held != "refuse":
                ensure_idle(run, action.gpu, lambda gpu: gpu.holders)
            _create(run, action)
        case CreateCompute():
            _create_compute(run, action)
        case SetMode():
            _set_mode(run, action)
        case Reset():
            raise AssertionError("resets of all GPUs run together, not among the actions of one GPU")
        case _:
            virtual.execute(run, action)
    run.report(describe(action))


def _destroy(run: Run, action: Destroy, needs_idle_gpu: bool) -> None:
    def holders(gpu: Gpu) -> Sequence[Holder]:
        return (*_instance_holders(gpu, action.instance), *(gpu.holders if needs_idle_gpu else ()))

    current_gpu = ensure_idle(run, action.gpu, holders)
    instance = current_gpu.instance(action.instance)
    if instance is None or (instance.profile_id, instance.placement) != (action.profile_id, action.placement):
        raise InUseError(
            f"GPU {action.gpu}: instance {action.instance} is no longer {action.profile} at {action.placement}",
            details=("another process changed this GPU in the meantime",),
            next_step="aliquot plan",
        )
    for compute in instance.compute_instances:
        _destroy_compute(run, action.gpu, action.instance, compute.id)
    run.call(
        action.gpu,
        step_of(action),
        lambda: run.context.backend.destroy_gpu_instance(action.gpu, action.instance),
    )


def _destroy_compute(run: Run, pci: str, instance: int, compute: int) -> None:
    backend = run.context.backend
    run.call(
        pci,
        destruction_of_compute(instance, compute),
        lambda: backend.destroy_compute_instance(pci, instance, compute),
    )


def _create(run: Run, action: Create) -> None:
    place = Placement.parse(action.placement)
    backend = run.context.backend
    made = run.call(
        action.gpu,
        step_of(action),
        lambda: backend.create_gpu_instance(action.gpu, action.profile_id, place.start, place.size),
    )
    for part in action.compute:
        _create_compute(
            run,
            CreateCompute(
                gpu=action.gpu,
                reason=action.reason,
                instance=made,
                profile=part.profile,
                profile_id=part.profile_id,
                placement=part.placement,
            ),
        )


def _create_compute(run: Run, action: CreateCompute) -> None:
    place = Placement.parse(action.placement) if action.placement else None
    start, size = (place.start, place.size) if place else (None, 0)
    backend = run.context.backend
    run.call(
        action.gpu,
        step_of(action),
        lambda: backend.create_compute_instance(action.gpu, action.instance, action.profile_id, start, size),
    )


def _set_mode(run: Run, action: SetMode) -> None:
    ensure_idle(run, action.gpu, lambda gpu: gpu.holders)
    enabled = action.mode == "enabled"
    run.call(action.gpu, step_of(action), lambda: run.context.backend.set_mode(action.gpu, enabled))


def as_aliquot_error(error: Exception) -> AliquotError:
    """Return an AliquotError as it is, and any other as an internal error: what was begun is rolled back either way."""
    if isinstance(error, AliquotError):
        return error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
    return AliquotError(
        f"internal error: {type(error).__name__}: {error}",
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


def _reset_gpus(run: Run, pcis: Sequence[str]) -> list[AliquotError]:
    """Reset GPUs in parallel. Our own NVML session, which is a client too, is closed meanwhile."""
    context = run.context

    def job(pci: str) -> Callable[[], AliquotError | None]:
        def attempt() -> AliquotError | None:
            action = Reset(gpu=pci, reason="")
            try:
                with context.timed("reset", action):
                    run.call(pci, step_of(action), lambda: context.host.reset(pci))
            except Exception as error:  # noqa: BLE001 - any error rolls back what was begun
                return as_aliquot_error(error)
            run.report(describe(action))
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
