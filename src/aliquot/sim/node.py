"""A simulated node at run time: its GPUs, its NVML sessions, its faults, and the execution of a write call.

External effects (clock, sleep, kill, disk) come from a ``SimEnvironment``, so that tests run a node in memory.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import NamedTuple

from aliquot.foundation.callbacks import Report
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import latency
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.events import XID_FALLEN_OFF_BUS, EventLog
from aliquot.sim.faults import FaultInjector
from aliquot.sim.session import CallerGoneError, SimSession
from aliquot.sim.state import WHOLE, GpuState, KillPhase, NodeState
from aliquot.sim.template import name_uuid


class SimEnvironment(NamedTuple):
    """The external effects of a node, provided by the server."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    kill: Callable[[int], None]
    save: Callable[[NodeState], None]
    log: Report


class DriverWrite(NamedTuple):
    """A write call: its NVML name without the prefix, and its target."""

    name: str
    gpu: int
    gi: int = WHOLE
    ci: int = WHOLE
    profile: int = WHOLE
    placement: str = ""


STALL_POLL_S = 0.02
"""Seconds between checks of a hanging call whether its fault was cleared, and whether its caller still exists."""


class SimNode:
    """A simulated node. Calls for different GPUs run in parallel, writes to one GPU one after another."""

    def __init__(self, state: NodeState, environment: SimEnvironment, seq: int = 0) -> None:
        self.state = state
        self.environment = environment
        self.seq = seq
        self.faults = FaultInjector(state.faults)
        self.gpus = [SimGpu(g, state.driver_major) for g in state.gpus]
        self.events = EventLog()
        self.sessions: dict[str, SimSession] = {}
        self._write_locks = [threading.Lock() for _ in range(len(self.gpus) + 1)]
        self._lock = threading.RLock()
        self.structure = 0
        self.files: object = None
        """The file tree, built by the simulated kernel."""

    # -- sessions

    def join(self, token: str, caller: SimSession) -> SimSession:
        """Add a connection to a session, which its first connection opens. Raises NvmlRefusalError if opening fails."""
        if token not in self.sessions:
            self.stall(caller, "Init")
        with self._lock:
            session = self.sessions.get(token)
            if session is None:
                refused = self.faults.init_refusal()
                self.record(caller, "Init", refused or 0)
                if refused:
                    raise NvmlRefusalError(refused)
                session = self.sessions[token] = caller
            session.connections += 1
            return session

    def leave(self, session: SimSession) -> None:
        """Remove a connection; the last one ends the session."""
        with self._lock:
            session.connections -= 1
            if session.connections <= 0 and self.is_open(session):
                del self.sessions[session.token]
                self.record(session, "Shutdown", 0)

    def end(self, session: SimSession) -> None:
        """Execute nvmlShutdown."""
        with self._lock:
            if self.sessions.pop(session.token, None) is not None:
                self.record(session, "Shutdown", 0)

    @property
    def lock(self) -> threading.RLock:
        """The lock for access to the state of more than one GPU."""
        return self._lock

    def write_lock(self, gpu: int) -> threading.Lock:
        """Return the lock that serializes writes to one GPU; WHOLE is for writes that affect no GPU."""
        return self._write_locks[gpu]

    def files_changed(self) -> None:
        """Record that the kernel's files changed: holders of a tree build a new one."""
        self.structure += 1

    @property
    def visible(self) -> list[SimGpu]:
        """The GPUs that NVIDIA's driver has, in the order of NVML's indexes."""
        return [g for g in self.gpus if g.visible]

    def index(self, gpu: SimGpu) -> int:
        """Return NVML's index of a GPU; -1 if another driver has it."""
        return self.visible.index(gpu) if gpu.visible else -1

    def is_open(self, session: SimSession) -> bool:
        return self.sessions.get(session.token) is session

    def has_other_sessions(self, session: SimSession) -> bool:
        return any(s is not session for s in self.sessions.values())

    def reboot(self, boot_id: str, host: str | None = None) -> None:
        """End every client, instance, virtual function and process; the GPU determines what remains of MIG mode.
        ``host`` boots another kernel with that kind of vGPU host driver (see GpuState).
        """
        with self._lock:
            for gpu in self.gpus:
                gpu.state.host = gpu.state.host if host is None else host
                gpu.reboot()
            self.state.vms = []
            self.state.dynamic_ids = []
            self.files_changed()
            self.sessions.clear()
            self.faults.active.clear()
            self.state.boots += 1
            self.state.boot_id = boot_id or name_uuid(f"{self.state.boot_id}/{self.state.boots}")
            self.save()

    def replace_driver(self, version: str) -> None:
        """Replace the kernel driver by one of another version. Every session and handle becomes invalid, and all users
        of the driver end. The GPU determines what remains of MIG mode, as after a reset.
        """
        with self._lock:
            self.state.driver = version
            for gpu in self.gpus:
                gpu.driver_major = self.state.driver_major
                if gpu.visible:
                    gpu.reload()
            self.state.vms = []
            self.sessions.clear()
            self.files_changed()
            self.save()

    # -- the log

    def record(
        self,
        session: SimSession,
        call: str,
        rc: int,
        gpu: int = WHOLE,
        gi: int = WHOLE,
        ci: int = WHOLE,
        *,
        more: str = "",
    ) -> None:
        """Append one line to the call log. Every call that reaches the node has one."""
        pci = f'"{self.state.gpus[gpu].pci}"' if 0 <= gpu < len(self.state.gpus) else "null"
        hand = ',"hand":true' if session.hand else ""
        with self._lock:
            self.seq += 1
            self.environment.log(
                f'{{"seq":{self.seq},"call":"{call}","gpu":{pci},"instance":{gi if gi >= 0 else "null"},'
                f'"compute_instance":{ci if ci >= 0 else "null"},"rc":{rc},"pid":{session.pid}{more}{hand}}}\n'
            )

    def save(self) -> None:
        with self._lock:
            self.environment.save(self.state)

    # -- writing

    def gpu(self, index: int) -> SimGpu:
        """Return the GPU of a handle, which is its position on the bus. Raises INVALID_ARGUMENT, also for a GPU that is
        bound to another driver.
        """
        if not 0 <= index < len(self.gpus) or not self.gpus[index].visible:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        return self.gpus[index]

    def lose(self, gpu: SimGpu) -> None:
        """Remove the GPU from the bus, with its last event (an estimate: the event is delivered)."""
        gpu.state.lost = True
        self.events.emit(gpu.state.index, XID_FALLEN_OFF_BUS, WHOLE, WHOLE)

    def privileged(self, session: SimSession) -> bool:
        return session.privileged and self.faults.privileged

    def stall(self, session: SimSession, call: str, gpu: int = WHOLE) -> None:
        """Delay a call as the faults ``slow`` and ``hang`` require. Raises CallerGoneError if its caller ends
        meanwhile.
        """
        if session.hand or not self.faults.active:
            return
        with self._lock:
            seconds = self.faults.delay(call, gpu)
        if seconds:
            self.environment.sleep(seconds)
        while self.faults.hangs(call, gpu):
            if session.caller_ended():
                raise CallerGoneError
            self.environment.sleep(STALL_POLL_S)

    def write(
        self, session: SimSession, call: DriverWrite, apply: Callable[[SimGpu], int], step: str = "", slices: int = 0
    ) -> int:
        """Execute one write call: faults, the action, its duration, disk, log. Return the action's number."""
        gpu = self.gpu(call.gpu)
        self.stall(session, call.name, call.gpu)
        with self._write_locks[call.gpu]:
            kill_phase = None if session.hand else self.kill_phase()
            if kill_phase == "before":
                self.kill(session)
            rc, number, loses = codes.SUCCESS, WHOLE, False
            try:
                number = self._apply(session, call, gpu, apply)
            except NvmlRefusalError as refusal:
                rc = refusal.code
            else:
                self._take_time(call, step, slices)
                loses = not session.hand and self.faults.loses(call.gpu)
                if loses:
                    self.lose(gpu)
                replaced = None if session.hand else self.faults.replacement_driver()
                if replaced:
                    self.replace_driver(replaced)
                if call.name == "DeviceCreateGpuInstance" or call.name == "DeviceCreateGpuInstanceWithPlacement":
                    rc = codes.UNKNOWN if not session.hand and self.faults.half_creates(call.gpu, "gpu") else rc
            self.save()
            self._record_write(session, call, rc, number)
            if kill_phase == "after":
                self.kill(session)
            if rc:
                raise NvmlRefusalError(rc)
            return number

    def _apply(self, session: SimSession, call: DriverWrite, gpu: SimGpu, apply: Callable[[SimGpu], int]) -> int:
        if not session.hand:
            with self._lock:
                refused = self.faults.refusal(call.name, call.gpu, call.gi, self.environment.now())
                if call.name.startswith("GpuInstanceCreateCompute") and self.faults.half_creates(call.gpu, "compute"):
                    refused = codes.UNKNOWN
            if refused:
                raise NvmlRefusalError(refused)
        if gpu.state.lost:
            raise NvmlRefusalError(codes.GPU_IS_LOST)
        before = self._effectless(session, call, gpu)
        number = apply(gpu)
        if before is not None:
            for field in before.__struct_fields__:
                setattr(gpu.state, field, getattr(before, field))
        return number

    def _effectless(self, session: SimSession, call: DriverWrite, gpu: SimGpu) -> GpuState | None:
        """Return the state to restore after a call that succeeds without effect; None for a normal call."""
        with self._lock:
            if session.hand or not self.faults.has_no_effect(call.name, call.gpu):
                return None
            return copy.deepcopy(gpu.state)

    def _take_time(self, call: DriverWrite, step: str, slices: int) -> None:
        if self.state.latency == "none" or not step:
            return
        gpu = self.gpus[call.gpu]
        model = gpu.table.family.slot_model if gpu.table is not None else "eighths"
        self.environment.sleep(latency.seconds(step, slices, gpu.state.architecture, model))

    def _record_write(self, session: SimSession, call: DriverWrite, rc: int, number: int) -> None:
        gi, ci = call.gi, call.ci
        if rc in (codes.SUCCESS, codes.UNKNOWN) and number >= 0:
            gi = number if call.name.startswith("DeviceCreateGpuInstance") else gi
            ci = number if call.name.startswith("GpuInstanceCreateCompute") else ci
        more = ',"write":true'
        more += f',"profile_id":{call.profile}' if call.profile >= 0 else ""
        more += f',"placement":"{call.placement}"' if call.placement else ""
        self.record(session, call.name, rc, call.gpu, gi, ci, more=more)

    def kill_phase(self) -> KillPhase | None:
        """Count a write. Return ``before`` or ``after`` if the caller is killed at this one."""
        with self._lock:
            return self.faults.kill()

    def kill(self, session: SimSession) -> None:
        """Kill the caller because of a fault. Raises CallerGoneError."""
        self.save()
        self.environment.kill(session.pid)
        raise CallerGoneError
