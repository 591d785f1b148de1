"""Random histories of a node, its scheduler and its agent, each of which is late: no over-commit, and no allocated
device unpublished or changed.

The scheduler here is written from its documentation and imports nothing of the driver. It takes the first fit in the
slices as it last saw them. Like the real one, it forgets what an allocated device takes that is not published
(kubernetes#140802).
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import ResourceSlice, SliceDevice
from aliquot.kubernetes.dra.model.occupancy import find_occupancy
from aliquot.kubernetes.dra.model.offer import offered_devices
from aliquot.kubernetes.dra.model.publication import next_publication
from aliquot.kubernetes.dra.model.ranking import PublishPolicy, ScoreName, choose_devices
from aliquot.kubernetes.dra.model.slices import build_slices, read_publication
from aliquot.kubernetes.dra.model.validation import find_faults
from aliquot.kubernetes.dra.model.writes import plan_writes
from laws.oracle import raw
from support import factory
from support.selection import dice, parts

NODE = "node-1"
START = datetime(2026, 11, 28, tzinfo=UTC)
LATE_S = 1.0
"""How old the scheduler's slices and the agent's claims are at most. The agent looks at least once in a second."""
SHORTEST_S = 3.0
"""Life of the shortest claim. One that is over before the agent has seen it can be over-committed for a moment."""


class Cluster:
    """The objects that the API server has, with their past."""

    def __init__(self, node: Inventory, policy: PublishPolicy) -> None:
        self.node = node
        self.policy = policy
        self.now = 0.0
        self.naming = DriverNaming()
        self.slices: list[tuple[float, dict[str, ResourceSlice]]] = [(-99.0, {})]
        self.claims: dict[str, float] = {}
        """Allocated devices, with the time since when."""
        self.past: list[tuple[float, frozenset[str]]] = [(-99.0, frozenset())]
        self.hidden = 0
        """How often a free device was tainted."""
        self.seen = {"slices": -99.0, "claims": -99.0}

    def see(self, what: str, late: float) -> float:
        """Return up to when an informer has seen a kind. It never goes back."""
        self.seen[what] = max(self.seen[what], self.now - late)
        return self.seen[what]

    def slices_seen(self, late: float) -> dict[str, ResourceSlice]:
        moment = self.see("slices", late)
        return next(slices for since, slices in reversed(self.slices) if since <= moment)

    def claims_seen(self, late: float) -> frozenset[str]:
        moment = self.see("claims", late)
        return next(claims for since, claims in reversed(self.past) if since <= moment)

    def agent(self, late: float) -> None:
        """Publish by claims as they were a moment ago."""
        allocated = self.claims_seen(late)
        offer = offered_devices(self.node, self.naming)
        current = self.slices[-1][1]
        previous = read_publication(current.values())
        # What is published already is not preferred, so that as many devices as possible are hidden.
        desired = choose_devices(offer, find_occupancy(self.node, offer, allocated), self.policy)
        found = next_publication(previous, desired, allocated, START + timedelta(seconds=self.now), self.policy.layout)
        built = build_slices(found, self.naming, NODE, layout=self.policy.layout)
        assert find_faults(built, NODE) == ()
        writes = plan_writes(tuple(current.values()), built, NODE)
        assert not writes.delete
        assert current == {} or {each.spec.pool.generation for each in writes.update} <= {1}
        state = dict(current)
        for each in (*writes.create, *writes.update):
            state[each.name] = ResourceSlice(ObjectMeta(name=each.name), each.spec)
        before, after = devices_of(current), devices_of(state)
        for name in self.claims:
            assert name in after, f"{name} is allocated and no longer published"
            if name in allocated and name in before:
                assert after[name] == before[name], f"{name} is allocated and changed"
        self.hidden += len(found.hidden.keys() - previous.hidden.keys())
        if writes.count:
            self.slices.append((self.now, state))

    def scheduler(self, profile: str, late: float) -> None:
        """Allocate the first device of a profile that fits, by slices as they were a moment ago."""
        slices = self.slices_seen(late)
        ordered = [each for name in sorted(slices) for each in slices[name].spec.devices]
        left = {
            (one.name, counter): int(value.value)
            for each in slices.values()
            for one in each.spec.shared_counters
            for counter, value in one.counters.items()
        }
        for each in ordered:
            if each.name in self.claims:
                for key, count in uses(each).items():
                    left[key] -= count
        for each in ordered:
            if each.name in self.claims or each.taints or each.attributes["profile"].string_value != profile:
                continue
            if all(left[key] >= count for key, count in uses(each).items()):
                self.claims[each.name] = self.now
                self.remember()
                return

    def release(self, name: str) -> None:
        del self.claims[name]
        self.remember()

    def remember(self) -> None:
        self.past.append((self.now, frozenset(self.claims)))


def uses(device: SliceDevice) -> dict[tuple[str, str], int]:
    return {
        (one.counter_set, counter): int(value.value)
        for one in device.consumes_counters
        for counter, value in one.counters.items()
    }


def devices_of(slices: dict[str, ResourceSlice]) -> dict[str, SliceDevice]:
    return {device.name: device for each in slices.values() for device in each.spec.devices}


def check_legal(cluster: Cluster, family: str) -> None:
    """Check what is allocated against the raw tables."""
    ids = {p["id"]: p["name"] for p in raw.table(family)["profiles"]}
    by_gpu: dict[str, set[raw.Placed]] = {}
    for name in cluster.claims:
        gpu, _, rest = name.partition("-mig-")
        profile_id, start = (int(word) for word in rest.rsplit("-", 2)[1:])
        by_gpu.setdefault(gpu, set()).add((ids[profile_id], start))
    for gpu, state in by_gpu.items():
        assert raw.legal(family, frozenset(state)), f"{gpu} is over-committed: {sorted(state)}"


def history(cluster: Cluster, family: str, random: random.Random, steps: int) -> int:
    """Run random steps, and return how many allocations there were."""
    profiles = [p["name"] for p in raw.table(family)["profiles"]]
    count = 0
    for _ in range(steps):
        cluster.now += random.choice((0.0, 0.05, 0.3, 1.0))
        step = random.random()
        old = [name for name, since in cluster.claims.items() if since <= cluster.now - SHORTEST_S]
        if step < 0.4:
            before = len(cluster.claims)
            cluster.scheduler(random.choice(profiles), random.uniform(0, LATE_S))
            count += len(cluster.claims) - before
            check_legal(cluster, family)
        elif step < 0.6 and old:
            cluster.release(random.choice(old))
        cluster.agent(random.uniform(0, LATE_S))
    return count


@pytest.mark.parametrize("seed", parts(4))
@pytest.mark.parametrize("score", ["fragmentation", "first-fit"])
def test_nothing_is_over_committed_and_nothing_allocated_disappears(score: ScoreName, seed: int) -> None:
    # There is room for few devices, so that free ones are hidden and shown again.
    family = "a100-40gb"
    node = factory.inventory("a100-sxm4-40gb*3", enabled=True)
    cluster = Cluster(node, PublishPolicy(score, per_profile=1, layout=SliceLayout(most_devices=26, reserve=4)))
    cluster.agent(0)
    random = dice(f"publication {score} {seed}")
    assert history(cluster, family, random, 250) > 30
    assert cluster.hidden > 30
