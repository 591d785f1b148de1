"""The real devices agent as a process of its own: a simulated node beside a cluster with Harvester's kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from agents import NAMESPACE, Agent
from aliquot.agent.devices.corner import DEVICES_ANNOTATION
from aliquot.integrations.kubernetes.harvester import crds
from aliquot.integrations.kubernetes.harvester.names import object_name
from cluster import Cluster

JSON = dict[str, Any]
API = "/apis/devices.harvesterhci.io/v1beta1"
PLURALS = ("sriovgpudevices", "vgpudevices", "migconfigurations", "pcidevices", "pcideviceclaims")
CHECK_S = 1


def install(cluster: Cluster) -> None:
    """Harvester's kinds, and the agents' namespace."""
    cluster.namespace(NAMESPACE)
    cluster.apply(crds.definitions())
    cluster.wait(lambda: all(cluster.request("GET", f"{API}/{p}").status == 200 for p in PLURALS), "the kinds", 30)


class DevicesAgent(Agent):
    """``pci`` is the address of the first GPU."""

    def start(self, *more: str) -> None:
        super().start("--devices", "--check-seconds", str(CHECK_S), *more)

    # -- objects

    def all(self, plural: str) -> dict[str, JSON]:
        """This node's objects of a kind, by name."""
        rows = self.call("GET", f"{API}/{plural}")["items"]
        return {row["metadata"]["name"]: row for row in rows if row["metadata"]["name"].startswith(f"{self.name}-")}

    def one(self, plural: str, address: str) -> JSON:
        """The object of a function; empty where there is none."""
        return self.all(plural).get(object_name(self.name, address), {})

    def set(self, plural: str, address: str, spec: JSON, annotations: Mapping[str, str | None] | None = None) -> None:
        """What a user does with ``kubectl patch``."""
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
        """For the message of a wait that failed."""
        return self.standing()

    def everything(self) -> str:
        """All objects without what a server stamps: equal texts are equal states."""
        found = {plural: self.all(plural) for plural in PLURALS}
        for rows in found.values():
            for row in rows.values():
                for field in ("managedFields", "resourceVersion"):
                    row["metadata"].pop(field, None)
        return msgspec.json.encode(found, order="deterministic").decode()

    # -- the machine

    def vgpus(self) -> dict[str, str]:
        """The types of the vGPUs that exist, by virtual function."""
        found: dict[str, str] = {}
        for gpu in self.sim.show()["gpus"]:
            for each in gpu.get("vgpus", []):
                found[each["function"]] = each["type"]
        return found


class MakeDevices(Protocol):
    """The fixture ``make_devices``: a node with these GPUs and its devices agent, not started yet."""

    def __call__(self, template: str) -> DevicesAgent: ...
