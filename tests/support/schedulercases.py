"""Cases for a kube-scheduler: nodes, slices and classes, then pods one after the other, and what became of each.

``tools/record_scheduler.py`` plays them to a real kube-scheduler and writes its decisions down. A file has each device
of a GPU once, as text in which ``#`` is the number of the GPU; a slice names the devices that it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from support.draallocator import AllocationError, Published, allocate, allocated_devices, extended_claim

JSON = dict[str, Any]
RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "kube-scheduler" / "decisions.json"
NOT_ENOUGH = "cannot allocate all claims"
"""What kube-scheduler reports for a node whose devices do not suffice."""
UNUSABLE = "invalid resource pools"
"""What it reports if that may be due to an invalid pool."""


class Table(msgspec.Struct, frozen=True):
    """Publication of a GPU of one product: the counters of its set, and devices as JSON text."""

    counters: dict[str, str]
    devices: tuple[str, ...]


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of a pod.

    Attributes:
        node: where it was bound; "" if it was refused
        results: of each claim that was allocated for it, by the claim's name ("" for its extended resources):
            ``request``, ``driver``, ``pool``, ``device``, and ``adminAccess`` if granted
        refused: the message of the condition, up to the part about preemption
    """

    node: str = ""
    results: dict[str, list[JSON]] = {}
    refused: str = ""


def slice_object(row: JSON, tables: Mapping[str, Table]) -> JSON:
    """Return the ResourceSlice that a row of a case stands for."""
    spec: JSON = {
        "driver": row["driver"],
        "pool": {
            "name": row["pool"],
            "generation": row.get("generation", 1),
            "resourceSliceCount": row["count"],
        },
        **row["where"],
    }
    if "counters" in row:
        spec["sharedCounters"] = [
            {
                "name": f"gpu-{number}",
                "counters": {name: {"value": value} for name, value in tables[table].counters.items()},
            }
            for table, number in row["counters"]
        ]
    if "devices" in row:
        spec["devices"] = [device for entry in row["devices"] for device in _devices(entry, tables)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": row["name"]},
        "spec": spec,
    }


def _devices(entry: Sequence[Any], tables: Mapping[str, Table]) -> Iterator[JSON]:
    """Yield the devices of ``[table, GPU]``, which are all of it, of ``[table, GPU, position]``, or of ``[table, GPU,
    position, changes]``.
    """
    table, number, *rest = entry
    texts = [tables[table].devices[rest[0]]] if rest else tables[table].devices
    changes = rest[1] if len(rest) > 1 else {}
    for text in texts:
        yield {**json.loads(text.replace("#", str(number))), **changes}


class State:
    """Objects that a scheduler sees while a case is played. The recorded decisions, not predicted ones, move it on."""

    def __init__(self, case: JSON, tables: Mapping[str, Table]) -> None:
        self.tables = tables
        self.nodes = {name: _node(name, extra) for name, extra in case["nodes"].items()}
        self.classes = {name: {"metadata": {"name": name}, "spec": spec} for name, spec in case["classes"].items()}
        self.slices = {row["name"]: slice_object(row, tables) for row in case["slices"]}
        self.claims: dict[str, JSON] = {}
        self.places: dict[str, str] = {}
        """The node of each allocated claim."""

    @classmethod
    def replay(cls, case: JSON, tables: Mapping[str, Table]) -> Iterator[str]:
        """Yield where the allocator disagrees with the recorded decisions of a case."""
        state = cls(case, tables)
        for step in case["steps"]:
            if step["do"] != "pod":
                state.apply(step)
                continue
            decision = msgspec.convert(step["decision"], Decision)
            if text := state.disagreement(step, decision):
                yield f"{step['name']}: {text}"
            state.bound(step, decision)

    def apply(self, step: JSON) -> None:
        """Apply a step that asks nothing of the scheduler."""
        if step["do"] == "slice":
            self.slices[step["slice"]["name"]] = slice_object(step["slice"], self.tables)
        elif step["do"] == "delete":
            for name in step["claims"]:
                self.claims.pop(name, None)

    def bound(self, step: JSON, decision: Decision) -> None:
        """Keep what a pod was given."""
        for name, rows in decision.results.items():
            self.claims[name or f"of {step['name']}"] = {"status": {"allocation": {"devices": {"results": rows}}}}
            self.places[name] = decision.node

    def published(self) -> Published:
        """Return what an allocation reads."""
        return Published(list(self.slices.values()), self.classes, allocated_devices(self.claims.values()))

    def disagreement(self, step: JSON, decision: Decision) -> str:
        """Return how the allocator's answer for a pod differs from a scheduler's, or "" if it does not."""
        answers = {name: self._answer(step, node) for name, node in self._possible(step).items()}
        if decision.node:
            found, wanted = answers.get(decision.node), decision.results
            return "" if found == wanted else f"on {decision.node}: allocator {found}, scheduler {wanted}"
        # An error on one node ends the search on all of them.
        refusals = [found for found in answers.values() if isinstance(found, str)]
        decisive = [text for text in refusals if text != NOT_ENOUGH and not text.startswith(UNUSABLE)]
        expected = decisive or refusals
        if (decisive or len(refusals) == len(answers)) and any(text in decision.refused for text in expected):
            return ""
        return f"allocator {answers}, scheduler refuses: {decision.refused}"

    def _possible(self, step: JSON) -> dict[str, JSON]:
        """Return the nodes that the pod's allocated claims leave."""
        bound = {self.places[name] for name in step.get("uses", []) if name in self.claims}
        return {name: node for name, node in self.nodes.items() if not bound or bound == {name}}

    def _answer(self, step: JSON, node: JSON) -> dict[str, list[JSON]] | str:
        """Return what the allocator gives a pod on a node, or why nothing."""
        claims = dict(_claims(step))
        pod = {"spec": {"containers": [{"resources": one} for one in step.get("containers", [])]}}
        if extra := extended_claim(pod, self.classes.values(), node):
            claims[""] = extra
        try:
            found = allocate(list(claims.values()), node, self.published())
        except AllocationError as error:
            return str(error)
        return NOT_ENOUGH if found is None else dict(zip(claims, found, strict=True))


def _claims(step: JSON) -> Iterator[tuple[str, JSON]]:
    for name, devices in step.get("claims", {}).items():
        yield name, {"spec": {"devices": devices}}


def _node(name: str, extra: JSON) -> JSON:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **extra.get("labels", {})}},
        "status": {"allocatable": extra.get("allocatable", {})},
    }
