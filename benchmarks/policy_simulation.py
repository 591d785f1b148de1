"""GPUs, a queue and a virtual clock around the Slurm controller: its ports are answered by the model of Slurm.

The controller is the real one, with its rounds and limits. Slurm's scheduler is the model that reproduces recorded
start orders (``support.slurmmodel``). A change takes the recorded time of its GPU calls and of Slurm.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from benchmarks import times
from benchmarks.policy_cases import PROFILES, Case, CaseJob

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition, SlurmReservation
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.loop import SlurmController
from aliquot.slurm.controller.ports import ControllerPorts
from aliquot.slurm.controller.remote_nodes import RemoteChangeOutcome, RemoteNodeFacts
from aliquot.slurm.controller.settings import BOARD_LIMITS, Limits, ManagedNode, default_settings
from laws.oracle import mig_nodes
from support.slurmmodel import Booking, ModelJob, ModelNode, SlurmModel

FAMILY = catalog.family("a100-40gb")
SLICES = 7
"""Compute slices of a GPU, and slots of a board."""
EPOCH = 1_000_000.0
"""The controller's time at the beginning of a case; a change at time 0 would look like one that never was."""
SLURM_S = 3.8
"""Seconds of a change and until a job starts, without the GPU calls: the medians of E12 (2.0 s and 1.8 s)."""
LOOKS_S = (1.0, 5.0, 10.0, 15.0, 30.0, 60.0, 65.0, 120.0, 125.0, 300.0)
"""When the controller decides after an event: at its next poll, and when one of its limits may have ended.

In between nothing changes, and each of its other rounds would decide the same.
"""
STATIC, DYNAMIC, BOARD = KINDS = ("static", "dynamic", "board")
"""The layouts stay; a node without jobs is repartitioned; or the idle instances of a node are, beside its jobs."""


@dataclass
class Slot:
    """An instance on a GPU, and the job that has it."""

    gpu: int
    profile: str
    start: int
    job: str = ""

    @property
    def index(self) -> int:
        """The number of the slot on a board."""
        return SLICES * self.gpu + self.start


@dataclass
class Simulation(Executor):
    """A case, on nodes of one of ``KINDS``."""

    case: Case
    kind: str = DYNAMIC
    now: float = 0.0
    served: float = 0.0
    drained: float = 0.0
    changes: int = 0
    starts: dict[str, float] = field(default_factory=dict)
    submitted: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why the controller drained a node."""

    def __post_init__(self) -> None:
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._jobs: dict[str, tuple[int, CaseJob]] = {}
        self._changing: set[str] = set()
        self._changed = False
        self._looks: set[float] = set()
        self._slots = {
            f"n{n}": [Slot(g, *each) for g, placed in enumerate(node) for each in placed]
            for n, node in enumerate(self.case.nodes)
        }
        self._gpus = {f"n{n}": len(node) for n, node in enumerate(self.case.nodes)}
        self.model = SlurmModel({name: ModelNode(self._counts(name)) for name in self._slots})
        board = self.kind == BOARD
        limits = BOARD_LIMITS if board else Limits()
        hosts = tuple(ManagedNode(name, limits=limits, slots=board) for name in self._slots)
        chosen = msgspec.structs.replace(default_settings(hosts), placeholders=False, style="profile")
        ports = ControllerPorts(cast(Slurm, self), self, _Clock(self), self, lambda _: None)
        self.controller = SlurmController(chosen, ports, SlurmHistory(), lambda _: None)

    def seconds(self, name: str) -> float:
        """Return how long a task runs."""
        return self._jobs[name][1].seconds

    def priority(self, name: str) -> int:
        return self._jobs[name][1].priority

    # -- time

    def run(self) -> None:
        """Run the case to its end."""
        for number, job in enumerate(self.case.jobs, 1):
            self._at(job.at, self._submission(number, job))
        if self.case.reserved:
            node, start, end = self.case.reserved
            self.model.reservations.append(Booking(frozenset({f"n{node}"}), start, end))
            self._at(end, self._look_later)
        while self._events and self._events[0][0] < self.case.horizon_s:
            when = self._events[0][0]
            self._pass(when - self.now)
            while self._events and self._events[0][0] == when:
                heapq.heappop(self._events)[2]()
            self._settle()
        self._pass(self.case.horizon_s - self.now)

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def _pass(self, seconds: float) -> None:
        """Count the slice-seconds that jobs get, and those that wait for a node which takes no jobs."""
        for name, slots in self._slots.items():
            busy = sum(PROFILES[slot.profile] for slot in slots if slot.job)
            self.served += busy * seconds
            if not self.model.nodes[name].open:
                self.drained += (SLICES * self._gpus[name] - busy) * seconds
        self.now += seconds

    def _settle(self) -> None:
        """Let Slurm start jobs, unless nothing has changed since it did: time alone lets no job start."""
        if not self._changed:
            return
        self._changed = False
        for started in self.model.settle(self.now):
            self._take(started.nodes[0], started.job)
            self.starts[started.job.id] = self.now
            self._at(self.now + self._jobs[started.job.id][1].seconds, self._ending(started.job.id))
            self._look_later()

    def _look_later(self) -> None:
        """Note that something has changed, and let the controller decide about it."""
        self._changed = True
        for after in LOOKS_S:
            if (when := float(round(self.now + after))) not in self._looks:
                self._looks.add(when)
                self._at(when, self._look)

    def _look(self) -> None:
        """Run a round of the controller after Slurm has done what it can."""
        self._looks.discard(self.now)
        self._settle()
        if self.model.pending and self.kind != STATIC:
            self.controller.round()

    # -- the queue

    def _submission(self, number: int, job: CaseJob) -> Callable[[], None]:
        def act() -> None:
            for task in range(job.tasks):
                name = f"{number}_{task}"
                array = str(number) if job.tasks > 1 else ""
                limit, order = job.limit_s or int(job.seconds), number * 1000 + task
                one = ModelJob(name, job.profile, job.count, 1, limit, job.priority, order, array=array)
                self._jobs[name] = (number, job)
                self.submitted[name] = self.now
                self.model.submit([one])
            self._look_later()

        return act

    def _ending(self, name: str) -> Callable[[], None]:
        def act() -> None:
            self.model.end(name)
            for slots in self._slots.values():
                for slot in slots:
                    slot.job = "" if slot.job == name else slot.job
            self._look_later()

        return act

    def _take(self, node: str, job: ModelJob) -> None:
        free = [slot for slot in self._slots[node] if slot.profile == job.kind and not slot.job]
        assert len(free) >= job.count, "Slurm's model started a job without devices"
        for slot in free[: job.count]:
            slot.job = job.id

    def _counts(self, node: str) -> Counter[str]:
        return Counter(slot.profile for slot in self._slots[node])

    # -- changes

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run what the controller gives to its threads: reading a node takes no time, a change its own."""
        future: Future[Any] = Future()
        if fn == self.apply:
            host, document = args[:2]
            self._change(host.name, document, future)
        else:
            future.set_result(fn(*args, **kwargs))
        return future

    def _change(self, node: str, document: Mapping[str, Any], future: Future[RemoteChangeOutcome]) -> None:
        entries = document["configs"]["on-demand"]
        wanted = {int(entry["gpus"]["pci"][0][5:7], 16): [_placed(text) for text in entry["mig"]] for entry in entries}
        after = [slot for slot in self._slots[node] if slot.gpu not in wanted]
        before = [slot for slot in self._slots[node] if slot.gpu in wanted]
        known = {(slot.gpu, slot.profile, slot.start): slot for slot in before}
        places = [(gpu, *place) for gpu, placed in wanted.items() for place in placed]
        after += [known.get(place) or Slot(*place) for place in places]
        gone = [slot for key, slot in known.items() if key not in places]
        assert not any(slot.job for slot in gone), f"{node}: a change takes an instance from a job"
        assert self.kind == BOARD or not any(slot.job for slot in before), f"{node} has jobs"
        self.changes += 1
        self._changing.add(node)
        self.model.nodes[node].open = False
        per_gpu = [
            times.seconds(
                times.of(FAMILY.name),
                [slot.profile for slot in gone if slot.gpu == gpu],
                [place[1] for place in places if place[0] == gpu and place not in known],
            )
            for gpu in wanted
        ]

        def act() -> None:
            self._slots[node] = after
            self._changing.discard(node)
            self.model.nodes[node] = ModelNode(self._counts(node))
            future.set_result(RemoteChangeOutcome(0, "done"))
            self._look_later()

        self._at(self.now + SLURM_S + max(per_gpu, default=0.0), act)

    # -- the hosts

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        return RemoteNodeFacts(self._inventory(host.name), slots=self.kind == BOARD)

    def apply(self, host: ManagedNode, config: Mapping[str, object], words: Sequence[str], bound_s: float) -> Any:
        """Raise, because only ``submit`` makes a change, which takes time."""
        raise AssertionError("a change takes time")

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        return RemoteChangeOutcome(0, "done")

    def _inventory(self, name: str) -> Inventory:
        found = []
        for gpu in range(self._gpus[name]):
            slots = [slot for slot in self._slots[name] if slot.gpu == gpu]
            placed = [(slot.profile, slot.start) for slot in slots]
            held = [(slot.profile, slot.start) for slot in slots if slot.job]
            found.append(mig_nodes.gpu(FAMILY, placed, held, pci=f"0000:{gpu:02x}:00.0"))
        return mig_nodes.node(*found)

    # -- Slurm

    through = "model"

    def node(self, name: str) -> SlurmNode:
        node, busy = self.model.nodes[name], [slot for slot in self._slots[name] if slot.job]
        used: dict[str, list[int]] = {}
        for slot in sorted(busy, key=lambda slot: slot.index):
            used.setdefault(slot.profile, []).append(slot.index)
        counts = Counter(node.counts)
        if self.kind == BOARD:  # the slots that begin no instance, and a record for the unused capabilities
            counts["pad"] = SLICES * self._gpus[name] + 1 - counts.total()
        return SlurmNode(
            name=name,
            states=frozenset({"IDLE"} if node.open else {"IDLE", "DRAIN"}),
            reason="" if node.open else self.reasons.get(name, "aliquot: changing"),
            partitions=("all",),
            gres=tuple(Gres("gpu", kind, n) for kind, n in sorted(counts.items())),
            gres_used=tuple(Gres("gpu", kind, len(each), tuple(each)) for kind, each in sorted(used.items())),
            cpus=256,
            cpus_allocated=len(busy),
            memory_mib=1_000_000,
            version="24.11.5",
        )

    def nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(self.node(name) for name in self.model.nodes)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return (SlurmPartition("all"),)

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return tuple(
            SlurmReservation("site", tuple(each.nodes), ("SPEC_NODES",), int(EPOCH + each.start), int(EPOCH + each.end))
            for each in self.model.reservations
        )

    def jobs(self, node: str = "", *, holding: bool = False) -> tuple[SlurmJob, ...]:
        """Return the jobs as Slurm does: one record for all pending tasks of an array."""
        found = [self._record(each.job, "RUNNING", each.nodes) for each in self.model.running.values()]
        waiting: dict[str, list[ModelJob]] = {}
        for job in sorted(self.model.pending.values(), key=lambda job: job.order):
            waiting.setdefault(job.array or job.id, []).append(job)
        return (*found, *(self._record(tasks[0], "PENDING", (), len(tasks)) for tasks in waiting.values()))

    def queue(self, *, details: bool = True) -> tuple[SlurmJob, ...]:
        """Return the same jobs, for a controller that reads only what it needs."""
        return self.jobs()

    def _record(self, job: ModelJob, state: str, nodes: tuple[str, ...], tasks: int = 1) -> SlurmJob:
        number, case = self._jobs[job.id]
        pending = state == "PENDING"
        return SlurmJob(
            id=number * 1000 if pending else job.order + 1,
            state=state,
            user=case.user,
            reason=self.model.reasons.get(job.id, "") if pending else "",
            partitions=("all",),
            nodes=nodes,
            requested=(("node", Gres("gpu", job.kind, job.count)),),
            allocated=tuple((name, Gres("gpu", job.kind, job.count, self._indices(name, job.id))) for name in nodes),
            priority=job.priority,
            submitted=int(EPOCH + self.submitted[job.id]),
            eligible=int(EPOCH + self.submitted[job.id]),
            time_limit_s=job.limit_s,
            latest_end=0 if pending else int(EPOCH + self.starts.get(job.id, self.now) + job.limit_s),
            array_job=number * 1000 if job.array else 0,
            array_tasks=tasks,
        )

    def _indices(self, name: str, job: str) -> tuple[int, ...]:
        return tuple(sorted(slot.index for slot in self._slots[name] if slot.job == job))

    def drain(self, name: str, reason: str) -> None:
        self.model.nodes[name].open = False
        self.reasons[name] = reason

    def resume(self, name: str) -> None:
        if name not in self._changing:
            self.model.nodes[name].open = True
            self._look_later()


class _Clock:
    """The controller's clock."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now(self) -> float:
        return EPOCH + self._simulation.now

    def sleep(self, seconds: float) -> None:
        """Take no time: within a round nothing happens here."""


def _placed(text: str) -> tuple[str, int]:
    name, _, start = text.partition("@")
    return name, int(start)


__all__ = ["BOARD", "DYNAMIC", "KINDS", "STATIC", "Simulation"]
