"""The common part of mig-parted's format and vgpu-device-manager's: named configs, and the GPUs of an entry."""

from __future__ import annotations

from aliquot.core.config.file import ConfigEntry
from aliquot.core.config.select.overlaps import certain_overlaps
from aliquot.core.config.select.selector import MAX_INDEX, NEVER, Filter
from aliquot.core.config.text.node_reader import YamlReader, describe_node
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar
from aliquot.core.model.ids import device_filter


class DeviceEntryReader(YamlReader):
    """A reader of entries with device filters. ``compat`` accepts exactly what the format's own tool accepts."""

    def __init__(self, source: str, compat: bool) -> None:
        super().__init__(source)
        self.compat = compat

    def named(self, root: Node | None, key: str) -> dict[str, Node]:
        """Return the named configs of a file, below ``key``."""
        assert isinstance(root, Map)
        fields = self.mapping(root, "the file") or {}
        self.check_keys(fields, ("version", key), "the file")
        if key not in fields:
            if not self.compat:
                self.diagnostics.add(root, f"the key {key!r} is missing")
            return {}
        node = fields[key][1]
        configs = self.mapping(node, f"{key!r}")
        if configs is not None and not configs:
            self.diagnostics.add(node, f"{key!r} must have at least one named config")
        return {name: value for name, (_, value) in (configs or {}).items()}

    def overlaps(self, entries: tuple[ConfigEntry, ...]) -> None:
        for entry, other in certain_overlaps(entries):
            self.diagnostics.add(
                entry, f"this entry and the one in line {other.line} request different states of the same GPU"
            )

    def devices(self, node: Node) -> tuple[int, ...] | None:
        """Read GPU indexes; None for ``all``."""
        if isinstance(node, Scalar) and node.value == "all":
            return None
        if not isinstance(node, List):
            self.diagnostics.add(node, f"'devices' must be all or a list of GPU indexes, not {describe_node(node)}")
            return ()
        found: list[int] = []
        for item in node.items:
            value = item.value if isinstance(item, Scalar) else None
            if not isinstance(value, int) or isinstance(value, bool):
                self.diagnostics.add(item, f"a GPU index is a whole number, not {describe_node(item)}")
            elif not self.compat and value in found:
                self.diagnostics.add(item, f"the GPU index {value} is listed twice")
            elif not self.compat and not 0 <= value <= MAX_INDEX:
                self.diagnostics.add(item, f"the GPU index {value} is not from 0 to {MAX_INDEX}")
            else:
                found.append(value)
        if not node.items and not self.compat:
            self.diagnostics.add(node, "'devices' lists no GPU: write all or GPU indexes")
        return tuple(found)

    def filters(self, node: Node) -> tuple[Filter, ...] | None:
        """Read packed PCI ids; None for every GPU."""
        if self.compat and _empty(node):
            return None
        found: list[Filter] = []
        for at, text in self.texts(node, "'device-filter'"):
            try:
                found.append(device_filter(text))
            except ValueError:
                found.append(NEVER)
                if not self.compat:
                    self.diagnostics.add(
                        at, f'{text!r} is not a device filter (expected for example "0x20B010DE", device then vendor)'
                    )
        if _empty(node):
            self.diagnostics.add(node, "'device-filter' is empty: leave it out to mean every GPU")
        return tuple(found)


def _empty(node: Node) -> bool:
    return (isinstance(node, List) and not node.items) or (isinstance(node, Scalar) and node.value in (None, ""))
