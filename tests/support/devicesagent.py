"""The real devices agent as a process of its own: a simulated node with a cluster that has Harvester's kinds."""

from __future__ import annotations

import http.client
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from support import forkserver
from support.agents import NAMESPACE, Agent
from support.cluster import Cluster

JSON = dict[str, Any]
API = "/apis/devices.harvesterhci.io/v1beta1"
PLURALS = (
    *("sriovgpudevices", "vgpudevices", "migconfigurations", "pcidevices", "pcideviceclaims"),
    *("usbdevices", "usbdeviceclaims", "sriovnetworkdevices"),
)
CHECK_S = 1


def install(cluster: Cluster) -> None:
    """Install Harvester's kinds, and the agents' namespace."""
    cluster.namespace(NAMESPACE)
    cluster.apply(crds.all_definitions())
    cluster.wait(lambda: all(cluster.request("GET", f"{API}/{p}").status == 200 for p in PLURALS), "the kinds", 30)


class DevicesAgent(Agent):
    """``check_s`` is the longest time between two observations, in seconds."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, template: str, *, labels: Mapping[str, str]) -> None:
        super().__init__(cluster, folder, name, template, labels=labels, manifest="kubernetes-machines/32-devices.yaml")

    check_s: float = CHECK_S

    def start(self, *more: str) -> None:
        super().start("--check-seconds", str(self.check_s), *more)

    # -- objects

    def all(self, plural: str) -> dict[str, JSON]:
        """Return this node's objects of a kind, by name."""
        rows = self.call("GET", f"{API}/{plural}")["items"]
        return {row["metadata"]["name"]: row for row in rows if row["metadata"]["name"].startswith(f"{self.name}-")}

    def one(self, plural: str, address: str) -> JSON:
        """Return the object of a function, empty if there is none."""
        answer = self.cluster.request("GET", f"{API}/{plural}/{object_name(self.name, address)}")
        assert answer.status in (200, 404), f"{plural} of {address}: {answer.status} {answer.body}"
        return dict(answer.body) if answer.status == 200 else {}

    def status_of(self, plural: str, address: str) -> JSON:
        """Return the status of a function's object, empty until it is written, which is after the object is."""
        return dict(self.one(plural, address).get("status", {}))

    def set(self, plural: str, address: str, spec: JSON, annotations: Mapping[str, str | None] | None = None) -> None:
        """Patch an object as a user does with ``kubectl patch``."""
        body: JSON = {"spec": spec} if spec else {}
        if annotations:
            body["metadata"] = {"annotations": dict(annotations)}
        path = f"{API}/{plural}/{object_name(self.name, address)}"
        self.call("PATCH", path, body, "application/merge-patch+json")

    def condition(self, plural: str, address: str, kind: str = "Ready") -> JSON:
        rows = self.one(plural, address).get("status", {}).get("conditions", [])
        return next((row for row in rows if row["type"] == kind), {})

    def ready(self, plural: str, address: str) -> bool:
        return self.condition(plural, address).get("status") == "True"

    def standing(self) -> JSON:
        text = self.node()["metadata"].get("annotations", {}).get(DEVICES_ANNOTATION)
        return cast(JSON, msgspec.json.decode(text)) if text else {}

    def status(self) -> JSON:
        """Return the state for the message of a wait that failed."""
        return self.standing()

    def everything(self) -> str:
        """Return all objects without the fields that a server stamps: equal texts are equal states."""
        found = {plural: self.all(plural) for plural in PLURALS}
        for rows in found.values():
            for row in rows.values():
                for field in ("managedFields", "resourceVersion"):
                    row["metadata"].pop(field, None)
        return msgspec.json.encode(found, order="deterministic").decode()

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of every object: it grows with each write that changes something."""
        return {f"{p}/{name}": row["metadata"]["resourceVersion"] for p in PLURALS for name, row in self.all(p).items()}

    def reported(self, function: str) -> list[JSON]:
        """Return the events about a function's objects."""
        rows = self.call("GET", "/api/v1/namespaces/default/events")["items"]
        return [row for row in rows if row["involvedObject"]["name"] == object_name(self.name, function)]

    # -- the process

    def page(self, path: str) -> tuple[int, str]:
        """Return status and text of one of the agent's pages."""
        found = re.findall(r"health and metrics on port (\d+)", self.log())
        with (
            suppress(OSError, IndexError),
            closing(http.client.HTTPConnection("127.0.0.1", int(found[-1]), timeout=5)) as connection,
        ):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        return 0, ""

    def observations(self) -> int:
        """Return how often the process has observed the hardware."""
        found = re.search(r"^aliquot_devices_looks_total\S* (\S+)$", self.page("/metrics")[1], re.M)
        return int(float(found.group(1))) if found else 0

    def aliquot(self, *words: str) -> None:
        """Run the command line on this machine, as an administrator does there."""
        environment = {**os.environ, "ALIQUOT_STATE_DIR": self.state, "ALIQUOT_SIM": "machine"}
        forkserver.run([sys.executable, "-m", "aliquot", *words], env=environment, check=True, capture_output=True)

    # -- waiting

    def enabled(self, pci: str, count: int = 16) -> None:
        """Enable virtual functions through the object."""
        self.until(lambda: self.one("sriovgpudevices", pci), "the GPU's object")
        self.set("sriovgpudevices", pci, {"enabled": True})
        self.until(lambda: len(self.all("vgpudevices")) == count, f"{count} virtual functions")
        self.until(lambda: len(self._functions(pci)) == count, "the GPU's object to name them")

    def _functions(self, pci: str) -> list[str]:
        return list(self.one("sriovgpudevices", pci).get("status", {}).get("vfAddresses", ()))

    def carrying(self, function: str, name: str = "NVIDIA A2-4Q") -> None:
        """Give a virtual function a vGPU through the object, and wait until its status reports the vGPU."""
        self.until(lambda: self.one("vgpudevices", function), f"the object of {function}")
        self.set("vgpudevices", function, {"enabled": True, "vGPUTypeName": name})
        self.until(lambda: self.configured(function) == name, f"{name} on {function}")

    def configured(self, function: str) -> str:
        """Return the type that a function's object reports, or "" for none."""
        status = self.one("vgpudevices", function).get("status", {})
        return str(status.get("configureVGPUTypeName", "")) if status.get("vGPUStatus") == "vGPUConfigured" else ""

    def at_rest(self, observations: int = 3) -> None:
        """Wait for so many observations in which nothing changed."""
        before, calls = "", -1
        still = 0
        while still < observations:
            time.sleep(self.check_s)
            now, made = self.everything(), len(self.writes())
            still = still + 1 if (now, made) == (before, calls) else 0
            before, calls = now, made

    # -- the machine

    def vgpus(self) -> dict[str, str]:
        """Return the types of the existing vGPUs, by virtual function."""
        found: dict[str, str] = {}
        for gpu in self.sim.show()["gpus"]:
            for each in gpu.get("vgpus", []):
                found[each["function"]] = each["type"]
        return found


class MakeDevices(Protocol):
    """The fixture ``make_devices``: a node with these GPUs and its devices agent, which is not started yet."""

    def __call__(self, template: str) -> DevicesAgent: ...
