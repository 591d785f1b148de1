"""Live migrations, as virt-controller and virt-handler carry them out: two launchers for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.kubevirt.launchers import MIGRATION, over
from support.kubevirt.writes import write

if TYPE_CHECKING:
    from support.kubevirt.players import World

JSON = dict[str, Any]


def migrate(world: World, one: JSON, instance: JSON | None, pods: list[JSON]) -> bool:
    """One step of a migration; whether anything changed."""
    uid, phase = one["metadata"]["uid"], (one.get("status") or {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return False
    if instance is None or instance["metadata"].get("deletionTimestamp"):
        return _say(world, one, "Failed")
    target = next((pod for pod in pods if pod["metadata"]["labels"].get(MIGRATION) == uid), None)
    if target is None:
        return world.launch(instance, uid)
    if over(target):
        return _say(world, one, "Failed")
    if target.get("status", {}).get("phase") != "Running":
        return _say(world, one, "Scheduling")
    source = next((pod for pod in pods if pod is not target and not over(pod)), None)
    node, name = target["spec"]["nodeName"], target["metadata"]["name"]
    uids = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in (source, target) if pod is not None}
    state = {"migrationUid": uid, "targetPod": name, "targetNode": node, "completed": False}
    if phase != "Running":
        world.say(instance, activePods=uids, migrationState=state)
        return _say(world, one, "Running")
    if world.hold_migrations:
        return False
    if source is not None:
        world.machines[source["spec"]["nodeName"]].phase(source["metadata"], "Succeeded")
    active = {target["metadata"]["uid"]: node} | {pod: None for pod in uids if pod != target["metadata"]["uid"]}
    world.say(instance, nodeName=node, activePods=active, migrationState=state | {"completed": True})
    return _say(world, one, "Succeeded")


def _say(world: World, one: JSON, phase: str) -> bool:
    if (one.get("status") or {}).get("phase") == phase:
        return False
    meta = one["metadata"]
    path = f"/apis/kubevirt.io/v1/namespaces/{meta['namespace']}/virtualmachineinstancemigrations/{meta['name']}"
    return write(world.cluster, "PATCH", f"{path}/status", {"status": {"phase": phase}})
