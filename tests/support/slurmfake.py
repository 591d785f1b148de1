"""A simulated Slurm node over simulated GPUs in this process, for behaviour that no real cluster shows on demand.

slurmctld is a table, slurmd registers what the test passes to it, and a test can interrupt between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from aliquot.core.engine.context import ExecutionContext as Gpus
from aliquot.errors import BlockedError, LockedError
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.errors import NoNodeError, NoSlurmError, RefusedError
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf import hostlist
from aliquot.slurm.conf.nodes import node_lines
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.slot_board import ORDER_FILE
from aliquot.slurm.node import device_nodes as devices
from aliquot.slurm.node import host_facts
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node import step_executor as executor
from aliquot.slurm.node import transaction as apply
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext, SlurmChangeOutcome, StateFolders
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings, SlurmStep
from support.simnodes import Node
from unit.core.engine.memory import MemoryJournal, OneByOne, Recorder

WORDS = "CPUs=2 RealMemory=1000 Feature=mig"
MEMORY_MIB = 1000


class Cluster:
    """slurmctld. ``members`` are partitions that name nodes in its memory only."""

    through = "scontrol"

    def __init__(self) -> None:
        self.records: dict[str, SlurmNode] = {}
        self.queue: list[SlurmJob] = []
        self.reserved: list[SlurmReservation] = []
        self.members: dict[str, set[str]] = {"all": {"n1"}}
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda call: None
        self.conf: Path | None = None
        self.release = Version(24, 11, 5)

    def _call(self, what: str) -> None:
        self.calls.append(what)
        self.before(what)

    def version(self) -> Version:
        return self.release

    def settings(self) -> dict[str, str]:
        return {}

    def nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(self.records.values())

    def node(self, name: str) -> SlurmNode:
        self._call(f"look {name}")
        if name not in self.records:
            raise NoNodeError(f"no node {name}")
        partitions = tuple(sorted(p for p, names in self.members.items() if name in names))
        return replace(self.records[name], partitions=partitions)

    def jobs(self, node: str = "") -> tuple[SlurmJob, ...]:
        self._call(f"queue {node}".strip())
        return tuple(j for j in self.queue if not node or node in j.nodes)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return ()

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return tuple(self.reserved)

    def reserve(self, reservation: str, node: str, minutes: int) -> None:
        self._call(f"reserve {node}")
        if any(each.name == reservation for each in self.reserved):
            raise RefusedError("Slurm refused: Duplicate reservation name")
        flags = ("MAINT", "IGNORE_JOBS", "SPEC_NODES")
        self.reserved.append(SlurmReservation(reservation, tuple(node.split(",")), flags, 1000, 1000 + 60 * minutes))

    def extend_reservation(self, reservation: str) -> None:
        self._call(f"extend {reservation}")
        if not any(each.name == reservation for each in self.reserved):
            raise RefusedError("Slurm refused: Requested reservation is invalid")
        year = 365 * 86400
        self.reserved = [replace(r, end=r.start + year) if r.name == reservation else r for r in self.reserved]

    def delete_reservation(self, reservation: str) -> None:
        self._call(f"release {reservation}")
        self.reserved = [each for each in self.reserved if each.name != reservation]

    def reconfigure(self) -> None:
        """Read slurm.conf again: the slurmd of each node that it names registers with the GRES of its line."""
        self._call("reconfigure")
        found = conf.read(str(self.conf)) if self.conf else None
        for line in node_lines(found) if found else ():
            for name in line.names:
                gres = grestext.parse_listed(line.get("Gres"))
                now = self.records.get(name, SlurmNode(name, frozenset({"IDLE"}), cpus=2, memory_mib=1000, weight=1))
                self.records[name] = replace(now, gres=gres, slurmd_start=int(time.time()))

    def change(self, name: str, **fields: object) -> None:
        self.records[name] = replace(self.records[name], **fields)

    def drain(self, name: str, reason: str) -> None:
        self._call(f"drain {name}")
        self.change(name, states=self.records[name].states | {"DRAIN"}, reason=reason)

    def resume(self, name: str) -> None:
        self._call(f"resume {name}")
        self.change(name, states=self.records[name].states - {"DRAIN", "DOWN"})

    def requeue(self, job: int) -> None:
        self._call(f"requeue {job}")
        self.queue = [j for j in self.queue if j.id != job]

    def note(self, name: str, extra: str) -> None:
        self.change(name, extra=extra)

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        self.change(name, **{key: int(value) if key == "weight" else value for key, value in words.items()})

    def join(self, partition: str, name: str) -> None:
        self.members[partition].add(name)

    def delete(self, name: str) -> None:
        self._call(f"delete {name}")
        if name not in self.records:
            raise NoNodeError(f"no node {name}")
        del self.records[name]
        for partition, names in self.members.items():
            if partition != "all":
                names.discard(name)


class Slurmd:
    """A slurmd that registers what ``--conf`` says, on a host with ``MEMORY_MIB``. With ``works`` False it starts and
    never registers. ``absent`` is why it cannot be started on this host.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.works = True
        self.absent = ""
        self.log: list[str] = []

    def ready(self) -> None:
        if self.absent:
            raise BlockedError(self.absent)

    def stop(self) -> None:
        self.log.append("stop")

    def start(self, conf: str) -> None:
        self.log.append(f"start {conf}")
        if not self.works:
            return
        if self.cluster.conf:
            self.cluster.reconfigure()
            return
        words = nodeconf.words(conf)
        memory = int(words.get("RealMemory", "0"))
        if memory > MEMORY_MIB:
            self.cluster.records[self.name] = SlurmNode(
                self.name,
                frozenset({"UNKNOWN", "DYNAMIC_NORM", "DRAIN", "INVALID_REG"}),
                gres=grestext.parse_listed(words.get("Gres")),
                reason=f"Low RealMemory (reported:{MEMORY_MIB} < 100.00% of configured:{memory})",
            )
            return
        self.cluster.records[self.name] = SlurmNode(
            self.name,
            frozenset({"IDLE", "DYNAMIC_NORM", *(["DRAIN"] if words.get("State") == "DRAIN" else [])}),
            features=tuple(filter(None, words.get("Feature", "").split(","))),
            gres=grestext.parse_listed(words.get("Gres")),
            cpus=2,
            memory_mib=1000,
            weight=1,
            slurmd_start=int(time.time()),
        )


class Turns:
    """The node's lock, which others hold the first ``busy`` times."""

    busy = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        if self.busy:
            self.busy -= 1
            raise LockedError("another change of this node's GPUs is at work")
        yield


def _absent(*_: object, **__: object) -> None:
    raise NoSlurmError("slurmd does not run here")


def sorted_by_file(files: Mapping[str, str], *_: object, **__: object) -> validate.ParsedFiles:
    """Return the records of gres.conf as slurmd numbers them: by first file if the order file exists, else by type."""
    records = []
    for line in files["gres.conf"].splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        paths = words.get("MultipleFiles") or words["File"]
        records.append((words["Type"], 1, tuple(hostlist.split(paths))))
    by_file = ORDER_FILE in files
    return validate.ParsedFiles(tuple(sorted(records, key=lambda each: each[2][0] if by_file else each[0])))


class Host:
    """A host with two A100 that can be a Slurm node, and the result of a change. ``clock`` runs by sleeping."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, name: str = "n1") -> None:
        self.folder = folder
        self.name = name
        self.cluster = Cluster()
        self.slurmd = Slurmd(self.cluster, name)
        self.node = Node("a100-sxm4-40gb*2")
        self.turns: Any = Turns()
        self.messages: list[str] = []
        self.words = WORDS
        self._patch = patch
        (folder / "etc").mkdir(exist_ok=True)
        (folder / "etc" / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=h\nMaxNodeCount=9\n")
        patch.setattr(devices, "make", lambda *_, **__: ())
        patch.setattr(validate, "parse", _absent)
        patch.setattr(host_facts, "memory_mib", lambda: 0)

    def read_files(self) -> None:
        """Let slurmd validate files."""
        self._patch.setattr(validate, "parse", sorted_by_file)

    def static(self, gres: str) -> None:
        """Give the node a line in slurm.conf, with which its slurmd has registered."""
        path = self.folder / "etc" / "slurm.conf"
        path.write_text(f"{path.read_text()}NodeName={self.name} CPUs=2 RealMemory=1000 Gres={gres}\n")
        self.words = ""
        self.cluster.conf = path
        self.cluster.reconfigure()
        self.cluster.change(self.name, slurmd_start=1000)

    @property
    def settings(self) -> SlurmNodeSettings:
        command = "true"
        etc = str(self.folder / "etc")
        return SlurmNodeSettings(self.name, etc, start=command, stop=command, node_conf=self.words)

    @property
    def context(self) -> SlurmChangeContext:
        node = self.node
        gpus = Gpus(node.whole, node.backend, MemoryJournal(), node.clock, self.turns, OneByOne(), Recorder())
        places = StateFolders(str(self.folder / "lib"), str(self.folder / "run"), simulated=True)
        return SlurmChangeContext(cast(Slurm, self.cluster), gpus, self.slurmd, places, self.name, self.messages.append)

    def apply(
        self, gpus: str, request: str, settings: SlurmNodeSettings | None = None, **more: object
    ) -> SlurmChangeOutcome:
        change = SlurmChange(settings or self.settings, self.node.desired_state(gpus, request))
        return apply.apply(replace(change, **more), self.context)

    def at(self, step: str, hand: Callable[[], None], *, after: bool = False) -> None:
        """Run a callback once, just before or just after a step."""
        act = executor.execute
        left = [hand]

        def acting(now: SlurmStep, record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
            if now == step and left and not after:
                left.pop()()
            done = act(now, record, context)
            if now == step and left:
                left.pop()()
            return done

        self._patch.setattr(executor, "execute", acting)

    @property
    def now(self) -> SlurmNode:
        return self.cluster.node(self.name)


__all__ = ["Cluster", "Host", "Slurmd", "Turns"]
