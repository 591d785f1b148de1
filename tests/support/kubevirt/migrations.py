"""Live migrations, as virt-controller and virt-handler run them: two launchers for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.kubevirt.launchers import MIGRATION, over
from support.kubevirt.writes import write

if TYPE_CHECKING:
    from support.kubevirt.players import VmCluster

JSON = dict[str, Any]


def migrate(environment: VmCluster, one: JSON, instance: JSON | None, pods: list[JSON]) -> bool:
    """Run one step of a migration. Report whether anything changed."""
    uid, phase = one["metadata"]["uid"], (one.get("status") or {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return False
    if instance is None or instance["metadata"].get("deletionTimestamp"):
        return _report(environment, one, "Failed")
    target = next((pod for pod in pods if pod["metadata"]["labels"].get(MIGRATION) == uid), None)
    if target is None:
        return environment.launch(instance, uid)
    if over(target):
        return _report(environment, one, "Failed")
    if target.get("status", {}).get("phase") != "Running":
        return _report(environment, one, "Scheduling")
    source = next((pod for pod in pods if pod is not target and not over(pod)), None)
    node, name = target["spec"]["nodeName"], target["metadata"]["name"]
    uids = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in (source, target) if pod is not None}
    state = {"migrationUid": uid, "targetPod": name, "targetNode": node, "completed": False}
    if phase != "Running":
        environment.report(instance, activePods=uids, migrationState=state)
        return _report(environment, one, "Running")
    if environment.hold_migrations:
        return False
    if source is not None:
        environment.machines[source["spec"]["nodeName"]].phase(source["metadata"], "Succeeded")
    active = {target["metadata"]["uid"]: node} | {pod: None for pod in uids if pod != target["metadata"]["uid"]}
    environment.report(instance, nodeName=node, activePods=active, migrationState=state | {"completed": True})
    return _report(environment, one, "Succeeded")


def _report(environment: VmCluster, one: JSON, phase: str) -> bool:
    if (one.get("status") or {}).get("phase") == phase:
        return False
    meta = one["metadata"]
    path = f"/apis/kubevirt.io/v1/namespaces/{meta['namespace']}/virtualmachineinstancemigrations/{meta['name']}"
    return write(environment.cluster, "PATCH", f"{path}/status", {"status": {"phase": phase}})
