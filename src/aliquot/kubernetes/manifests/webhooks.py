"""The admission webhooks as objects. The controller that leads (or cert-manager) puts the certificate authority in.

An outage of ours must not stop virtual machines: for KubeVirt's kinds the failure policy is Ignore, and only machines
that ask for devices are asked about. For Harvester's kinds it is Fail: nothing runs by those, they are wishes.
"""

from __future__ import annotations

from aliquot.kubernetes.client.admission_review import GARBAGE_COLLECTOR
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import GROUP, JUDGED, VERSION
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, DEVICES, WEBHOOK, Object, Values, metadata

PCIDEVICES = "system:serviceaccount:harvester-system:harvester-pcidevices-controller"
VALIDATE_DEVICES, VALIDATE_MACHINES, MUTATE_MACHINES = "/validate/devices", "/validate/machines", "/mutate/machines"
VALIDATING, MUTATING = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
_API = "admissionregistration.k8s.io/v1"
_DEVICES = "object.spec{0}.?domain.?devices"
_TIMEOUT_S = 10


def accounts(values: Values) -> tuple[str, ...]:
    """Whose writes are not judged: those that keep the objects true, ours and the original's."""
    ours = (values.account(each) for each in (AGENT_ACCOUNT, DEVICES, CONTROLLER))
    return *ours, PCIDEVICES, GARBAGE_COLLECTOR


def configurations(values: Values, *, url: str = "", certificate: str = "") -> list[Object]:
    """Both configurations. ``url`` reaches the webhooks where they are no Service of the cluster (``https://HOST``).
    ``certificate`` is a cert-manager Certificate (``NAMESPACE/NAME``) that cert-manager puts the authority in from.
    """
    where = _Where(values, url)
    validating = [_devices(where), _machines(where, VALIDATE_MACHINES), _instances(where)]
    return [
        _configuration(VALIDATING, validating, certificate),
        _configuration(MUTATING, [_machines(where, MUTATE_MACHINES) | {"reinvocationPolicy": "Never"}], certificate),
    ]


class _Where:
    def __init__(self, values: Values, url: str) -> None:
        self.values, self.url = values, url.rstrip("/")

    def client(self, path: str) -> Object:
        if self.url:
            return {"url": self.url + path}
        return {"service": {"name": WEBHOOK, "namespace": self.values.namespace, "path": path, "port": 443}}


def _configuration(kind: str, hooks: list[Object], certificate: str) -> Object:
    meta = metadata(WEBHOOK, "webhook")
    if certificate:
        meta["annotations"] = {"cert-manager.io/inject-ca-from": certificate}
    return {"apiVersion": _API, "kind": kind, "metadata": meta, "webhooks": hooks}


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


def _devices(where: _Where) -> Object:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": [kind.TYPE.plural for kind in JUDGED],
        "scope": "Cluster",
    }
    others = ", ".join(f"'{each}'" for each in accounts(where.values))
    conditions = {"not-ours": f"!(request.userInfo.username in [{others}])"}
    return _hook("devices.aliquot.dev", where.client(VALIDATE_DEVICES), rule, "Fail", "None", conditions)


def _machines(where: _Where, path: str) -> Object:
    annotated = f"'{names.ALLOCATION_ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    conditions = {"has-devices": f"{_asks('.?template.?spec')} || {annotated}"}
    rule = _kubevirt("virtualmachines", ["CREATE", "UPDATE"])
    return _hook("machines.aliquot.dev", where.client(path), rule, "Ignore", "NoneOnDryRun", conditions)


def _instances(where: _Where) -> Object:
    rule = _kubevirt("virtualmachineinstances", ["CREATE"])
    client = where.client(VALIDATE_MACHINES)
    return _hook("instances.aliquot.dev", client, rule, "Ignore", "NoneOnDryRun", {"has-devices": _asks("")})


def _asks(template: str) -> str:
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
