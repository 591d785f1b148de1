"""Ask a real kube-scheduler which devices claims get, and write its decisions down.

    python tools/record_scheduler.py            into tests/recorded/kube-scheduler

It needs kube-apiserver, etcd and kube-scheduler, which it looks for as the tests do (``KUBEBUILDER_ASSETS``). The cases
are in ``tools/scheduler``. The exit code is 1 if the allocator in ``tests/support/draallocator`` disagrees anywhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from tools.scheduler.cases import cases  # noqa: E402
from tools.scheduler.tables import tables  # noqa: E402

from support.cluster import RealCluster  # noqa: E402
from support.cluster_components import component, scheduler  # noqa: E402
from support.cluster_real import RealServer, assets  # noqa: E402
from support.schedulercases import RECORDED, Decision, State, Table, slice_object  # noqa: E402

JSON = dict[str, Any]
NAMESPACE = "scheduled"
SEEN_S = 0.15
"""The scheduler has seen a write after this time."""
SETTLED_S = 0.4
"""A refusal that has not changed for this time is final."""
_RESOURCES = "/apis/resource.k8s.io/v1"
_CLAIMS = f"{_RESOURCES}/namespaces/{NAMESPACE}/resourceclaims"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SIZE = {"cpu": "64", "memory": "256Gi", "pods": "110"}


class Player:
    """Plays cases to the scheduler of a cluster, one after the other."""

    def __init__(self, cluster: RealCluster, known: Mapping[str, Table]) -> None:
        self.cluster, self.tables = cluster, known

    def prepare(self) -> None:
        """Create the namespace, whose users may have access as administrators."""
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})

    def play(self, case: JSON) -> JSON:
        """Return the case with the decision of each pod."""
        for name, extra in case["nodes"].items():
            self.cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": extra.get("labels", {})}})
            status = {"allocatable": _SIZE, "capacity": _SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
            self.cluster.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        for row in case["slices"]:
            self.cluster.must("POST", f"{_RESOURCES}/resourceslices", slice_object(row, self.tables))
        for name, spec in case["classes"].items():
            self.cluster.must("POST", f"{_RESOURCES}/deviceclasses", {"metadata": {"name": name}, "spec": spec})
        time.sleep(4 * SEEN_S)
        steps = [found for step in case["steps"] if (found := self._step(step)) is not None]
        self._clean(case)
        return {**case, "steps": steps}

    def _step(self, step: JSON) -> JSON | None:
        if step["do"] == "pod":
            if any(self.cluster.request("GET", f"{_CLAIMS}/{name}").status != 200 for name in step.get("uses", [])):
                return None  # its owner was refused
            return {**step, "decision": msgspec.to_builtins(self._pod(step))}
        if step["do"] == "delete":
            self._delete(step["pod"])
        elif step["do"] == "slice":
            self._publish(slice_object(step["slice"], self.tables))
        time.sleep(SEEN_S)
        return step

    def _publish(self, value: JSON) -> None:
        path = f"{_RESOURCES}/resourceslices/{value['metadata']['name']}"
        stored = self.cluster.get(path)
        self.cluster.must("PUT", path, {**stored, "spec": value["spec"]})

    def _pod(self, step: JSON) -> Decision:
        for name, devices in step["claims"].items():
            self.cluster.must("POST", _CLAIMS, {"metadata": {"name": name}, "spec": {"devices": devices}})
        names = [*step["claims"], *step.get("uses", [])]
        containers = [
            {"name": f"c{number}", "image": "none", "resources": resources}
            for number, resources in enumerate(step.get("containers") or [{}])
        ]
        claims = [{"name": f"r{number}", "resourceClaimName": name} for number, name in enumerate(names)]
        spec = {"containers": containers, "resourceClaims": claims}
        time.sleep(SEEN_S)
        self.cluster.must("POST", _PODS, {"metadata": {"name": step["name"]}, "spec": spec})
        pod = self.cluster.wait(lambda: self._decided(step["name"]), f"a decision on {step}", 30)
        if not pod["spec"].get("nodeName"):
            time.sleep(SETTLED_S)
            pod = self.cluster.get(f"{_PODS}/{step['name']}")
        if node := pod["spec"].get("nodeName"):
            return Decision(node=node, results=self._results(step))
        (message,) = (row["message"] for row in pod["status"]["conditions"] if row["type"] == "PodScheduled")
        self._delete(step["name"], *step["claims"])
        return Decision(refused=message.partition(" still not schedulable")[0].partition(" preemption:")[0])

    def _decided(self, name: str) -> JSON | None:
        pod = self.cluster.get(f"{_PODS}/{name}")
        refused = any(row["type"] == "PodScheduled" for row in pod["status"].get("conditions") or [])
        return pod if refused or pod["spec"].get("nodeName") else None

    def _results(self, step: JSON) -> dict[str, list[JSON]]:
        found = {name: self.cluster.get(f"{_CLAIMS}/{name}") for name in step["claims"]}
        if step.get("containers"):
            claims = self.cluster.get(_CLAIMS)["items"]
            found[""] = next(claim for claim in claims if step["name"] in _owners(claim))
        kept = ("request", "driver", "pool", "device", "adminAccess")
        return {
            name: [
                {key: row[key] for key in kept if row.get(key)}
                for row in claim["status"]["allocation"]["devices"]["results"]
            ]
            for name, claim in found.items()
        }

    def _delete(self, pod: str, *claims: str) -> None:
        """Delete a pod, and the claims of its own."""
        owned = [
            claim["metadata"]["name"]
            for claim in self.cluster.get(_CLAIMS)["items"]
            if claim["metadata"]["name"].startswith(f"{pod}-") or pod in _owners(claim)
        ]
        self.cluster.request("DELETE", f"{_PODS}/{pod}?gracePeriodSeconds=0")
        for name in {*owned, *claims}:
            self._delete_claim(name)

    def _delete_claim(self, name: str) -> None:
        """Delete a claim and its finalizer, which a controller would remove."""
        self.cluster.request("DELETE", f"{_CLAIMS}/{name}")
        self.cluster.request("PATCH", f"{_CLAIMS}/{name}", {"metadata": {"finalizers": None}})

    def _clean(self, case: JSON) -> None:
        for pod in self.cluster.get(_PODS)["items"]:
            self._delete(pod["metadata"]["name"])
        for claim in self.cluster.get(_CLAIMS)["items"]:
            self._delete_claim(claim["metadata"]["name"])
        for kind in ("resourceslices", "deviceclasses"):
            self.cluster.must("DELETE", f"{_RESOURCES}/{kind}")
        for name in case["nodes"]:
            self.cluster.must("DELETE", f"/api/v1/nodes/{name}")


def _owners(claim: JSON) -> set[str]:
    return {owner["name"] for owner in claim["metadata"].get("ownerReferences") or []}


def main() -> int:
    binaries, program = assets(), component("kube-scheduler")
    if binaries is None or program is None:
        print("no kube-apiserver, etcd and kube-scheduler in KUBEBUILDER_ASSETS", file=sys.stderr)
        return 1
    known = tables()
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        server = RealServer(Path(folder), binaries)
        try:
            cluster = RealCluster(server, Path(folder))
            cluster.wait_ready()
            with scheduler(cluster, program):
                player = Player(cluster, known)
                player.prepare()
                found = [_played(player, case) for case in cases(known)]
        finally:
            server.close()
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return _write(version, known, found)


def _played(player: Player, case: JSON) -> JSON:
    found = player.play(case)
    print(
        f"{case['kind']} {case['number']}: {sum('decision' in step for step in found['steps'])} decisions", flush=True
    )
    return found


def _write(version: str, known: Mapping[str, Table], found: list[JSON]) -> int:
    """Write one case per line, and report where the allocator disagrees."""
    provenance = {"server": f"kube-scheduler {version}", "by": "tools/record_scheduler.py"}
    parts = [f'{{"provenance": {json.dumps(provenance)},\n"tables": {{\n']
    parts.append(
        ",\n".join(f"{json.dumps(name)}: {json.dumps(msgspec.to_builtins(one))}" for name, one in known.items())
    )
    parts.append('},\n"cases": [\n')
    parts.append(",\n".join(json.dumps(case, separators=(",", ":")) for case in found))
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("".join([*parts, "]}\n"]))
    bad = [f"{case['kind']} {case['number']}: {text}" for case in found for text in State.replay(case, known)]
    print("\n".join(bad) or "the allocator agrees", f"{len(bad)} disagreements")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
