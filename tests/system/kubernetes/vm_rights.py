"""A cluster with the manifests for containers and for VMs, and one request for each right of the devices agent and of
the controller for VMs.

The webhooks are not registered: no server would answer, and rights do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from support.cluster import Cluster
from support.kubevirt import definitions as kubevirt
from system.kubernetes.agent_rights import (
    CONTROLLER,
    NS,
    OTHER_NODE,
    OWN_NODE,
    ROOT,
    WATCH,
    Environment,
    manifests,
    patch_node,
)
from system.kubernetes.api_user import Answer, ApiUser

DEVICES, WEBHOOK = "aliquot-devices", "aliquot-webhook"
HARVESTER = "harvester-system"
API = "/apis/devices.harvesterhci.io/v1beta1"
KUBEVIRT = "/apis/kubevirt.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/migconfigurations.devices.harvesterhci.io"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PF, FREE = "0000:08:00.0", "0000:0a:00.0"
KINDS = {
    "pcidevices": "PCIDevice",
    "pcideviceclaims": "PCIDeviceClaim",
    "sriovgpudevices": "SRIOVGPUDevice",
    "vgpudevices": "VGPUDevice",
    "migconfigurations": "MigConfiguration",
    "usbdevices": "USBDevice",
    "usbdeviceclaims": "USBDeviceClaim",
    "sriovnetworkdevices": "SRIOVNetworkDevice",
}
USB = ("usbdevices", "usbdeviceclaims")
OURS = {names.SKIP_BINDING_ANNOTATION: "true"}
MACHINE, SETTINGS = (
    f"{KUBEVIRT}/namespaces/default/virtualmachines/vm",
    f"{KUBEVIRT}/namespaces/{HARVESTER}/kubevirts/kubevirt",
)
MAPS = f"/api/v1/namespaces/{NS}/configmaps"
SECRETS = f"/api/v1/namespaces/{NS}/secrets"
POOLS, POOLED = "/apis/aliquot.dev/v1alpha1/vgpupools", ("sriovgpudevices", "vgpudevices", "migconfigurations")
POOL = f"{POOLS}/desks"
CLAIMS_API = "/apis/resource.k8s.io/v1"
LAUNCHER, DRIVER = "virt-launcher-vm-abcde", "nvidia-driver-daemonset-abcde"
EXEC_DRIVER = (
    f"/api/v1/namespaces/{HARVESTER}/pods/{DRIVER}/exec?container=nvidia-driver-ctr&command=nvidia-smi&stdout=1"
)
EXEC_LAUNCHER = f"/api/v1/namespaces/default/pods/{LAUNCHER}/exec?container=compute&command=env&stdout=1"


def item(plural: str, node: str = OWN_NODE, address: str = PF, **annotations: str) -> dict[str, Any]:
    """Build an object of a node."""
    spec: dict[str, Any] = {"nodeName": node, "enabled": True}
    spec |= {"gpuAddress" if plural == "migconfigurations" else "address": address}
    spec |= {"parentGPUDeviceAddress": PF} if plural == "vgpudevices" else {}
    if plural in ("pcidevices", *USB):
        spec = {}
    if plural in ("pcideviceclaims", "sriovnetworkdevices"):
        del spec["enabled"]
    meta = {"name": named(plural, node, address), "labels": {"nodename": node}, "annotations": annotations}
    body = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": KINDS[plural], "metadata": meta}
    return body if plural == "usbdevices" else body | {"spec": spec}


def named(plural: str, node: str, address: str) -> str:
    """Return the name of a node's object. For a USB device, the address only gives its number."""
    return f"{node}-0951-1666-001{int(address[5:7], 16):03}" if plural in USB else names.object_name(node, address)


def path(plural: str, node: str = OWN_NODE, address: str = PF) -> str:
    return f"{API}/{plural}/{named(plural, node, address)}"


def event(name: str, kind: str = "VGPUDevice", version: str = "devices.harvesterhci.io/v1beta1") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "devices."},
        "involvedObject": {"apiVersion": version, "kind": kind, "name": name, "uid": name},
        "type": "Normal",
        "reason": "Applied",
        "message": "done",
    }


class VmEnvironment(Environment):
    """``devices`` has the rights of the devices agent's pod on ``OWN_NODE``, ``loose`` the same without a pod."""

    def __init__(self, cluster: Cluster) -> None:
        cluster.apply([*crds.all_definitions(), *kubevirt.definitions()])
        cluster.namespace(HARVESTER)
        machines = ROOT / "kubernetes-machines"
        objects = [*manifests(), *manifests(machines), *manifests(machines / "optional/all-devices.yaml")]
        super().__init__(cluster, [each for each in objects if not each["kind"].endswith("WebhookConfiguration")])
        self.pod("aliquot-devices-1", OWN_NODE, NS, DEVICES)
        self.devices = ApiUser(cluster, self.token(DEVICES, "aliquot-devices-1"))
        self.loose = ApiUser(cluster, self.token(DEVICES, ""))
        cluster.wait(lambda: all(self.admin.ask("GET", f"{API}/{each}").status == 200 for each in KINDS), "the kinds")
        self.pod(LAUNCHER, OWN_NODE)
        self.pod(DRIVER, OWN_NODE, HARVESTER)
        self.reset()

    def user(self, who: str) -> ApiUser:
        return {DEVICES: self.devices, CONTROLLER: self.controller, "loose": self.loose}[who]

    def reset(self) -> None:
        """Restore the objects of the attempts."""
        for plural in KINDS:
            self.put(path(plural), item(plural))
            self.put(path(plural, OTHER_NODE), item(plural, OTHER_NODE, **OURS))
        pool = {"apiVersion": "aliquot.dev/v1alpha1", "kind": "VGPUPool", "metadata": {"name": "desks"}}
        self.put(POOL, pool | {"spec": {"vGPUTypeName": "NVIDIA A2-4Q", "count": 1}})
        devices = {
            "gpus": [{"name": "one", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}],
            "hostDevices": [{"name": "two", "deviceName": "nvidia.com/GA102GL_A40"}],
        }
        spec = {"running": True, "template": {"metadata": {}, "spec": {"domain": {"devices": devices}}}}
        self.put(MACHINE, {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": spec})
        configuration = {"developerConfiguration": {"featureGates": ["HostDevices"]}, "permittedHostDevices": {}}
        settings = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "spec": {"configuration": configuration}}
        self.put(SETTINGS, settings)

    def put(self, where: str, body: dict[str, Any]) -> None:
        self.admin.apply(where, {**body, "metadata": {**body.get("metadata", {}), "name": where.rpartition("/")[2]}})


Use = Callable[[VmEnvironment, ApiUser], Answer]


def _reads(folder: str, name: str) -> dict[str, Use]:
    return {
        "get": lambda _, client: client.ask("GET", f"{folder}/{name}"),
        "list": lambda _, client: client.ask("GET", folder),
        "watch": lambda _, client: client.ask("GET", f"{folder}?{WATCH}"),
    }


def _asks(method: str, where: str, body: object = None) -> Use:
    return lambda _, client: client.ask(method, where, body)


def _created(plural: str) -> Use:
    def use(environment: VmEnvironment, user: ApiUser) -> Answer:
        environment.admin.ask("DELETE", path(plural, address=FREE))
        return user.ask("POST", f"{API}/{plural}", item(plural, address=FREE, **OURS))

    return use


def _deleted(plural: str, node: str = OWN_NODE) -> Use:
    def use(environment: VmEnvironment, user: ApiUser) -> Answer:
        environment.put(path(plural, node, FREE), item(plural, node, FREE, **OURS))
        return user.ask("DELETE", path(plural, node, FREE))

    return use


def _unfinalized(plural: str) -> Use:
    def use(environment: VmEnvironment, user: ApiUser) -> Answer:
        where = path(plural, OTHER_NODE)
        environment.admin.must("PATCH", where, {"metadata": {"finalizers": [names.CLAIM_FINALIZER]}})
        return user.ask("PATCH", where, {"metadata": {"finalizers": None}})

    return use


def _described(environment: VmEnvironment, user: ApiUser) -> Answer:
    """Change a description in the only version of a definition."""
    versions = environment.admin.must("GET", DEFINITION)["spec"]["versions"]
    versions[0]["schema"]["openAPIV3Schema"]["description"] = "another"
    return user.ask("PATCH", DEFINITION, {"spec": {"versions": versions}})


def _secret(environment: VmEnvironment, user: ApiUser) -> Answer:
    environment.admin.ask("DELETE", f"{SECRETS}/{WEBHOOK}")
    data = {"tls.crt": "", "tls.key": ""}
    return user.ask("POST", SECRETS, {"metadata": {"name": WEBHOOK}, "type": "kubernetes.io/tls", "data": data})


def _shown(environment: VmEnvironment, user: ApiUser) -> Answer:
    environment.admin.ask("DELETE", f"{MAPS}/{OWN_NODE}-vgpus")
    return user.ask("POST", MAPS, {"metadata": {"name": f"{OWN_NODE}-vgpus"}, "data": {"inventory.json": "{}"}})


LABELLED = {"metadata": {"labels": {"a": "b"}, "finalizers": [names.CLAIM_FINALIZER]}}
REPORTED = {
    "metadata": {"labels": {names.DRIVER_NEEDED_LABEL: "true"}, "annotations": {"aliquot.dev/devices": "{}"}},
}
RENAMED = {"spec": {"template": {"spec": {"domain": {"devices": {"gpus": [
    {"name": "gpu-1-000008004", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}
]}}}}}}  # fmt: skip
ALLOCATED = {"metadata": {"annotations": {names.ALLOCATION_ANNOTATION: "{}"}}} | RENAMED
PERMITTED = {
    "metadata": {"annotations": {"aliquot.dev/permitted": "[]"}},
    "spec": {"configuration": {"permittedHostDevices": {"mediatedDevices": []}}},
}
USES: dict[tuple[str, str], dict[str, Use]] = {
    (DEVICES, "nodes"): _reads("/api/v1/nodes", OWN_NODE)
    | {"patch": lambda _, client: patch_node(client, OWN_NODE, REPORTED)},
    (DEVICES, "pods"): _reads("/api/v1/pods", "")
    | {"get": _asks("GET", f"/api/v1/namespaces/default/pods/{LAUNCHER}")},
    (DEVICES, "pods/exec"): {"get": _asks("GET", EXEC_DRIVER), "create": _asks("POST", EXEC_LAUNCHER)},
    (DEVICES, "virtualmachines"): _reads(*MACHINE.rsplit("/", 1)) | {"patch": _asks("PATCH", MACHINE, ALLOCATED)},
    (DEVICES, "virtualmachineinstances"): _reads(f"{KUBEVIRT}/namespaces/default/virtualmachineinstances", "x"),
    (DEVICES, "configmaps"): {
        "get": _asks("GET", f"{MAPS}/{OWN_NODE}-vgpus"),
        "create": _shown,
        "patch": _asks("PATCH", f"{MAPS}/{OWN_NODE}-vgpus", {"data": {"inventory.json": "{}"}}),
    },
    (DEVICES, "events"): {
        "create": _asks("POST", "/api/v1/namespaces/default/events", event(f"{OWN_NODE}-000008004")),
    },
    (CONTROLLER, "kubevirts"): _reads(*SETTINGS.rsplit("/", 1)) | {"patch": _asks("PATCH", SETTINGS, PERMITTED)},
    (CONTROLLER, "virtualmachines"): _reads(*MACHINE.rsplit("/", 1)),
    (CONTROLLER, "virtualmachineinstances"): _reads(f"{KUBEVIRT}/namespaces/default/virtualmachineinstances", "x"),
    (CONTROLLER, "customresourcedefinitions"): {
        "get": _asks("GET", DEFINITION),
        "list": _asks("GET", f"{DEFINITIONS}?fieldSelector=metadata.name={DEFINITION.rpartition('/')[2]}"),
        "watch": _asks("GET", f"{DEFINITIONS}?fieldSelector=metadata.name={DEFINITION.rpartition('/')[2]}&{WATCH}"),
        "patch": _described,
    },
    (CONTROLLER, "vgpupools"): _reads(*POOL.rsplit("/", 1))
    | {"patch": _asks("PATCH", POOL, {"metadata": {"finalizers": ["aliquot.dev/pool"]}})},
    (CONTROLLER, "vgpupools/status"): {"patch": _asks("PATCH", f"{POOL}/status", {"status": {"ready": 1}})},
    (CONTROLLER, "endpoints"): {"get": _asks("GET", f"/api/v1/namespaces/{NS}/endpoints/{WEBHOOK}")},
    (CONTROLLER, "secrets"): {
        "create": _secret,
        "get": _asks("GET", f"{SECRETS}/{WEBHOOK}"),
        "patch": _asks("PATCH", f"{SECRETS}/{WEBHOOK}", {"data": {"a": "Yw=="}}),
    },
}
for _plural in KINDS:
    USES[DEVICES, _plural] = _reads(f"{API}/{_plural}", named(_plural, OWN_NODE, PF)) | {
        "patch": _asks("PATCH", path(_plural), LABELLED),
    }
    if _plural != "usbdeviceclaims":
        USES[DEVICES, _plural] |= {"create": _created(_plural), "delete": _deleted(_plural)}
    USES[DEVICES, f"{_plural}/status"] = {
        "patch": _asks("PATCH", path(_plural) + "/status", {"status": {"observedGeneration": 1}}),
    }
    _gpus = _plural == "sriovgpudevices"
    _reading = {} if _gpus else _reads(f"{API}/{_plural}", named(_plural, OWN_NODE, PF))
    USES[CONTROLLER, _plural] = _reading | {"delete": _deleted(_plural, OTHER_NODE)}
for _claims in ("pcideviceclaims", "usbdeviceclaims"):
    USES[CONTROLLER, _claims]["patch"] = _unfinalized(_claims)
for _plural in POOLED:
    _marks = {"labels": {"aliquot.dev/pool": "desks"}, "annotations": {"aliquot.dev/pool-instances": "1g.5gb=1"}}
    _pooled = {"metadata": _marks, "spec": {"enabled": False}}
    USES[CONTROLLER, _plural]["patch"] = _asks("PATCH", path(_plural), _pooled)
for _claims in ("resourceclaims", "resourceclaimtemplates"):
    _listed = _reads(f"{CLAIMS_API}/{_claims}", "")
    USES[CONTROLLER, _claims] = {verb: _listed[verb] for verb in ("list", "watch")}
for _hooks in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
    USES[CONTROLLER, _hooks] = {
        "get": _asks("GET", f"{ADMISSION}/{_hooks}/{WEBHOOK}"),
        "patch": _asks("PATCH", f"{ADMISSION}/{_hooks}/{WEBHOOK}", {"metadata": {"labels": {"a": "b"}}}),
    }
