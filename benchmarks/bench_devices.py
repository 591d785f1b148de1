"""A node with simulated GPUs, its devices agent as a process, a kubelet, and a cluster that has Harvester's kinds.

The API server is the suite's stand-in, in this process. Waiting reads its store, so that only the agent sends
requests. GPUs take no time of their own, so that only software is measured.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from aliquot.kubernetes.kinds.harvester_names import CONFIGURED, object_name, vgpu_resource
from aliquot.sim import lifecycle as control

JSON = dict[str, Any]
PATIENCE_S = 180.0
CHECK_S = 30
"""The longest time between two reconcile cycles, as in the manifests."""
GROUP = "devices.harvesterhci.io"


class Site:
    """A node and its cluster. ``pod``: the driver's programs are in its pod, else its library is on the host."""

    def __init__(self, folder: Path, template: str, *, pod: bool) -> None:
        from support.cluster import StandinCluster
        from support.devicesagent import DevicesAgent, install
        from support.driverpods import NAMESPACE, below, driver_pod
        from support.kubevirt.definitions import definitions
        from system.kubelet.kubeletdouble import Kubelet

        self._cluster = StandinCluster(folder)
        self.standin = self._cluster.standin
        install(self._cluster)
        for each in definitions():
            self._cluster.apply(each)
        self.agent = DevicesAgent(self._cluster, folder, "node", template, labels={})
        self._kubelet = Kubelet(folder / "kubelet")
        self._kubelet.start()
        self.agent.arguments = ["--kubelet-dir", str(folder / "kubelet")]
        machine = Path(control.folder(self.agent.state, "machine"))
        self._log = machine / "calls.jsonl"
        if pod:
            self._cluster.namespace(NAMESPACE)
            self._cluster.apply(driver_pod("node"))
            self.standin.execs.play("nvidia-driver-node", below(machine / "driver"), NAMESPACE)
        self.pcis = [gpu["pci"] for gpu in self.agent.sim.show()["gpus"]]

    def close(self) -> None:
        self.agent.close()
        self._kubelet.stop()
        self._cluster.close()

    def start(self) -> float:
        """Start the agent, and return the seconds until the GPUs have their objects."""
        began = time.perf_counter()
        self.agent.start("--check-seconds", str(CHECK_S))
        self.until(lambda: all(self.status("sriovgpudevices", pci) for pci in self.pcis), "the GPUs' objects")
        return time.perf_counter() - began

    @property
    def pid(self) -> int:
        assert self.agent.process is not None
        return self.agent.process.pid

    # -- the store, uncounted

    def rows(self, plural: str) -> list[JSON]:
        found: list[JSON] = self.standin.store.items(f"{plural}.{GROUP}")
        return found

    def one(self, plural: str, address: str) -> JSON:
        found: JSON | None = self.standin.store.get(f"{plural}.{GROUP}", "", object_name("node", address))
        return found or {}

    def status(self, plural: str, address: str) -> JSON:
        found: JSON = self.one(plural, address).get("status", {})
        return found

    def ready(self, plural: str, address: str) -> bool:
        """Report whether an object is Ready for its current generation."""
        meta, status = self.one(plural, address).get("metadata", {}), self.status(plural, address)
        messages = [row["status"] for row in status.get("conditions", []) if row["type"] == "Ready"]
        return messages == ["True"] and status.get("observedGeneration") == meta.get("generation")

    def request(self, plural: str, address: str, spec: JSON) -> float:
        """Patch an object as ``kubectl patch`` does, and return the time of the answer."""
        from support.standin.call import Call, Caller

        kind = self.standin.kinds.find(GROUP, "v1beta1", plural)
        assert kind is not None
        call = Call(
            *("patch", kind, Caller("bench", ("system:masters",))),
            name=object_name("node", address),
            body=msgspec.json.encode({"spec": spec}),
            content_type="application/merge-patch+json",
            agent="bench/1",
        )
        self.standin.rest.patch(call)
        return time.perf_counter()

    def until(self, true: Callable[[], object], what: str) -> float:
        """Return the time at which a condition holds, tested after every write to the store."""
        end = time.perf_counter() + PATIENCE_S
        while not true():
            assert time.perf_counter() < end, f"not within {PATIENCE_S} s: {what}\n{self.agent.log()[-3000:]}"
            with self.standin.store.changed:
                self.standin.store.changed.wait(0.01)
        return time.perf_counter()

    # -- walks: seconds

    def functions(self, pci: str, count: int, *, on: bool) -> float:
        """Return the seconds from a GPU's request until ``count`` VGPUDevices or none are listed and it is Ready."""
        began = self.request("sriovgpudevices", pci, {"enabled": on})
        wanted = count if on else 0

        def there() -> bool:
            mine = [row for row in self.rows("vgpudevices") if row["spec"]["parentGPUDeviceAddress"] == pci]
            return len(mine) == wanted and self.ready("sriovgpudevices", pci)

        return self.until(there, f"{wanted} functions") - began

    def vgpu(self, address: str, name: str) -> tuple[float, float]:
        """Return the seconds from a vGPU's request until its object is configured, and until the kubelet offers it."""
        before = self._kubelet.allocatable.get(vgpu_resource(name), 0)
        began = self.request("vgpudevices", address, {"enabled": True, "vGPUTypeName": name})
        reported = self.until(lambda: self.status("vgpudevices", address).get("vGPUStatus") == CONFIGURED, "the vGPU")
        offered = self.until(lambda: self._kubelet.allocatable.get(vgpu_resource(name), 0) > before, "the offer")
        return reported - began, offered - began

    def no_vgpu(self, address: str) -> float:
        began = self.request("vgpudevices", address, {"enabled": False, "vGPUTypeName": ""})
        return self.until(lambda: not self.status("vgpudevices", address).get("vGPUStatus"), "no vGPU") - began

    def layout(self, pci: str, profile: str, count: int) -> float:
        """Return the seconds from a request for a MIG layout until it is synced."""
        spec = self.one("migconfigurations", pci)["spec"]["profileSpec"]
        rows = [{**row, "requested": count if row["name"] == f"MIG {profile}" else 0} for row in spec]
        began = self.request("migconfigurations", pci, {"enabled": True, "profileSpec": rows})
        return self.until(lambda: self.status("migconfigurations", pci).get("status") == "synced", "the layout") - began

    def no_layout(self, pci: str) -> float:
        began = self.request("migconfigurations", pci, {"enabled": False})
        there = lambda: self.status("migconfigurations", pci).get("status") == "disabled"  # noqa: E731
        return self.until(there, "no layout") - began

    # -- counts since the start

    @property
    def commands(self) -> Counter[str]:
        """Programs that were run in the driver's pod, by name."""
        return Counter(os.path.basename(each.words[0]) for each in self.standin.execs.asked)

    @property
    def calls(self) -> int:
        """Calls of the driver's library, and of its programs as they arrive at the node."""
        return self._log.read_bytes().count(b"\n")

    @property
    def requests(self) -> Counter[str]:
        """Of the API server, by verb and resource."""
        return Counter({f"{r.verb} {r.resource}": n for r, n in self.standin.control.requests.copy().items()})

    @property
    def writes(self) -> int:
        return sum(n for name, n in self.requests.items() if name.partition(" ")[0] in _WRITES and "exec" not in name)


_WRITES = ("create", "update", "patch", "delete", "apply")


@contextmanager
def site(template: str, *, pod: bool) -> Iterator[Site]:
    """Run a node and its cluster until the context ends, without starting the agent."""
    with TemporaryDirectory(prefix="aliquot-bench-") as folder:
        found = Site(Path(folder), template, pod=pod)
        try:
            yield found
        finally:
            found.close()
