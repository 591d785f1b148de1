"""Parts of cases: nodes with GPUs, device classes, requests, steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tools.scheduler.tables import DOMAIN

from support.schedulercases import Table

JSON = dict[str, Any]


class CaseBuilder:
    """A case under construction. Names carry the number of the case, because a scheduler plays them all."""

    def __init__(self, kind: str, number: int, tables: dict[str, Table]) -> None:
        self.kind, self.number, self.tables = kind, number, tables
        self.random = random.Random(number)
        self.nodes: dict[str, JSON] = {}
        self.slices: list[JSON] = []
        self.classes: dict[str, JSON] = {}
        self.steps: list[JSON] = []
        self.alive: dict[str, list[str]] = {}
        """Pods that were created, and the claims that go with each."""

    def case(self) -> JSON:
        """Return it as it is recorded."""
        names = ("kind", "number", "nodes", "slices", "classes", "steps")
        return {name: getattr(self, name) for name in names}

    def node(self, letter: str = "a", **extra: JSON) -> str:
        name = f"n{self.number}{letter}"
        self.nodes[name] = extra
        return name

    def partitioned(
        self,
        node: str,
        gpus: Sequence[str],
        *,
        driver: str = DOMAIN,
        pool: str = "",
        prefix: str = "",
        mixed: bool = False,
    ) -> str:
        """Publish GPUs of these products with their partitions: one slice of counters, one of devices for each two.

        ``mixed`` lists the devices in a random order, and the slices in another one than by name.
        """
        pool = pool or f"{node}-pool"
        base = prefix or f"s{self.number}-{node}"
        count = 1 + (len(gpus) + 1) // 2
        head = {"driver": driver, "pool": pool, "count": count, "where": {"nodeName": node}}
        self.slices.append({**head, "name": f"{base}-0", "counters": [[gpu, n] for n, gpu in enumerate(gpus)]})
        for index in range(0, len(gpus), 2):
            rows: list[list[Any]] = [[gpu, index + offset] for offset, gpu in enumerate(gpus[index : index + 2])]
            if mixed:
                rows = self.listed(rows)
                self.random.shuffle(rows)
            number = count - index // 2 if mixed else 1 + index // 2
            self.slices.append({**head, "name": f"{base}-{number}", "devices": rows})
        return pool

    def listed(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return one entry for each device, where an entry may stand for all devices of a GPU."""
        found: list[list[Any]] = []
        for table, number, *rest in rows:
            positions = [rest] if rest else [[position] for position in range(len(self.tables[table].devices))]
            found += [[table, number, *one] for one in positions]
        return found

    def whole(self, node: str, positions: Sequence[int], *, driver: str = DOMAIN, pool: str = "", **more: Any) -> JSON:
        """Publish whole GPUs, by their positions in the table, in one slice. Returns its row."""
        row = {
            "name": f"s{self.number}-{node}-{len(self.slices)}",
            "driver": driver,
            "pool": pool or f"{node}-pool",
            "count": 1,
            "where": {"nodeName": node},
            "devices": [["whole", number, position] for number, position in enumerate(positions)],
            **more,
        }
        self.slices.append(row)
        return row

    def device_class(self, short: str, *expressions: str, resource: str = "") -> str:
        """Add a device class whose selectors are these expressions; returns its name."""
        name = f"k{self.number}-{short.replace('+', '.')}"
        spec: JSON = {"selectors": [{"cel": {"expression": text}} for text in expressions]}
        self.classes[name] = {**spec, "extendedResourceName": resource} if resource else spec
        return name

    def profile_class(self, profile: str, *, driver: str = DOMAIN, resource: str = "") -> str:
        """Add the class of a MIG profile."""
        text = f"device.driver == '{driver}' && device.attributes['{driver}'].profile == '{profile}'"
        return self.device_class(profile, text, resource=resource)

    def pod(self, claims: dict[str, JSON] | None = None, **more: Any) -> str:
        """Add a pod. Its claims are named after it: ``{"a": devices}``."""
        name = f"p{self.number}-{len(self.steps)}"
        named = {f"{name}-{short}": devices for short, devices in (claims or {}).items()}
        self.alive[name] = list(named) or [f"of {name}"]
        self.steps.append({"do": "pod", "name": name, "claims": named, **more})
        return name

    def delete(self, pod: str) -> None:
        """Delete a pod and its claims."""
        self.steps.append({"do": "delete", "pod": pod, "claims": self.alive.pop(pod)})

    def churn(self, count: int, add: Callable[[], object]) -> None:
        """Add pods by ``add`` and delete one now and then."""
        for _ in range(count):
            add()
            if len(self.alive) > 3 and self.random.random() < 0.35:
                self.delete(self.random.choice(sorted(self.alive)))

    def change(self, row: JSON) -> None:
        """Publish a slice again, as ``row``."""
        self.steps.append({"do": "slice", "slice": row})


def exactly(name: str, class_name: str, count: int = 1, **more: Any) -> JSON:
    """Return a request of one kind of device."""
    counted = {"count": count} if count > 1 else {}
    return {"name": name, "exactly": {"deviceClassName": class_name, **counted, **more}}


def devices(*requests: JSON, **more: Any) -> JSON:
    """Return the devices of a claim."""
    return {"requests": list(requests), **more}


def cel(text: str) -> list[JSON]:
    """Return a list of one selector."""
    return [{"cel": {"expression": text}}]
