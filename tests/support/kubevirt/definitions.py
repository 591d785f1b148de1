"""KubeVirt's kinds for tests: names, columns and subresources as KubeVirt serves them, with the schemas of the fields
that GPUs need.

The schemas follow the published field lists. All other fields of an object are kept and not validated.

Two facts that clients often miss: a VirtualMachineInstance has no status subresource, and its ``gpus`` and
``hostDevices`` entries need ``name`` and ``deviceName`` or a claim.
"""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
GROUP, VERSION = "kubevirt.io", "v1"
_OPEN: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT: JSON = {"type": "string"}
_FLAG: JSON = {"type": "boolean"}
_AGE: JSON = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def definitions() -> list[JSON]:
    """Return the CustomResourceDefinitions, ready to be applied."""
    return [
        _definition("VirtualMachine", "virtualmachines", ["vm", "vms"], _machine(), _MACHINE_COLUMNS),
        _definition(
            *("VirtualMachineInstance", "virtualmachineinstances", ["vmi", "vmis"]),
            _instance(),
            _INSTANCE_COLUMNS,
            status=False,
        ),
        _definition(
            *("VirtualMachineInstanceMigration", "virtualmachineinstancemigrations", ["vmim", "vmims"]),
            _object({"vmiName": _TEXT}),
            [_column("Phase", ".status.phase"), _column("VMI", ".spec.vmiName")],
        ),
        _definition("KubeVirt", "kubevirts", ["kv", "kvs"], _settings(), [_AGE, _column("Phase", ".status.phase")]),
    ]


def _column(name: str, path: str) -> JSON:
    return {"name": name, "type": "string", "jsonPath": path}


_MACHINE_COLUMNS = [
    _AGE,
    _column("Status", ".status.printableStatus"),
    _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
]
_INSTANCE_COLUMNS = [
    _AGE,
    _column("Phase", ".status.phase"),
    _column("IP", ".status.interfaces[0].ipAddress"),
    _column("NodeName", ".status.nodeName"),
    _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
]


def _definition(
    kind: str, plural: str, short: list[str], schema: JSON, columns: list[JSON], *, status: bool = True
) -> JSON:
    version: JSON = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    if status:
        version["subresources"] = {"status": {}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": short, "categories": ["all"]}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": spec,
    }


def _open(properties: JSON, required: list[str] | None = None) -> JSON:
    found = {**_OPEN, "properties": properties}
    return found | ({"required": required} if required else {})


def _object(spec: JSON, required: list[str] | None = None) -> JSON:
    return {"type": "object", "required": ["spec"], "properties": {"spec": _open(spec, required), "status": _OPEN}}


def _list(item: JSON) -> JSON:
    return {"type": "array", "x-kubernetes-list-type": "atomic", "items": item}


def _device(*, display: bool) -> JSON:
    """Return the schema of a device entry. ``gpus`` have display options, ``hostDevices`` have none."""
    properties = dict.fromkeys(("name", "deviceName", "claimName", "requestName", "tag"), _TEXT)
    if not display:
        return {"type": "object", "required": ["name"], "properties": properties}
    ram = {"type": "object", "properties": {"enabled": _FLAG}}
    shown = {"type": "object", "properties": {"enabled": _FLAG, "ramFB": ram}}
    options = {"type": "object", "properties": {"display": shown}}
    return {"type": "object", "required": ["name"], "properties": {**properties, "virtualGPUOptions": options}}


def _instance_spec() -> JSON:
    devices = _open({"gpus": _list(_device(display=True)), "hostDevices": _list(_device(display=False))})
    domain = _open({"devices": devices}, ["devices"])
    labels = {"type": "object", "additionalProperties": _TEXT}
    return _open({"domain": domain, "nodeSelector": labels, "hostname": _TEXT}, ["domain"])


def _instance() -> JSON:
    return {"type": "object", "required": ["spec"], "properties": {"spec": _instance_spec(), "status": _OPEN}}


def _machine() -> JSON:
    metadata = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True}
    template = {"type": "object", "properties": {"metadata": metadata, "spec": _instance_spec()}}
    return _object({"running": _FLAG, "runStrategy": _TEXT, "template": template}, ["template"])


def _settings() -> JSON:
    pci = _permitted("pciVendorSelector")
    mdev = _permitted("mdevNameSelector")
    permitted = _open({"pciHostDevices": _list(pci), "mediatedDevices": _list(mdev), "usb": _list(_OPEN)})
    return _object({"configuration": _open({"permittedHostDevices": permitted})})


def _permitted(selector: str) -> JSON:
    properties = {selector: _TEXT, "resourceName": _TEXT, "externalResourceProvider": _FLAG}
    return {"type": "object", "required": [selector, "resourceName"], "properties": properties}
