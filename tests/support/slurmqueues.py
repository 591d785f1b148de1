"""Queues as events, and what a Slurm cluster ran after each, as ``tests/recorded/queues`` has them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec

from support.slurmmodel import Booking, ModelJob, ModelNode, SlurmModel

PLACE = Path(__file__).parents[1] / "recorded" / "queues"


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as it is submitted. ``tasks`` > 0 makes it an array."""

    number: int
    kind: str
    count: int = 1
    nodes: int = 1
    minutes: int = 10
    priority: int = 100
    tasks: int = 0

    def jobs(self) -> Iterator[ModelJob]:
        """Yield the model's jobs: one for each task."""
        job = ModelJob(
            str(self.number),
            self.kind,
            self.count,
            self.nodes,
            self.minutes * 60,
            self.priority,
            self.number * 1000,
        )
        if not self.tasks:
            yield job
        for task in range(self.tasks):
            yield msgspec.structs.replace(
                job, id=f"{self.number}_{task}", order=job.order + task, array=str(self.number)
            )


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Jobs that Slurm gets while their partition is down, so that it considers them together."""

    jobs: tuple[Request, ...]


class End(msgspec.Struct, frozen=True, tag="end"):
    """Jobs that end."""

    jobs: tuple[str, ...]


class Reserve(msgspec.Struct, frozen=True, tag="reserve"):
    """A reservation of a node, in so many minutes."""

    node: str
    start: int
    minutes: int


class Open(msgspec.Struct, frozen=True, tag="open"):
    """A node that is drained or resumed."""

    node: str
    open: bool


Event = Submit | End | Reserve | Open


class Step(msgspec.Struct, frozen=True):
    """An event, its time in seconds from the beginning, and the nodes of each running job afterwards."""

    at: int
    event: Event
    running: dict[str, str]
    reasons: dict[str, str] = {}
    """The pending reason of the other jobs."""


class Recording(msgspec.Struct, frozen=True):
    """A queue on nodes with these devices by type, and its steps. ``unavailable`` are nodes that never answer."""

    seed: int
    nodes: dict[str, dict[str, int]]
    steps: tuple[Step, ...]
    unavailable: tuple[str, ...] = ()


def model_of(nodes: dict[str, dict[str, int]], unavailable: tuple[str, ...]) -> SlurmModel:
    return SlurmModel({name: ModelNode(counts, open=name not in unavailable) for name, counts in nodes.items()})


def apply(model: SlurmModel, event: Event, at: float) -> None:
    """Apply to the model what the event did to the cluster."""
    match event:
        case Submit(jobs):
            model.submit(job for request in jobs for job in request.jobs())
        case End(jobs):
            for job in jobs:
                model.end(job)
        case Reserve(node, start, minutes):
            begin = at + 60 * start
            model.reservations.append(Booking(frozenset({node}), begin, begin + 60 * minutes))
        case Open(node, is_open):
            model.nodes[node].open = is_open


def replayed(recording: Recording) -> Iterator[tuple[Step, SlurmModel]]:
    """Yield each step and the model after it."""
    model = model_of(recording.nodes, recording.unavailable)
    for step in recording.steps:
        apply(model, step.event, step.at)
        model.settle(step.at)
        yield step, model


def load(release: str) -> list[Recording]:
    """Return the recorded queues of a release of Slurm."""
    text = gzip.decompress((PLACE / f"{release}.json.gz").read_bytes())
    return msgspec.json.decode(text, type=list[Recording])


def save(release: str, recordings: list[Recording]) -> None:
    PLACE.mkdir(exist_ok=True)
    text = b"[" + b",\n".join(msgspec.json.encode(each, order="sorted") for each in recordings) + b"]\n"
    (PLACE / f"{release}.json.gz").write_bytes(gzip.compress(text, mtime=0))
