"""Whatever claims come and go, the published slices never let kube-scheduler over-commit a GPU.

``support/draallocator`` decides as kube-scheduler 1.36 does, and the raw tables judge the result.
"""

from __future__ import annotations

import random
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, OWN_DRIVER, DriverNaming
from support.draallocator import Published, allocate
from support.drafleet import FleetNode, classes
from support.factory import inventory
from support.selection import dice, samples

JSON = dict[str, Any]
ARRIVAL = timedelta(seconds=0.4)
"""Between two claims. A device is tainted for twelve of them before it is removed."""
START = datetime(2026, 11, 28, tzinfo=UTC)


class Fleet:
    """Nodes, claims, and a publisher that learns of allocations ``lag`` arrivals late. A claim may end before that."""

    def __init__(self, nodes: list[FleetNode], dice: random.Random, lag: int) -> None:
        self.nodes, self.dice, self.lag = nodes, dice, lag
        self.classes = classes(nodes)
        self.held: dict[str, list[str]] = {node.name: [] for node in nodes}
        self.past: deque[dict[str, list[str]]] = deque(maxlen=lag + 1)
        self.now = START
        self.refused = self.bound = 0

    def step(self) -> None:
        """Publish by what the publisher knows, then let a claim arrive, and now and then one end."""
        self.past.append({name: list(names) for name, names in self.held.items()})
        for node in self.nodes:
            node.publish(self.past[0][node.name], self.now)
        self.now += ARRIVAL
        self._arrive()
        if self.dice.random() < 0.45:
            name = self.dice.choice(list(self.held))
            if self.held[name]:
                self.held[name].remove(self.dice.choice(self.held[name]))

    def _arrive(self) -> None:
        kind = self.dice.choice([name for name in self.classes if name.startswith("mig-")])
        count = self.dice.choice((1, 1, 1, 2))
        claim = {
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": kind, "count": count}}]}}
        }
        for node in self.dice.sample(self.nodes, len(self.nodes)):
            driver = node.naming.driver
            held = frozenset((driver, node.pool, name) for name in self.held[node.name])
            found = allocate([claim], {"metadata": {"name": node.name}}, Published(node.published, self.classes, held))
            if found is not None:
                self.held[node.name] += [row["device"] for row in found[0]]
                self.bound += 1
                return
        self.refused += 1

    def illegal(self) -> list[str]:
        return [text for node in self.nodes for text in node.illegal(self.held[node.name])]


@pytest.mark.parametrize("lag", [0, 3, 8])
@pytest.mark.parametrize(
    ("products", "driver"),
    [
        (("a100-sxm4-40gb*4", "a30-24gb*2"), OWN_DRIVER),
        (("h100-80gb-sxm*8", "a30-24gb*4"), NVIDIA_DRIVER),
    ],
)
def test_no_gpu_is_over_committed(products: tuple[str, ...], driver: str, lag: int) -> None:
    naming = DriverNaming(driver)
    nodes = [FleetNode(f"n{n}", inventory(product, enabled=True), naming) for n, product in enumerate(products)]
    fleet = Fleet(nodes, dice(f"dra fleet {products} {lag}"), lag)
    for _ in range(samples(240)):
        fleet.step()
        assert fleet.illegal() == []
    assert fleet.bound > 20
    assert fleet.refused > 0


def test_the_check_notices_a_device_that_is_removed_while_a_claim_has_it() -> None:
    node = FleetNode("n0", inventory("a100-sxm4-40gb", enabled=True), DriverNaming())
    fleet = Fleet([node], dice("dra fleet removal"), 0)
    seen = False
    for _ in range(200):
        fleet.step()
        held = set(fleet.held["n0"])
        for row in node.published:
            row["spec"]["devices"] = [one for one in row["spec"].get("devices", []) if one["name"] not in held]
        fleet._arrive()
        seen = seen or bool(fleet.illegal())
    assert seen
