"""Accepted pods of a real kube-scheduler: all placements published, the agent's publication, and with the extender.

Usage: KUBEBUILDER_ASSETS=FOLDER python benchmarks/dra_nodes.py [--arrivals N] [--seeds 1,2] [--policies full,...]

13 nodes of 8 GPUs (A100-40GB), load 0.9, Poisson arrivals. Profiles and lives are those of the tasks for part of a GPU
in the held-out half of the Alibaba trace, lives clipped to 30 s .. 1 day. A refused pod is lost. Each policy begins in
the state that it reaches after 4,000 simulated arrivals, and then gets the same arrivals. Time is virtual: the
scheduler decides one pod after the other, as fast as it can. No node is short of CPUs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import heapq
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from aliquot.core.model import catalog  # noqa: E402
from aliquot.kubernetes.dra.model.layout import SliceLayout  # noqa: E402
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming  # noqa: E402
from aliquot.kubernetes.dra.model.publication import Publication  # noqa: E402
from aliquot.kubernetes.dra.model.slices import build_slices  # noqa: E402
from support.cluster import RealCluster  # noqa: E402
from support.cluster_components import component, controller_manager, scheduler  # noqa: E402
from support.cluster_real import RealServer, assets  # noqa: E402
from support.draextender import extender, scheduler_settings  # noqa: E402
from support.drafleet import FleetNode, classes, to_json  # noqa: E402
from support.factory import inventory  # noqa: E402

JSON = dict[str, Any]
NODES, GPUS, LOAD, WARM_UP = 13, 8, 0.9, 4000
FAMILY = catalog.family("a100-40gb")
WHOLE = 3911 / 6989
"""Share of tasks that request a whole GPU. They are left out. The data does not mark them, so any row of 7g may be."""
PROFILES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "4g.20gb": 4, "7g.40gb": 7}
BY_SLICES = {count: name for name, count in PROFILES.items()}
TRACE = ROOT / "benchmarks/data/alibaba-gpu-2023-held-out.csv.gz"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
NAMING = DriverNaming(NVIDIA_DRIVER)
POLICIES = ("full", "agent", "extender")
SIZE = {"cpu": "128", "memory": "4Ti", "pods": "1000"}
"""A pod requests one CPU for each memory slice, so that half of the CPUs suffice for all GPUs of a node."""


class Arrival(NamedTuple):
    """A pod: its profile, and when it comes and ends."""

    at: float
    profile: str
    end: float


def arrivals(seed: int, count: int) -> Iterator[Arrival]:
    """Yield Poisson arrivals that request ``LOAD`` of the fleet's memory slices."""
    draw = Random(f"arrivals {seed}")
    with gzip.open(TRACE, "rt") as file:
        every = [
            (BY_SLICES[int(r["slices"])], min(max(float(r["seconds"]), 30.0), 86400.0)) for r in csv.DictReader(file)
        ]
    whole = WHOLE * len(every) / sum(profile == "7g.40gb" for profile, _ in every)
    rows = [row for row in every if row[0] != "7g.40gb" or draw.random() >= whole]
    work = statistics.fmean(size(profile) * seconds for profile, seconds in rows)
    rate = LOAD * NODES * GPUS * FAMILY.memory_slices / work
    at = 0.0
    for _ in range(count):
        at += draw.expovariate(rate)
        profile, seconds = draw.choice(rows)
        yield Arrival(at, profile, at + seconds)


def size(profile: str) -> int:
    return FAMILY.by_name[profile].size


def mask_of(profile: str, start: int) -> int:
    return ((1 << size(profile)) - 1) << start


@cache
def options(mask: int, profile: str) -> tuple[tuple[int, int], ...]:
    """Return the free placements of a profile on a GPU: cost by fragmentation, and start."""
    places = [(p.name, start, p.size) for p in FAMILY.plain_profiles for start in p.starts]
    found = []
    for start in FAMILY.by_name[profile].starts:
        mine = mask_of(profile, start)
        if not mine & mask:
            lost = sum(s for n, at, s in places if mask_of(n, at) & mine and not mask_of(n, at) & mask)
            found.append((lost, start))
    return tuple(found)


class Simulated:
    """The state that a policy reaches, with the default choice of nodes, or the best of the fleet."""

    def __init__(self, policy: str, seed: int) -> None:
        self.policy, self.draw = policy, Random(f"ties {seed}")
        self.masks = [[0] * GPUS for _ in range(NODES)]
        self.running: list[tuple[float, int, int, str, int]] = []

    def play(self, arrival: Arrival) -> None:
        while self.running and self.running[0][0] <= arrival.at:
            _, node, gpu, profile, start = heapq.heappop(self.running)
            self.masks[node][gpu] &= ~mask_of(profile, start)
        cpus = [sum(mask.bit_count() for mask in gpus) for gpus in self.masks]
        found = []
        for node in range(NODES):
            best = self._in_node(node, arrival.profile)
            if best is not None:
                cost, gpu, start = best
                rank = cost if self.policy == "extender" else 0
                found.append((rank, cpus[node], self.draw.random(), node, gpu, start))
        if found:
            *_, node, gpu, start = min(found)
            self.masks[node][gpu] |= mask_of(arrival.profile, start)
            heapq.heappush(self.running, (arrival.end, node, gpu, arrival.profile, start))

    def _in_node(self, node: int, profile: str) -> tuple[int, int, int] | None:
        found = [(c, gpu, s) for gpu in range(GPUS) for c, s in options(self.masks[node][gpu], profile)]
        if self.policy == "full":
            found = [(0, gpu, start) for _, gpu, start in found]
        return min(found, default=None)


class Fleet:
    """The nodes on a real server, and the pods on them."""

    def __init__(self, cluster: RealCluster, policy: str) -> None:
        self.cluster, self.policy = cluster, policy
        made = inventory(f"a100-sxm4-40gb*{GPUS}", enabled=True)
        self.nodes = [FleetNode(f"n{n:02}", made, NAMING) for n in range(NODES)]
        self.allocated: list[set[str]] = [set() for _ in self.nodes]
        self.running: list[tuple[float, str, str, int, str]] = []
        self.waits: list[float] = []
        for node in self.nodes:
            cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": node.name}})
            status = {"allocatable": SIZE, "capacity": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
            cluster.must("PATCH", f"/api/v1/nodes/{node.name}/status", {"status": status})
        for one in classes(self.nodes).values():
            cluster.must("POST", f"{RESOURCES}/deviceclasses", one)

    def begin(self, state: Simulated) -> None:
        """Write the claims of a simulated state, then the slices."""
        names = {(d.pci, d.profile, d.start): d.name for d in self.nodes[0].offer.devices}
        gpus = self.nodes[0].offer.gpus
        for number, (end, node, gpu, profile, start) in enumerate(sorted(state.running)):
            device = names[gpus[gpu], profile, start]
            name = f"first-{number}"
            request = {"name": "gpu", "exactly": {"deviceClassName": f"mig-{profile}.nvidia.com"}}
            self.cluster.must(
                "POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
            )
            pool = self.nodes[node].pool
            result = {"request": "gpu", "driver": NVIDIA_DRIVER, "pool": pool, "device": device}
            status = {"allocation": {"devices": {"results": [result]}}}
            self.cluster.must("PATCH", f"{CLAIMS}/{name}/status", {"status": status})
            spec = self._spec(profile) | {"nodeName": self.nodes[node].name}
            del spec["containers"][0]["resources"]["limits"]  # the claim is the one above
            self.cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": spec})
            self.allocated[node].add(device)
            heapq.heappush(self.running, (end, name, name, node, device))
        for place, fleet_node in enumerate(self.nodes):
            fleet_node.published = self._slices(place)
            for one in fleet_node.published:
                self.cluster.must("POST", f"{RESOURCES}/resourceslices", one)

    def _slices(self, number: int) -> list[JSON]:
        node = self.nodes[number]
        if self.policy == "full":
            devices = tuple(sorted(node.offer.devices, key=lambda d: (d.pci, d.name)))
            layout = SliceLayout(gpus_per_slice=2)
            everything = Publication(devices, node.offer.counter_sets, node.offer.gpus)
            return [to_json(one) for one in build_slices(everything, NAMING, node.name, layout=layout)]
        node.publish(self.allocated[number], datetime.now(UTC))
        return node.published

    def publish(self, number: int) -> None:
        """Write the slices of a node that differ."""
        if self.policy == "full":
            return
        before = {one["metadata"]["name"]: one for one in self.nodes[number].published}
        for one in self._slices(number):
            if one != before[one["metadata"]["name"]]:
                path = f"{RESOURCES}/resourceslices/{one['metadata']['name']}"
                self.cluster.must("PUT", path, {**self.cluster.get(path), "spec": one["spec"]})

    def end(self, now: float) -> None:
        """Delete the pods that have ended, and their claims: no garbage collector runs."""
        gone, changed = [], set()
        while self.running and self.running[0][0] <= now:
            _, pod, claim, node, device = heapq.heappop(self.running)
            self.cluster.must("DELETE", f"{PODS}/{pod}?gracePeriodSeconds=0")
            self.cluster.must("DELETE", f"{CLAIMS}/{claim}")
            if self.cluster.request("GET", f"{CLAIMS}/{claim}").status == 200:
                self.cluster.request("PATCH", f"{CLAIMS}/{claim}", {"metadata": {"finalizers": None}})
            self.allocated[node].discard(device)
            gone.append(claim)
            changed.add(node)
        for claim in gone:
            self._until(lambda claim=claim: self.cluster.request("GET", f"{CLAIMS}/{claim}").status == 404 or None)
        for node in changed:
            self.publish(node)

    def play(self, number: int, arrival: Arrival) -> bool:
        """Create a pod. Return whether the scheduler bound it."""
        self.end(arrival.at)
        name = f"p{number}"
        began = time.monotonic()
        self.cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": self._spec(arrival.profile)})
        pod = self._until(lambda: self._decided(name))
        self.waits.append(time.monotonic() - began)
        node = pod["spec"].get("nodeName")
        if not node:
            self.cluster.must("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            return False
        claim = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        (row,) = self.cluster.get(f"{CLAIMS}/{claim}")["status"]["allocation"]["devices"]["results"]
        place = int(node[1:])
        self.allocated[place].add(row["device"])
        assert self.nodes[place].illegal(self.allocated[place]) == []
        heapq.heappush(self.running, (arrival.end, name, claim, place, row["device"]))
        self.publish(place)
        return True

    @staticmethod
    def _spec(profile: str) -> JSON:
        resources = {"limits": {f"nvidia.com/mig-{profile}": "1"}, "requests": {"cpu": str(size(profile))}}
        return {"containers": [{"name": "c", "image": "none", "resources": resources}]}

    def _decided(self, name: str) -> JSON | None:
        pod: JSON = self.cluster.get(f"{PODS}/{name}")
        conditions = pod["status"].get("conditions") or []
        refused = any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
        return pod if pod["spec"].get("nodeName") or refused else None

    @staticmethod
    def _until(answer: Any) -> Any:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            found = answer()
            if found is not None:
                return found
            time.sleep(0.005)
        raise TimeoutError(answer())


def compare(policy: str, seed: int, count: int) -> tuple[float, float, float]:
    """Return the accepted pods in percent, the same by memory slices, and the median wait in seconds."""
    binaries = assets()
    programs = {name: component(name) for name in ("kube-scheduler", "kube-controller-manager")}
    if binaries is None or None in programs.values():
        raise SystemExit("kube-apiserver, etcd, kube-scheduler and kube-controller-manager are needed")
    every = list(arrivals(seed, WARM_UP + count))
    state = Simulated(policy, seed)
    for arrival in every[:WARM_UP]:
        state.play(arrival)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = RealServer(folder / "server", binaries)
        stack.callback(server.close)
        cluster = RealCluster(server, folder / "cluster")
        (folder / "cluster").mkdir(exist_ok=True)
        cluster.wait_ready()
        fleet = Fleet(cluster, policy)
        fleet.begin(state)
        more = None
        if policy == "extender":
            serving = stack.enter_context(extender(cluster.kubeconfig()))
            fleet._until(lambda: serving.fleet.ready or None)
            more = {"extenders": scheduler_settings(serving.server.port)["extenders"]}
        stack.enter_context(scheduler(cluster, programs["kube-scheduler"] or Path(), more))
        stack.enter_context(controller_manager(cluster, programs["kube-controller-manager"] or Path()))
        counted = every[WARM_UP:]
        accepted = [arrival for number, arrival in enumerate(counted) if fleet.play(number, arrival)]
        wanted, got = (sum(size(each.profile) for each in group) for group in (counted, accepted))
        cluster.hang_up()
        return 100 * len(accepted) / len(counted), 100 * got / wanted, statistics.median(fleet.waits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrivals", type=int, default=720)
    parser.add_argument("--seeds", default="1,2,3,4")
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args()
    print("policy    seed  accepted  by memory  median wait", flush=True)
    for seed in map(int, args.seeds.split(",")):
        for policy in args.policies.split(","):
            accepted, weighted, wait = compare(policy, seed, args.arrivals)
            print(f"{policy:9} {seed:4}  {accepted:6.1f} %  {weighted:7.1f} %  {1000 * wait:6.0f} ms", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    raise SystemExit(main())
