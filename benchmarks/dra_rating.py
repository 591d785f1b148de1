"""Time and memory of the scheduler extender with 10,000 GPUs: 1,250 nodes of 8 GPUs that are partly allocated.

Usage: python benchmarks/dra_rating.py [--nodes N]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

import msgspec  # noqa: E402

from aliquot.kubernetes.client.watch import FullList  # noqa: E402
from aliquot.kubernetes.dra.extender.demand import RequestedClaim  # noqa: E402
from aliquot.kubernetes.dra.extender.fleet import PublishedFleet  # noqa: E402
from aliquot.kubernetes.dra.extender.prioritizer import Prioritizer  # noqa: E402
from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming  # noqa: E402
from aliquot.kubernetes.dra.model.objects import DeviceClass, ResourceSlice  # noqa: E402
from support.drafleet import FleetNode, classes  # noqa: E402
from support.factory import inventory  # noqa: E402

NAMING = DriverNaming(NVIDIA_DRIVER)
PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
VARIANTS = 40


def variant(random: Random) -> tuple[bytes, list[str]]:
    """Return the slices of a node ``n0`` and its allocated devices."""
    node = FleetNode("n0", inventory("h100-80gb-sxm*8", enabled=True), NAMING)
    allocated: set[str] = set()
    now = datetime.now(UTC)
    node.publish((), now)
    for _ in range(random.randrange(30)):
        profile = random.choice(PROFILES)
        free = [
            d for d in node.publication.devices if d.profile == profile and d.name not in allocated and not d.taints
        ]
        if free:
            allocated.add(free[0].name)
            node.publish(allocated, now)
    return msgspec.json.encode(node.published), sorted(allocated)


def claims(node: str, allocated: list[str]) -> list[RequestedClaim]:
    found = []
    for number, device in enumerate(allocated):
        result = {"driver": NVIDIA_DRIVER, "pool": NAMING.pool(node), "device": device}
        meta = {"name": f"{node}-{number}", "namespace": "default", "uid": f"{node}-{number}"}
        status = {"allocation": {"devices": {"results": [result]}}}
        found.append(msgspec.convert({"metadata": meta, "status": status}, RequestedClaim))
    return found


def memory_mib() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


def request(profile: str, names: list[str]) -> bytes:
    container = {"name": "c", "resources": {"limits": {f"nvidia.com/mig-{profile}": "1"}}}
    body: dict[str, Any] = {"Pod": {"metadata": {"name": "p"}, "spec": {"containers": [container]}}}
    return msgspec.json.encode(body | {"Nodes": None, "NodeNames": names})


async def measure(nodes: int) -> None:
    random = Random(1)
    variants = [variant(random) for _ in range(VARIANTS)]
    fleet = PublishedFleet()
    prioritizer = Prioritizer(fleet, "fragmentation")
    names = [f"m{number:04d}" for number in range(nodes)]
    before = memory_mib()
    slices: list[ResourceSlice] = []
    held: list[RequestedClaim] = []
    for number, name in enumerate(names):
        text, allocated = variants[number % VARIANTS]
        own = text.replace(b'"n0', f'"{name}'.encode()).replace(b"-n0-", f"-{name}-".encode())
        slices += msgspec.json.decode(own, type=list[ResourceSlice])
        held += claims(name, allocated)
    known = classes([FleetNode("n0", inventory("h100-80gb-sxm*8", enabled=True), NAMING)])
    fleet.classes.apply(FullList(tuple(msgspec.convert(each, DeviceClass) for each in known.values()), "1"))
    fleet.claims.apply(FullList(tuple(held), "1"))
    fleet.slices.apply(FullList(tuple(slices), "1"))
    began = time.perf_counter()
    reading = asyncio.create_task(fleet.read_changed())
    while not fleet.ready:
        await asyncio.sleep(0)
    print(f"{nodes} nodes, {sum(len(each.spec.devices) for each in slices)} devices, {len(held)} claims")
    print(f"read in {time.perf_counter() - began:.1f} s, {memory_mib() - before} MiB")
    for attempt in ("first", "next"):
        times = []
        for profile in PROFILES:
            began = time.perf_counter()
            await prioritizer.answer(request(profile, names))
            times.append(1000 * (time.perf_counter() - began))
        print(f"{attempt} pod of a profile: {min(times):.0f} to {max(times):.0f} ms")
    reading.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1250)
    asyncio.run(measure(parser.parse_args().nodes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
