"""A simulated Slurm cluster in this process: records of A100s, a queue, and a clock, for tests of decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.node_layout import PlacedGeometry
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition
from aliquot.slurm.controller.decide import decide
from aliquot.slurm.controller.history import SlurmHistory
from aliquot.slurm.controller.job_demand import JobQueue, job_queue
from aliquot.slurm.controller.layout_gpus import desired_config, profiles_by_type, searchable_gpus
from aliquot.slurm.controller.models import SlurmDecision, SlurmNodeState, SlurmState
from aliquot.slurm.controller.settings import Limits, ManagedNode, PartitionRules, Rules, SlurmControllerSettings
from laws.oracle import mig_nodes as gpus

A100 = "a100-40gb"
Placed = tuple[tuple[str, int], ...]
QUICK = Limits(idle_s=0, between_s=0, per_hour=1000)


@dataclass
class ToyJob:
    """A job that requests ``count`` slices of a profile on each of ``nodes`` nodes, for ``seconds``."""

    id: int
    profile: str
    seconds: float = 10.0
    count: int = 1
    nodes: int = 1
    priority: int = 100
    submitted: float = 0.0
    reason: str = ""
    partition: str = "all"
    user: str = ""
    where: tuple[str, ...] = ()
    ends: float = 0.0
    done: bool = False

    @property
    def running(self) -> bool:
        return bool(self.where) and not self.done

    @property
    def pending(self) -> bool:
        return not self.where and not self.done


@dataclass
class ToyNode:
    """A record: the placed instances of each of its GPUs."""

    placed: list[Placed]
    states: set[str] = field(default_factory=lambda: {"IDLE"})
    reason: str = ""
    features: tuple[str, ...] = ("mig",)
    partitions: tuple[str, ...] = ("all",)
    cuts: int = 0

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for gpu in self.placed for name, _ in gpu)


class Toy:
    """A cluster whose time passes by ``step``: jobs end, jobs start, the controller decides and its changes apply at
    once.
    """

    def __init__(self, nodes: dict[str, ToyNode], settings: SlurmControllerSettings | None = None) -> None:
        self.nodes = nodes
        hosts = tuple(ManagedNode(name, limits=QUICK) for name in nodes)
        self.settings = settings or SlurmControllerSettings(hosts, promise_s=60.0, at_once=100, per_hour=100_000)
        self.jobs: dict[int, ToyJob] = {}
        self.now = 1000.0
        self.history = SlurmHistory()
        self.family = catalog.family(A100)
        self.trace: list[tuple[float, str]] = []

    def submit(self, profile: str, **more: object) -> ToyJob:
        job = ToyJob(len(self.jobs) + 1, profile, submitted=self.now, **more)  # type: ignore[arg-type]
        self.jobs[job.id] = job
        return job

    # -- Slurm

    def used(self, name: str) -> Counter[str]:
        out: Counter[str] = Counter()
        for job in self.jobs.values():
            if job.running and name in job.where:
                out[job.profile] += job.count
        return out

    def schedule(self) -> None:
        """End jobs whose time is over. Start the jobs that fit, by priority, and backfill the others."""
        for job in self.jobs.values():
            if job.running and job.ends <= self.now:
                job.done = True
        seen: set[str] = set()
        for job in sorted(self.jobs.values(), key=lambda j: (-j.priority, j.submitted, j.id)):
            if not job.pending:
                continue
            fits = [
                name
                for name, node in self.nodes.items()
                if "DRAIN" not in node.states
                and job.partition in node.partitions
                and (node.counts - self.used(name))[job.profile] >= job.count
            ]
            if len(fits) >= job.nodes:
                job.where, job.ends = tuple(fits[: job.nodes]), self.now + job.seconds
            else:
                job.reason = "Priority" if job.partition in seen else "Resources"
                seen.add(job.partition)

    # -- the controller

    def inventory(self, name: str) -> Inventory:
        found: list[Gpu] = []
        for n, placed in enumerate(self.nodes[name].placed):
            found.append(gpus.gpu(self.family, placed, pci=f"0000:0{n}:00.0"))
        return gpus.node(*found)

    def environment(self) -> SlurmState:
        records = []
        for host in self.settings.hosts:
            jobs = [j for j in self.jobs.values() if j.running and host.name in j.where]
            inventory = self.inventory(host.name)
            failure = self.history.failures.get(host.name)
            records.append(
                SlurmNodeState(
                    host=host,
                    node=self.node(host.name),
                    gpus=searchable_gpus(inventory, (), host.rules, "profile"),
                    names=profiles_by_type(inventory, "profile"),
                    jobs=len(jobs),
                    idle_since=self.history.idle.get(host.name, self.now),
                    last_change=self.history.last_change_time(host.name),
                    recent=self.history.recent(self.now, host.name),
                    failure=failure.why if failure else "",
                    retry_at=failure.retry_at if failure else 0.0,
                )
            )
        recent = self.history.recent(self.now)
        causes = self.history.causes(self.now)
        return SlurmState(tuple(records), self.history.promised, self.history.stuck, recent, causes=causes)

    def node(self, name: str) -> SlurmNode:
        node = self.nodes[name]
        counts, used = node.counts, self.used(name)
        return SlurmNode(
            name=name,
            states=frozenset(node.states),
            reason=node.reason,
            features=node.features,
            partitions=node.partitions,
            gres=tuple(Gres("gpu", kind, n) for kind, n in sorted(counts.items())),
            gres_used=tuple(Gres("gpu", kind, n) for kind, n in sorted(used.items())),
            cpus=64,
            memory_mib=500_000,
        )

    def slurm_jobs(self) -> tuple[SlurmJob, ...]:
        return tuple(
            SlurmJob(
                id=j.id,
                state="PENDING" if j.pending else "RUNNING",
                user=j.user,
                reason=j.reason,
                partitions=(j.partition,),
                requested=(("node", Gres("gpu", j.profile, j.count)),),
                node_count=j.nodes,
                priority=j.priority,
                submitted=int(j.submitted),
                nodes=j.where,
            )
            for j in self.jobs.values()
            if not j.done
        )

    def queue(self) -> JobQueue:
        partitions = {p for n in self.nodes.values() for p in n.partitions}
        return job_queue(self.slurm_jobs(), [SlurmPartition(p) for p in partitions], self.settings.layouts, self.now)

    def decide(self) -> SlurmDecision:
        """Observe and decide, without any change."""
        self.schedule()
        busy = {name for j in self.jobs.values() if j.running for name in j.where}
        pending = {j.id for j in self.jobs.values() if j.pending}
        self.history = self.history.with_observation(self.now, [n for n in self.nodes if n not in busy], pending)
        decision = decide(self.environment(), self.queue(), self.settings, self.now)
        self.history = self.history.with_decision(self.now, decision.covered, self.settings.promise_s)
        return decision

    def step(self, seconds: float = 5.0) -> SlurmDecision:
        decision = self.decide()
        for name in decision.resume:
            self.nodes[name].states.discard("DRAIN")
        for drain in decision.drains:
            self.nodes[drain.node_name].states.add("DRAIN")
            self.nodes[drain.node_name].reason = drain.reason
        for repartition in decision.repartitions:
            assert not self.used(repartition.node_name), f"{repartition.node_name} has jobs"
            self.apply_repartition(repartition.node_name, repartition.placements)
            self.history = self.history.with_change(self.now, repartition.node_name, repartition.jobs, repartition.user)
            self.trace.append((self.now, repartition.node_name))
        self.schedule()
        self.now += seconds
        return decision

    def apply_repartition(self, name: str, chosen: dict[str, PlacedGeometry]) -> None:
        node = self.nodes[name]
        assert desired_config(chosen, self.inventory(name))["configs"]
        for pci, placement in chosen.items():
            number = int(pci[6:7])
            node.placed[number] = tuple((self.family.by_id[p].name, start) for p, start in placement or ())
        node.cuts += 1
        node.states.discard("DRAIN")


def toy(*geometries: str, rules: Rules | None = None, limits: Limits = QUICK, **more: object) -> Toy:
    """Build records of one GPU each, partitioned as given: ``toy("7g.40gb", "1g.5gb*7")``. ``more`` are settings."""
    placed: dict[str, Placed] = {
        "": (),
        "7g.40gb": (("7g.40gb", 0),),
        "3g.20gb*2": (("3g.20gb", 0), ("3g.20gb", 4)),
        "1g.5gb*7": tuple(("1g.5gb", n) for n in range(7)),
    }
    nodes = {f"n{n}": ToyNode([placed[text]]) for n, text in enumerate(geometries)}
    hosts = tuple(ManagedNode(name, rules=rules or Rules(), limits=limits) for name in nodes)
    settings = SlurmControllerSettings(hosts, promise_s=60.0, at_once=100, per_hour=100_000)
    return Toy(nodes, msgspec.structs.replace(settings, **more))


__all__ = ["QUICK", "Limits", "PartitionRules", "Rules", "Toy", "ToyJob", "ToyNode", "toy"]
