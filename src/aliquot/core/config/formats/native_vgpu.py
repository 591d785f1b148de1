"""The values of ``vgpu`` and of the keys beside it, and of ``passthrough``, in the native format."""

from __future__ import annotations

from aliquot.core.config.file import VGPU
from aliquot.core.config.text.node_reader import Field, YamlReader, describe_node
from aliquot.core.config.text.vgpu_request import MAX_VGPUS, NONE, VgpuRequest
from aliquot.core.config.text.yaml_nodes import Map, Node, Scalar
from aliquot.core.model.plugin_parameters import NAMES, from_switches
from aliquot.core.model.vgpu_scheduler import normal_scheduler

MIXED = "mixed-size"
PARAMETERS = "vgpu-parameters"
SCHEDULER = "scheduler"


def read_types(reader: YamlReader, node: Node) -> tuple[VgpuRequest, ...]:
    """Read types with counts; empty for ``none`` and for an empty mapping."""
    if isinstance(node, Scalar) and node.value == NONE:
        return ()
    if not isinstance(node, Map):
        sentence = f"'vgpu' must be none or a mapping of types to counts, not {describe_node(node)}"
        reader.diagnostics.add(node, f'{sentence} (for example {{"NVIDIA A2-4Q": 4}})')
        return ()
    found: list[VgpuRequest] = []
    for key, value in node.entries:
        request = _type(reader, key, value)
        if request is not None and any(request.name == other.name for other in found):
            reader.diagnostics.add(key, f"{request.name!r} names a vGPU type that this entry already has")
        elif request is not None:
            found.append(request)
    return tuple(found)


def _type(reader: YamlReader, key: Scalar, node: Node) -> VgpuRequest | None:
    name = " ".join(key.text.split())
    if not isinstance(key.value, str) or not name or name.isdigit():
        hint = f"write id:{name}, or the type's name" if name.isdigit() else "for example NVIDIA A2-4Q, or A2-4Q"
        reader.diagnostics.add(key, f"a vGPU type is a name, not {describe_node(key)} ({hint})")
        return None
    count = read_count(reader, node, f"the count of {name!r}")
    if count is None:
        return None
    if not 1 <= count <= MAX_VGPUS:
        reader.diagnostics.add(node, f"the count of {name!r} must be from 1 to {MAX_VGPUS}, not {count}")
        return None
    return VgpuRequest(name, key.line, key.column, count)


def read_count(reader: YamlReader, node: Node, what: str) -> int | None:
    """Read a whole number; None, with an error, for anything else."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    reader.diagnostics.add(node, f"{what} must be a whole number, not {describe_node(node)}")
    return None


def read_mixed_size(reader: YamlReader, fields: dict[str, Field], beside_vgpu: bool) -> bool | None:
    """Read ``mixed-size``; None if it is missing."""
    if MIXED not in fields:
        return None
    key, node = fields[MIXED]
    if not beside_vgpu:
        reader.diagnostics.add(key, f"{MIXED!r} belongs beside 'vgpu'")
    return read_flag(reader, node, f"{MIXED!r}")


def read_parameters(reader: YamlReader, fields: dict[str, Field]) -> str | None:
    """Read ``vgpu-parameters``, switches of NVIDIA's vGPU plugin; None if it is missing. Empty means no parameters."""
    if PARAMETERS not in fields:
        return None
    key, node = fields[PARAMETERS]
    types = fields[VGPU][1] if VGPU in fields else None
    if types is None or (isinstance(types, Scalar) and types.value == NONE):
        reader.diagnostics.add(key, f"{PARAMETERS!r} belongs beside the types of 'vgpu'")
    found = reader.mapping(node, f"{PARAMETERS!r}") or {}
    reader.check_keys(found, NAMES, f"{PARAMETERS!r}")
    switches = {name: read_flag(reader, found[name][1], repr(name)) for name in NAMES if name in found}
    return from_switches({name: on for name, on in switches.items() if on is not None})


def read_scheduler(reader: YamlReader, fields: dict[str, Field]) -> str | None:
    """Read ``scheduler``, in our spelling; None if it is missing, and with an error if it is wrong."""
    if SCHEDULER not in fields:
        return None
    key, node = fields[SCHEDULER]
    if VGPU not in fields:
        reader.diagnostics.add(key, f"{SCHEDULER!r} belongs beside 'vgpu'")
    text = reader.text(node, f"{SCHEDULER!r}")
    try:
        return None if text is None else normal_scheduler(text)
    except ValueError as problem:
        reader.diagnostics.add(node, str(problem))
        return None


def read_flag(reader: YamlReader, node: Node, what: str) -> bool | None:
    """Read ``true`` or ``false``; None, with an error, for anything else."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    reader.diagnostics.add(node, f"{what} must be true or false, not {describe_node(node)}")
    return None
