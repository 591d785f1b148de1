"""Simulated actors of a cluster with KubeVirt, run on demand: virt-controller, virt-handler, scheduler, kubelets.

Changes happen only in ``settle`` (and ``until``, which settles repeatedly), so that a test decides what an agent
finds. All requests go through the API server and are plain: the stand-in and a real one alike. The actors do what
KubeVirt 1.6 and Kubernetes do with GPUs, and nothing else::

    environment = VmCluster(cluster)
    environment.install()                             # KubeVirt's kinds and its settings object
    node = environment.node("node-0")                 # kubelet in node.kubelet.directory
    environment.create("vm", gpus=["nvidia.com/NVIDIA_A2-4Q"])
    environment.until(lambda: environment.phase("vm") == "Running")
    environment.launcher("vm").environment
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from support.cluster import Cluster
from support.kubevirt import launchers
from support.kubevirt.definitions import definitions
from support.kubevirt.launchers import CREATED_BY, MIGRATION, over
from support.kubevirt.machines import Hook, Launcher, Machine, pod_path
from support.kubevirt.migrations import migrate
from support.kubevirt.objects import (
    KEEP_INSTANCE,
    KEEP_MACHINE,
    instance_of,
    instances,
    machine,
    machine_status,
    machines,
    wanted,
    written,
)
from support.kubevirt.scheduler import schedule
from support.kubevirt.writes import write

JSON = dict[str, Any]
SETTINGS_NAMESPACE = "harvester-system"
SETTINGS = f"/apis/kubevirt.io/v1/namespaces/{SETTINGS_NAMESPACE}/kubevirts"
NODE_LABEL = "kubevirt.io/nodeName"
"""Label of an instance, by which virt-handler watches those of its node."""
_ROUNDS = 60


class VmCluster:
    """A cluster with KubeVirt. With ``hold_migrations`` True, migrations stop while both launchers run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machines: dict[str, Machine] = {}
        self.hold_migrations = False
        self._pods = 0
        self._settled_at: int | None = None

    # -- setting up

    def install(self, permitted: JSON | None = None) -> None:
        """Install KubeVirt's kinds and its settings. ``permitted`` are their permittedHostDevices, None for none."""
        for each in definitions():
            self.cluster.apply(each)
        for plural in ("virtualmachines", "virtualmachineinstances", "kubevirts"):
            path = f"/apis/kubevirt.io/v1/{plural}"
            self.cluster.wait(partial(_served, self.cluster, path), path, 30)
        self.cluster.namespace(SETTINGS_NAMESPACE)
        configuration = {"permittedHostDevices": permitted} if permitted is not None else {}
        self.cluster.must("POST", SETTINGS, written("KubeVirt", "kubevirt", {"configuration": configuration}))

    def permit(self, permitted: JSON | None) -> None:
        """Change what KubeVirt's settings permit. None removes the list, which permits everything."""
        body = {"spec": {"configuration": {"permittedHostDevices": permitted}}}
        self.cluster.must("PATCH", f"{SETTINGS}/kubevirt", body)

    def node(self, name: str, labels: dict[str, str] | None = None, **hooks: Hook) -> Machine:
        """Add a node with a kubelet. Create its object unless it exists. ``on_start`` and ``on_stop`` are hooks."""
        made = Machine(self.cluster, name, labels or {}, **hooks)
        self.machines[name] = made
        return made

    def close(self) -> None:
        for each in self.machines.values():
            each.close()

    # -- actions of users

    def create(
        self,
        name: str,
        gpus: Sequence[str | JSON] = (),
        host_devices: Sequence[str | JSON] = (),
        *,
        namespace: str = "default",
        strategy: str = "Always",
        selector: dict[str, str] | None = None,
    ) -> JSON:
        """Create a VM. Devices are resource names, or whole entries."""
        self.cluster.namespace(namespace)
        return self.cluster.must("POST", machines(namespace), machine(name, gpus, host_devices, strategy, selector))

    def start(self, name: str, namespace: str = "default") -> None:
        self.cluster.must("PATCH", f"{machines(namespace)}/{name}", {"spec": {"runStrategy": "Always"}})

    def stop(self, name: str, namespace: str = "default") -> None:
        self.cluster.must("PATCH", f"{machines(namespace)}/{name}", {"spec": {"runStrategy": "Halted"}})

    def delete(self, name: str, namespace: str = "default") -> None:
        self.cluster.must("DELETE", f"{machines(namespace)}/{name}")

    def migrate(self, name: str, namespace: str = "default") -> None:
        """Request a live migration."""
        path = f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstancemigrations"
        body = written("VirtualMachineInstanceMigration", f"{name}-{time.monotonic_ns()}", {"vmiName": name})
        self.cluster.must("POST", path, body)

    def power_off(self, name: str, namespace: str = "default") -> None:
        """Shut down the guest from inside, so that its launcher ends."""
        here = self.launcher(name, namespace)
        meta = {"namespace": namespace, "name": here.pod}
        self.machines[here.node].phase(meta, "Succeeded")

    def lose(self, node: str) -> None:
        """Take the node down: the kubelet finds its launchers dead, and fails them."""
        for one in list(self.machines[node].launchers.values()):
            meta = {"namespace": one.namespace, "name": one.pod}
            self.machines[node].phase(meta, "Failed", reason="Terminated", message="the node was rebooted")

    # -- state

    def machine(self, name: str, namespace: str = "default") -> JSON:
        return self.cluster.get(f"{machines(namespace)}/{name}")

    def instance(self, name: str, namespace: str = "default") -> JSON | None:
        answer = self.cluster.request("GET", f"{instances(namespace)}/{name}")
        return answer.body if answer.status == 200 else None

    def phase(self, name: str, namespace: str = "default") -> str:
        """Return the phase of the instance, or "" without one."""
        return str(((self.instance(name, namespace) or {}).get("status") or {}).get("phase", ""))

    def annotation(self, name: str, key: str, namespace: str = "default") -> str:
        return str((self.machine(name, namespace)["metadata"].get("annotations") or {}).get(key, ""))

    def why(self, name: str, namespace: str = "default") -> str:
        """Return the messages of an instance's conditions that are not true."""
        rows = ((self.instance(name, namespace) or {}).get("status") or {}).get("conditions") or []
        return " ".join(row.get("message", "") for row in rows if row["status"] == "False")

    def launchers(self, name: str, namespace: str = "default") -> list[Launcher]:
        """Return the running launchers: two during a migration."""
        found = [one for each in self.machines.values() for one in each.launchers.values()]
        return [one for one in found if (one.machine, one.namespace) == (name, namespace)]

    def launcher(self, name: str, namespace: str = "default") -> Launcher:
        """Return the only running launcher.

        Raises:
            AssertionError: none runs, or two do
        """
        found = self.launchers(name, namespace)
        assert len(found) == 1, f"{len(found)} launchers of {name}: {self.why(name, namespace)}"
        return found[0]

    # -- the actors

    def settle(self) -> None:
        """Run all actors until none has anything to do.

        Raises:
            AssertionError: changes do not end
        """
        for _ in range(_ROUNDS):
            revision = self.cluster.revision
            if not self.step():
                self._settled_at = revision
                return
        raise AssertionError(f"the world did not settle in {_ROUNDS} rounds")

    def until(self, true: Callable[[], object], what: str = "it", timeout_s: float = 30.0) -> Any:
        """Settle until something holds, and return its value. The actors have nothing to do until the next write."""
        self.settle()

        def observe() -> object:
            reports = [each.report() for each in self.machines.values()]
            if any(reports) or self._settled_at is None or self._settled_at != self.cluster.revision:
                self.settle()
            return true()

        return self.cluster.wait(observe, what, timeout_s)

    def step(self) -> bool:
        """Run each actor once. Report whether anything changed."""
        done = [each.report() for each in self.machines.values()]
        found = {plural: self._list(plural) for plural in ("virtualmachines", "virtualmachineinstances")}
        pods = self.cluster.get("/api/v1/pods")["items"]
        by_key = {_key(one): one for one in found["virtualmachineinstances"]}
        done += [self._machine(one, by_key.get(_key(one))) for one in found["virtualmachines"]]
        done += [self._instance(one, _launchers_of(pods, one)) for one in found["virtualmachineinstances"]]
        for one in self._list("virtualmachineinstancemigrations"):
            target = by_key.get((one["metadata"]["namespace"], one["spec"]["vmiName"]))
            done.append(migrate(self, one, target, _launchers_of(pods, target) if target else []))
        done += [schedule(self.cluster, pod, self.machines) for pod in pods if not pod["spec"].get("nodeName")]
        pods = self.cluster.get("/api/v1/pods")["items"]
        return any([*done, *(each.step(pods) for each in self.machines.values())])

    def launch(self, one: JSON, migration: str = "") -> bool:
        """Create a launcher pod for an instance."""
        self._pods += 1
        meta = one["metadata"]
        body = launchers.launcher(one, f"virt-launcher-{meta['name']}-{self._pods:05}", migration)
        return write(self.cluster, "POST", f"/api/v1/namespaces/{meta['namespace']}/pods", body)

    def report(self, one: JSON, **status: Any) -> bool:
        """Write an instance's status if it differs, and the label of its node. It has no status subresource."""
        previous = one.get("status") or {}
        if all(previous.get(key) == value for key, value in status.items()):
            return False
        labels = {NODE_LABEL: status["nodeName"]} if "nodeName" in status else {}
        body = {"metadata": {"labels": labels}, "status": status}
        return self._patch(instances(one["metadata"]["namespace"]), one, body)

    def _machine(self, one: JSON, running: JSON | None) -> bool:
        meta, expected = one["metadata"], wanted(one, running)
        path = machines(meta["namespace"])
        if meta.get("deletionTimestamp"):
            if running is not None:
                return self._remove(instances(meta["namespace"]), running)
            return self._let_go(path, one, KEEP_MACHINE)
        if KEEP_MACHINE not in (meta.get("finalizers") or []):
            return self._patch(path, one, {"metadata": {"finalizers": [*(meta.get("finalizers") or []), KEEP_MACHINE]}})
        done = self._patch(
            path, one, {"status": machine_status(running, expected)}, "/status", previous=one.get("status")
        )
        if running is None and expected:
            body = instance_of(one)
            return write(self.cluster, "POST", instances(meta["namespace"]), body) or done
        if running is not None and not expected:
            return self._remove(instances(meta["namespace"]), running) or done
        return done

    def _instance(self, one: JSON, pods: list[JSON]) -> bool:
        meta, path = one["metadata"], instances(one["metadata"]["namespace"])
        live = [pod for pod in pods if not over(pod)]
        if meta.get("deletionTimestamp"):
            gone = [self._remove_pod(pod) for pod in pods]
            return any(gone) if pods else self._let_go(path, one, KEEP_INSTANCE)
        if KEEP_INSTANCE not in (meta.get("finalizers") or []):
            both = [*(meta.get("finalizers") or []), KEEP_INSTANCE]
            return self._patch(path, one, {"metadata": {"finalizers": both}})
        phase = (one.get("status") or {}).get("phase", "")
        if phase in ("Succeeded", "Failed"):
            return False
        if not pods:
            return self._first(one, phase)
        if not live:
            return self.report(one, phase=pods[-1]["status"]["phase"], activePods=None)
        return self._follow(one, phase, live)

    def _first(self, one: JSON, phase: str) -> bool:
        """Create a pod for an instance without one, if its devices are permitted."""
        settings = self.cluster.request("GET", f"{SETTINGS}/kubevirt")
        wrong = launchers.not_permitted(one, settings.body if settings.status == 200 else None)
        if wrong:
            text = f"failed to render launch manifest: {wrong}"
            row = {"type": "Synchronized", "status": "False", "reason": "FailedCreate", "message": text}
            return self.report(one, phase="Pending", conditions=[row])
        return self.launch(one) or self.report(one, phase=phase or "Pending")

    def _follow(self, one: JSON, phase: str, live: list[JSON]) -> bool:
        """Advance the phase that follows from the pod by one. During a migration the first pod counts."""
        if phase == "Running":
            return False
        pod = next((pod for pod in live if MIGRATION not in pod["metadata"]["labels"]), live[0])
        if pod.get("status", {}).get("phase") != "Running":
            rows = [
                {key: value for key, value in row.items() if value is not None}
                for row in pod.get("status", {}).get("conditions") or []
                if row["type"] == "PodScheduled"
            ]
            return self.report(one, phase="Scheduling", conditions=rows or None)
        if phase in ("", "Pending"):
            return self.report(one, phase="Scheduling")
        node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        if phase == "Scheduling":
            return self.report(one, phase="Scheduled", nodeName=node, activePods={uid: node})
        return self.report(one, phase="Running", conditions=[{"type": "Ready", "status": "True"}])

    # -- requests

    def _list(self, plural: str) -> list[JSON]:
        answer = self.cluster.request("GET", f"/apis/kubevirt.io/v1/{plural}")
        return list(answer.body["items"]) if answer.status == 200 else []

    def _patch(self, path: str, one: JSON, body: JSON, more: str = "", previous: JSON | None = None) -> bool:
        wanted = body.get("status") or {}
        if previous is not None and all(previous.get(key) == value for key, value in wanted.items()):
            return False
        return write(self.cluster, "PATCH", f"{path}/{one['metadata']['name']}{more}", body)

    def _remove(self, path: str, one: JSON) -> bool:
        if one["metadata"].get("deletionTimestamp"):
            return False
        return write(self.cluster, "DELETE", f"{path}/{one['metadata']['name']}")

    def _remove_pod(self, pod: JSON) -> bool:
        if pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName"):
            return False  # kubelet ends it
        return write(self.cluster, "DELETE", f"{pod_path(pod['metadata'])}?gracePeriodSeconds=1")

    def _let_go(self, path: str, one: JSON, finalizer: str) -> bool:
        left = [each for each in one["metadata"].get("finalizers") or [] if each != finalizer]
        return self._patch(path, one, {"metadata": {"finalizers": left or None}})


def _served(cluster: Cluster, path: str) -> bool:
    return cluster.request("GET", path).status == 200


def _launchers_of(pods: list[JSON], one: JSON) -> list[JSON]:
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(CREATED_BY) == one["metadata"]["uid"]]


def _key(one: JSON) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


__all__ = ["SETTINGS", "Launcher", "Machine", "VmCluster", "instances", "machine", "machines"]
