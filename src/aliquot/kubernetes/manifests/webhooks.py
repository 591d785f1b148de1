"""Admission webhooks as objects. The manifests have their configurations without webhooks. The leading controller adds
the webhooks once it answers, so that no request waits for an installation that is not ready.

Our outage must not stop VMs: for KubeVirt's kinds the failure policy is Ignore, and only VMs that request devices are
checked. It is Ignore for claims, USB devices and network ports too, because pcidevices may serve them, and for pools.
For Harvester's other kinds it is Fail: they are only desired states, and nothing runs on them.
"""

from __future__ import annotations

from aliquot.kubernetes.client.admission_review import GARBAGE_COLLECTOR
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import ADMISSION_KINDS, GROUP, VERSION, PCIDeviceClaim
from aliquot.kubernetes.kinds.harvester_peripherals import PERIPHERAL_KINDS
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, DEVICES, WEBHOOK, Object, Values, metadata

PCIDEVICES = "system:serviceaccount:harvester-system:harvester-pcidevices-controller"
VALIDATE_DEVICES, VALIDATE_MACHINES, MUTATE_MACHINES = "/validate/devices", "/validate/machines", "/mutate/machines"
VALIDATING, MUTATING = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
_API = "admissionregistration.k8s.io/v1"
_DEVICES = "object.spec{0}.?domain.?devices"
_TIMEOUT_S = 10


def accounts(values: Values) -> tuple[str, ...]:
    """Return the accounts whose writes are not checked, because they maintain the objects: ours and the original's."""
    ours = (values.account(each) for each in (AGENT_ACCOUNT, DEVICES, CONTROLLER))
    return *ours, PCIDEVICES, GARBAGE_COLLECTOR


def hooks(values: Values, *, url: str = "") -> dict[str, list[Object]]:
    """Return the webhooks of both configurations, by kind. ``url`` (``https://HOST``) reaches them if they are not a
    Service of the cluster.
    """
    clients = _WebhookClients(values, url)
    return {
        VALIDATING: [
            _devices(clients),
            _claims(clients),
            _pools(clients),
            _virtual_machines(clients, VALIDATE_MACHINES),
            _instances(clients),
        ],
        MUTATING: [_virtual_machines(clients, MUTATE_MACHINES) | {"reinvocationPolicy": "Never"}],
    }


def configurations(values: Values, *, url: str = "") -> list[Object]:
    """Return both configurations with their webhooks."""
    return [each | {"webhooks": hooks(values, url=url)[each["kind"]]} for each in empty_configurations()]


def empty_configurations() -> list[Object]:
    """Return both configurations without webhooks, as they are installed."""
    return [
        {"apiVersion": _API, "kind": kind, "metadata": metadata(WEBHOOK, "webhook")} for kind in (VALIDATING, MUTATING)
    ]


class _WebhookClients:
    def __init__(self, values: Values, url: str) -> None:
        self.values, self.url = values, url.rstrip("/")

    def client(self, path: str) -> Object:
        if self.url:
            return {"url": self.url + path}
        return {"service": {"name": WEBHOOK, "namespace": self.values.namespace, "path": path, "port": 443}}


def _hook(name: str, client: Object, rule: Object, policy: str, effects: str, conditions: dict[str, str]) -> Object:
    return {
        "name": name,
        "clientConfig": client,
        "rules": [rule],
        "failurePolicy": policy,
        "sideEffects": effects,
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": _TIMEOUT_S,
        "matchConditions": [{"name": key, "expression": text} for key, text in conditions.items()],
    }


def _devices(clients: _WebhookClients) -> Object:
    judged = [kind.TYPE.plural for kind in ADMISSION_KINDS if kind is not PCIDeviceClaim]
    return _harvester("devices.aliquot.dev", clients, judged, "Fail")


def _claims(clients: _WebhookClients) -> Object:
    """Return the webhook of claims, USB devices and network ports. They may be about devices that pcidevices serves, so
    while no webhook answers, they must pass.
    """
    kinds: tuple[type[KubeObject], ...] = (PCIDeviceClaim, *PERIPHERAL_KINDS)
    judged = [kind.TYPE.plural for kind in kinds]
    return _harvester("claims.aliquot.dev", clients, judged, "Ignore")


def _pools(clients: _WebhookClients) -> Object:
    """Return the webhook of VGPUPools. While none answers, one must be able to remove their finalizers by hand."""
    rule = _cluster_rule(VGPUPool.TYPE.group, VGPUPool.TYPE.version, [VGPUPool.TYPE.plural], ["CREATE", "UPDATE"])
    return _unless_ours("pools.aliquot.dev", clients, rule, "Ignore")


def _harvester(name: str, clients: _WebhookClients, plurals: list[str], policy: str) -> Object:
    rule = _cluster_rule(GROUP, VERSION, plurals, ["CREATE", "UPDATE", "DELETE"])
    return _unless_ours(name, clients, rule, policy)


def _cluster_rule(group: str, version: str, plurals: list[str], operations: list[str]) -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": plurals,
        "scope": "Cluster",
    }


def _unless_ours(name: str, clients: _WebhookClients, rule: Object, policy: str) -> Object:
    """Return a webhook that does not review the writes of our own programs."""
    others = ", ".join(f"'{each}'" for each in accounts(clients.values))
    conditions = {"not-ours": f"!(request.userInfo.username in [{others}])"}
    return _hook(name, clients.client(VALIDATE_DEVICES), rule, policy, "None", conditions)


def _virtual_machines(clients: _WebhookClients, path: str) -> Object:
    annotated = f"'{names.ALLOCATION_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    conditions = {"has-devices": f"{_has_devices('.?template.?spec')} || {annotated}"}
    rule = _kubevirt("virtualmachines", ["CREATE", "UPDATE"])
    return _hook("machines.aliquot.dev", clients.client(path), rule, "Ignore", "NoneOnDryRun", conditions)


def _instances(clients: _WebhookClients) -> Object:
    rule = _kubevirt("virtualmachineinstances", ["CREATE"])
    client = clients.client(VALIDATE_MACHINES)
    return _hook("instances.aliquot.dev", client, rule, "Ignore", "NoneOnDryRun", {"has-devices": _has_devices("")})


def _has_devices(template: str) -> str:
    devices = _DEVICES.format(template)
    return " || ".join(f"size({devices}.?{field}.orValue([])) > 0" for field in ("gpus", "hostDevices"))


def _kubevirt(plural: str, operations: list[str]) -> Object:
    return {
        "apiGroups": ["kubevirt.io"],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": [plural],
        "scope": "Namespaced",
    }
