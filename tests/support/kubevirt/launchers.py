"""virt-launcher pods, as virt-controller creates them: the part of a VM that the rest of a cluster sees."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
DOMAIN = "kubevirt.io/domain"
CREATED_BY = "kubevirt.io/created-by"
NAME = "vm.kubevirt.io/name"
MIGRATION = "kubevirt.io/migrationJobUID"
SELECTOR = {"kubevirt.io": "virt-launcher"}
_LABEL_MOST = 63


def devices(instance: JSON) -> list[tuple[str, JSON]]:
    """Return each entry that names a resource, with ``GPU`` or ``HostDevice``. Entries from DRA claims are omitted."""
    found = (instance["spec"].get("domain") or {}).get("devices") or {}
    pairs = [("GPU", each) for each in found.get("gpus") or []]
    pairs += [("HostDevice", each) for each in found.get("hostDevices") or []]
    return [(word, each) for word, each in pairs if not each.get("claimName")]


def not_permitted(instance: JSON, settings: JSON | None) -> str:
    """Return virt-controller's refusal, or "" if there is none. Settings without any list permit everything."""
    permitted = ((settings or {}).get("spec", {}).get("configuration") or {}).get("permittedHostDevices")
    if permitted is None:
        return ""
    lists = ("pciHostDevices", "mediatedDevices", "usb")
    names = {row["resourceName"] for part in lists for row in permitted.get(part) or []}
    wrong = [
        f"{word} {each.get('deviceName')} is not permitted in permittedHostDevices configuration"
        for word, each in devices(instance)
        if each.get("deviceName") not in names
    ]
    return " ".join(wrong)


def launcher(instance: JSON, name: str, migration: str = "") -> JSON:
    """Return the pod of an instance, or of a migration's target if its uid is given."""
    meta, spec = instance["metadata"], instance["spec"]
    counts: dict[str, int] = {}
    for _, each in devices(instance):
        counts[each["deviceName"]] = counts.get(each["deviceName"], 0) + 1
    figures = {resource: str(count) for resource, count in counts.items()}
    host = (spec.get("hostname") or meta["name"].split(".")[0])[:_LABEL_MOST]
    labels = {**(meta.get("labels") or {}), **SELECTOR, CREATED_BY: meta["uid"], NAME: host}
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": meta["name"]}
    owner |= {"uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}
    return {
        "metadata": {
            "name": name,
            "labels": labels | ({MIGRATION: migration} if migration else {}),
            "annotations": {DOMAIN: meta["name"]},
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": spec.get("nodeSelector") or {},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "compute",
                    "image": "virt-launcher",
                    "resources": {"limits": figures, "requests": figures},
                }
            ],
        },
    }


def asked(pod: JSON) -> dict[str, int]:
    """Return the requests of a pod for extended resources."""
    found: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("limits") or {}).items():
            if "/" in name:
                found[name] = found.get(name, 0) + int(text)
    return found


def over(pod: JSON) -> bool:
    """Report whether a pod has ended, so that its devices are free."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
