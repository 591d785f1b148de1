"""docs/reference/crds.md: Harvester's kinds as Aliquot ships them, and every name that it reads or writes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tools.docs.text import first, joined, made, table

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.kinds import harvester_names as harvester
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds

MEANINGS = {
    "CONFIG_LABEL": "the desired state: a named config. Read; the controller writes it only for new nodes",
    "STATE_LABEL": "written: `pending`, `rebooting`, `success`, `failed`",
    "STRATEGY_LABEL": "written: how resources are named",
    "CAPABLE_LABEL": "written: whether the node has a MIG-capable GPU",
    "DEPLOY_PREFIX": "`true` if an operand runs; written while the operand is paused, and then restored",
    "PAUSED": "the value of such a label while its operand is paused",
    "PRODUCT_LABEL": "written: the product, with `-MIG-PROFILE` under the strategy single",
    "PRESENT_LABEL": "written: whether there is a GPU",
    "NODE_LABEL": "the node that has the device",
    "PARENT_LABEL": "on a VGPUDevice: its SRIOVGPUDevice",
    "CUSTOM_DRIVER_ANNOTATION": "on a node: another driver file. Read by the driver's pod",
    "RESOURCE_ANNOTATION": "on a PCIDevice or its claim: another resource name. Read",
    "POOL_LABEL": "on a VGPUDevice: its pool",
    "CLAIM_FINALIZER": "on a claim: the GPU must first be returned to the host",
}
"""Meanings of names that the sources do not document."""


def page() -> str:
    """Return the whole page."""
    return joined([*_head(), *_kinds(), *_names(), *_resources()])


def _head() -> Iterator[str]:
    yield from (
        "# Objects, labels, annotations and resources",
        "",
        made("crds.md", "src/aliquot/kubernetes"),
        "",
    )
    yield "Every field and name in a cluster that Aliquot reads or writes, for programs, policies and dashboards."
    yield "Their use is described in [kubernetes.md](../kubernetes.md) and [harvester.md](../harvester.md)."
    yield ""


def _kinds() -> Iterator[str]:
    yield from ("## Kinds", "")
    yield "Group `devices.harvesterhci.io`, version `v1beta1`, cluster-scoped, defined in `deploy/crds`."
    yield ""
    for definition in crds.all_definitions():
        spec = definition["spec"]
        version = spec["versions"][0]
        yield f"### {spec['names']['kind']}"
        yield ""
        schema = version["schema"]["openAPIV3Schema"]
        yield from table(("field", "type", "meaning"), _fields(schema["properties"]))
        rules = [r["message"] for r in _rules(schema)]
        if rules:
            yield ""
            yield from (f"- {rule}" for rule in dict.fromkeys(rules))
        columns = ", ".join(c["name"] for c in version.get("additionalPrinterColumns", ()))
        yield from ("", f"Columns: {columns}.", "")


def _fields(properties: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for name, value in properties.items():
        if not prefix and name in ("apiVersion", "kind", "metadata"):
            continue
        place = f"{prefix}{name}"
        inner = value.get("properties") or value.get("items", {}).get("properties")
        if inner:
            yield from _fields(inner, f"{place}[]." if "items" in value else f"{place}.")
        else:
            yield f"`{place}`", _type(value), value.get("description", "")


def _type(value: dict[str, Any]) -> str:
    if value.get("type") == "array":
        return f"list of {value['items'].get('type', 'object')}"
    if "enum" in value:
        return ", ".join(f"`{each}`" if each else "empty" for each in value["enum"])
    return str(value.get("type", "object"))


def _rules(schema: Any) -> Iterator[dict[str, str]]:
    if isinstance(schema, dict):
        yield from (r for r in schema.get("x-kubernetes-validations", ()) if r.get("message"))
        for value in schema.values():
            yield from _rules(value)


def _names() -> Iterator[str]:
    for title, module in (
        ("Labels and annotations of nodes, and ConfigMaps", names),
        ("Names on Harvester's objects", harvester),
    ):
        yield from (f"## {title}", "")
        yield from table(("name", "meaning"), _constants(module))
        yield ""


def _constants(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield names of labels, annotations and objects with the documentation of each from the source.

    Raises AssertionError for a name without documentation.
    """
    body = ast.parse(inspect.getsource(module)).body
    for number, node in enumerate(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        value = getattr(module, name)
        if (
            not isinstance(value, str)
            or not re.search(r"[./-]", value)
            or name.startswith("_")
            or value.startswith("/var")
        ):
            continue
        after = body[number + 1] if number + 1 < len(body) else None
        reported = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        meaning = first(str(reported)) or MEANINGS.get(name, "")
        assert meaning or not value.count("/"), f"{module.__name__}.{name} has no meaning"
        if meaning:
            yield f"`{value}`", meaning


def _resources() -> Iterator[str]:
    yield from ("## Resources", "")
    rows = (
        ("`nvidia.com/gpu`", "whole GPUs; under the strategy single MIG devices"),
        ("`nvidia.com/mig-1g.10gb`", "MIG devices under the strategy mixed; `+` becomes `.`"),
        ("`nvidia.com/mig-1c.3g.40gb`", "compute instances"),
        (f"`{harvester.vgpu_resource('NVIDIA A2-4Q')}`", "vGPUs of the type NVIDIA A2-4Q, for virtual machines"),
        (
            f"`{harvester.pci_resource('NVIDIA Corporation', 'GA100 [A100 SXM4 40GB]', '20b0')}`",
            "claimed GPUs of that product, for virtual machines",
        ),
    )
    yield from table(("name", "counted devices"), rows)
    yield ""
    yield "More labels of nodes (`nvidia.com/gpu.*`, `nvidia.com/mig-*`, `nvidia.com/cuda.*`) have the names and"
    yield "values of gpu-feature-discovery."
