"""A complete environment in memory: a backend on ``semantics.step``, a journal in a list, a clock that only counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.actions import (
    Action,
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Gpu, Inventory, MigMode
from aliquot.core.planner.semantics import StepRefusedError, step
from aliquot.errors import AliquotError, HardwareError, InUseError, StorageError

T = TypeVar("T")
replace = msgspec.structs.replace


class KilledError(BaseException):
    """A stand-in for SIGKILL, which no code may catch."""


class Memory:
    """Backend and Host in one. ``before``/``after`` run around the n-th write call (from 1) and may raise."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.log: list[str] = []
        self.before: Callable[[int, str], None] = lambda n, what: None
        self.after: Callable[[int, str], None] = lambda n, what: None
        self.suspended = False
        self.writes = 0
        self.claims = 0
        self.terminated: list[int] = []
        self.released_at: float | None = None
        self.now: Callable[[], float] = lambda: 0.0

    def read(self) -> Inventory:
        self._release()
        return self.inventory

    def read_gpu(self, pci: str) -> Gpu:
        return self.read().gpu(pci)

    def facts(self) -> Facts:
        return Facts(driver=self.inventory.driver, cuda=(0, 0), gpus=())

    def _release(self) -> None:
        if self.released_at is not None and self.now() >= self.released_at:
            self.terminate(0)

    def _write(self, what: str, act: Callable[[], None]) -> None:
        assert not self.suspended
        self.writes += 1
        number = self.writes
        self.before(number, what)
        self.log.append(what)
        try:
            act()
        except StepRefusedError as refusal:
            text = str(refusal)
            raise InUseError(text) if text.startswith("IN_USE") else HardwareError(text) from refusal
        self.after(number, what)

    def _step(self, action: Action) -> None:
        self.inventory = step(self.inventory, action)

    def set_mode(self, pci: str, enabled: bool) -> bool:
        mode: MigMode = "enabled" if enabled else "disabled"
        self._write(f"mode {pci} {mode}", lambda: self._step(SetMode(gpu=pci, reason="", mode=mode)))
        gpu = self.inventory.gpu(pci)
        return gpu.mig.current == gpu.mig.pending

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        old = {i.id for i in self.inventory.gpu(pci).instances}
        place = f"{start}:{size}"
        action = Create(gpu=pci, reason="", profile="", profile_id=profile_id, placement=place, compute=())
        self._write(f"create {pci} {profile_id} {place}", lambda: self._step(action))
        return next(i.id for i in self.inventory.gpu(pci).instances if i.id not in old)

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        found = self.inventory.gpu(pci).instance(instance)
        place = found.placement if found else "?"
        action = Destroy(gpu=pci, reason="", instance=instance, profile="", profile_id=0, placement="")

        def act() -> None:
            if found and found.compute_instances:
                raise StepRefusedError("IN_USE: compute instances exist")
            self._step(action)

        self._write(f"destroy {pci} {found.profile_id if found else '?'} {place}", act)

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        place = None if start is None else f"{start}:{size}"
        action = CreateCompute(
            gpu=pci, reason="", instance=instance, profile="", profile_id=profile_id, placement=place
        )
        self._write(f"create-ci {pci} {instance} {profile_id}", lambda: self._step(action))
        return 0

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        action = DestroyCompute(gpu=pci, reason="", instance=instance, compute_instance=compute_instance, profile="")
        self._write(f"destroy-ci {pci} {instance} {compute_instance}", lambda: self._step(action))

    def set_functions(self, pci: str, count: int) -> None:
        action = SetFunctions(gpu=pci, reason="", count=count)
        self._write(f"functions {pci} {count}", lambda: self._step(action))

    def set_mixed_size(self, pci: str, on: bool) -> None:
        action = SetMixedSize(gpu=pci, reason="", on=on)
        self._write(f"mixed {pci} {on}", lambda: self._step(action))

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        action = SetScheduler(gpu=pci, reason="", scheduler=scheduler)
        self._write(f"scheduler {pci} {scheduler}", lambda: self._step(action))

    def create_vgpu(self, pci: str, function: str, type_id: int, uuid: str, parameters: str = "") -> None:
        action = CreateVgpu(
            gpu=pci,
            reason="",
            function=function,
            type_id=type_id,
            type=self._type(pci, type_id),
            uuid=uuid,
            parameters=parameters,
        )

        def act() -> None:
            self._step(action)
            self.claims += 1
            gpu = self.inventory.gpu(pci)
            claimed = tuple(
                replace(v, ownership_token=f"claim-{self.claims}") if (v.function, v.uuid) == (function, uuid) else v
                for v in gpu.vgpus
            )
            self._put(replace(gpu, vgpus=claimed))

        self._write(f"create-vgpu {pci} {function} {type_id} {uuid}", act)

    def destroy_vgpu(self, pci: str, function: str, type_id: int, uuid: str, claim: str) -> None:
        there = next((v for v in self.inventory.gpu(pci).vgpus if (v.function, v.uuid) == (function, uuid)), None)
        action = DestroyVgpu(
            gpu=pci, reason="", function=function, type_id=type_id, type="", uuid=uuid, ownership_token=claim
        )

        def act() -> None:
            if there is None or (there.type_id, there.ownership_token) != (type_id, claim):
                raise StepRefusedError("IN_USE: another vGPU lies there")
            if there.holders:
                raise StepRefusedError("IN_USE: a virtual machine has it open")
            self._step(action)

        self._write(f"destroy-vgpu {pci} {function} {type_id}", act)

    def set_passthrough(self, pci: str, on: bool, function: str = "") -> None:
        action = SetPassthrough(gpu=pci, reason="", on=on, function=function)
        self._write(f"passthrough {pci} {on} {function}".rstrip(), lambda: self._step(action))

    def _type(self, pci: str, type_id: int) -> str:
        table = self.inventory.vgpu_table(self.inventory.gpu(pci))
        return table.by_id[type_id].name if table and type_id in table.by_id else ""

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.suspended = True
        yield
        self.suspended = False

    def close(self) -> None:
        pass

    def reset(self, pci: str) -> None:
        assert self.suspended, "Aliquot's own session must be closed before a reset"
        self.writes += 1
        self.before(self.writes, f"reset {pci}")
        self.log.append(f"reset {pci}")
        gpu = self.inventory.gpu(pci)
        self._put(replace(gpu, mig=replace(gpu.mig, current=gpu.mig.pending), instances=()))

    def terminate(self, pid: int) -> None:
        """Remove every holder."""
        self.terminated.append(pid)
        for gpu in self.inventory.gpus:
            free = tuple(
                replace(
                    i,
                    held=False,
                    holders=(),
                    compute_instances=tuple(replace(c, holders=()) for c in i.compute_instances),
                )
                for i in gpu.instances
            )
            vgpus = tuple(replace(v, holders=()) for v in gpu.vgpus)
            virtual = gpu.virtual
            if virtual is not None:
                functions = tuple(replace(f, holders=()) for f in virtual.functions)
                virtual = replace(virtual, functions=functions)
            self._put(replace(gpu, instances=free, holders=(), vgpus=vgpus, virtual=virtual))

    def _put(self, gpu: Gpu) -> None:
        gpus = tuple(gpu if g.pci == gpu.pci else g for g in self.inventory.gpus)
        self.inventory = replace(self.inventory, gpus=gpus)


class MemoryJournal:
    """A journal in a list. The n-th append (from 1) fails as on a full disk if ``fail_at`` is n. ``on_append`` may
    raise KilledError.
    """

    boot = "boot-1"

    def __init__(self) -> None:
        self.lines: list[JournalEntry] = []
        self.fail_at: int | None = None
        self.appends = 0
        self.on_append: Callable[[int], None] = lambda n: None
        self.runs = 0

    def append(self, record: JournalEntry, *, durable: bool) -> None:
        self.appends += 1
        if self.fail_at is not None and self.appends >= self.fail_at:
            raise StorageError("no space left on device", next_step="free some space")
        self.on_append(self.appends)
        self.lines.append(record)

    def entries(self) -> Sequence[JournalEntry]:
        last = self.lines[-1].run if self.lines else ""
        return [r for r in self.lines if r.run == last]

    def new_run(self) -> str:
        self.runs += 1
        return f"run-{self.runs}"


class CountingClock:
    def __init__(self) -> None:
        self.t = 0.0

    def now(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds


class NoLock:
    @contextmanager
    def hold(self) -> Iterator[None]:
        yield


class OneByOne:
    def run(self, jobs: Sequence[Callable[[], T]], stop: Callable[[], None] = lambda: None) -> list[T]:
        return [job() for job in jobs]


class Recorder:
    """Hooks that record their names. ``fails`` is the name of a hook whose command fails."""

    def __init__(self) -> None:
        self.fired: list[str] = []
        self.fails = ""

    def fire(self, name: str) -> None:
        self.fired.append(name)
        if name == self.fails:
            raise AliquotError(f"hook {name} failed")


class Bench:
    """An environment and the handles on its parts."""

    def __init__(self, inventory: Inventory) -> None:
        self.memory = Memory(inventory)
        self.journal = MemoryJournal()
        self.clock = CountingClock()
        self.hooks = Recorder()
        self.memory.now = self.clock.now
        self.messages: list[str] = []
        self.context = ExecutionContext(
            self.memory, self.memory, self.journal, self.clock, NoLock(), OneByOne(), self.hooks
        )
