"""The values of ``vgpu``, ``mixed-size`` and ``passthrough`` in the native format."""

from __future__ import annotations

from aliquot.core.config.text.node_reader import Field, Reading, article
from aliquot.core.config.text.vgpu_request import MAX_VGPUS, NONE, TypeWish
from aliquot.core.config.text.yaml_nodes import Map, Node, Scalar

MIXED = "mixed-size"


def read_types(reading: Reading, node: Node) -> tuple[TypeWish, ...]:
    """Types with counts; nothing for ``none`` and for an empty mapping."""
    if isinstance(node, Scalar) and node.value == NONE:
        return ()
    if not isinstance(node, Map):
        sentence = f"'vgpu' must be none or a mapping of types to counts, not {article(node)}"
        reading.faults.add(node, f'{sentence} (for example {{"NVIDIA A2-4Q": 4}})')
        return ()
    found: list[TypeWish] = []
    for key, value in node.entries:
        wish = _type(reading, key, value)
        if wish is not None and any(wish.name == other.name for other in found):
            reading.faults.add(key, f"{wish.name!r} names a vGPU type that this entry has already")
        elif wish is not None:
            found.append(wish)
    return tuple(found)


def _type(reading: Reading, key: Scalar, node: Node) -> TypeWish | None:
    name = " ".join(key.text.split())
    if not isinstance(key.value, str) or not name or name.isdigit():
        way = f"write id:{name}, or the type's name" if name.isdigit() else "for example NVIDIA A2-4Q, or A2-4Q"
        reading.faults.add(key, f"a vGPU type is a name, not {article(key)} ({way})")
        return None
    count = whole(reading, node, f"the count of {name!r}")
    if count is None:
        return None
    if not 1 <= count <= MAX_VGPUS:
        reading.faults.add(node, f"the count of {name!r} must be from 1 to {MAX_VGPUS}, not {count}")
        return None
    return TypeWish(name, key.line, key.column, count)


def whole(reading: Reading, node: Node, what: str) -> int | None:
    """A whole number, or a fault."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    reading.faults.add(node, f"{what} must be a whole number, not {article(node)}")
    return None


def read_mixed(reading: Reading, fields: dict[str, Field], beside_vgpu: bool) -> bool | None:
    """``mixed-size``, None where it was not given."""
    if MIXED not in fields:
        return None
    key, node = fields[MIXED]
    if not beside_vgpu:
        reading.faults.add(key, f"{MIXED!r} belongs beside 'vgpu'")
    return read_flag(reading, node, f"{MIXED!r}")


def read_flag(reading: Reading, node: Node, what: str) -> bool | None:
    """``true`` or ``false``, or a fault."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    reading.faults.add(node, f"{what} must be true or false, not {article(node)}")
    return None
