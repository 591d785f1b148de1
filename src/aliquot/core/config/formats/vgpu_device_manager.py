"""vgpu-device-manager's configuration file, version v1.

Reading refuses what the format's own reader refuses. Strict reading also refuses mistakes that it accepts silently.
Source: the tool's observable behaviour (version 0.5.0).
"""

from __future__ import annotations

import re

from aliquot.core.config.file import VGPU, VGPU_DEVICE_MANAGER, ConfigEntry, ConfigFile
from aliquot.core.config.formats.device_entries import DeviceEntryReader
from aliquot.core.config.formats.native_vgpu import read_count
from aliquot.core.config.select.selector import Selector
from aliquot.core.config.text.node_reader import Field, did_you_mean
from aliquot.core.config.text.vgpu_request import MAX_VGPUS, VgpuRequest, without_mig_attribute
from aliquot.core.config.text.yaml_nodes import Node, Scalar, YamlDocument

_TIME_SLICED = re.compile(r"([A-Z0-9]+(?:-[a-zA-Z]+)*)-(?:0|[1-9][0-9]*)[ABCQ]")
_MIG_BACKED = re.compile(r"([A-Z0-9]+)-[1-9]-(?:0|[1-9][0-9]*)[ABCQ](?:ME|NOME|MEALL|GFX)?")
"""The names that the tool accepts. Source: its observable behaviour."""

_KEYS = ("devices", "device-filter", "vgpu-devices")


def read(document: YamlDocument, source: str, *, compat: bool) -> ConfigFile:
    """Read a document. Raises ConfigError with all errors."""
    reader = _VgpuFile(source, compat)
    if not compat:
        reader.duplicates(document)
    configs = reader.top(document)
    reader.diagnostics.check()
    return ConfigFile(source, VGPU_DEVICE_MANAGER, configs, compat)


def product_of_type(name: str) -> str:
    """Return the product in a type's name, empty if the format does not accept the name: ``A2`` of ``A2-4Q``."""
    found = _TIME_SLICED.fullmatch(name) or _MIG_BACKED.fullmatch(name)
    return found[1] if found else ""


class _VgpuFile(DeviceEntryReader):
    def top(self, document: YamlDocument) -> dict[str, tuple[ConfigEntry, ...]]:
        return {name: self.config(name, node) for name, node in self.named(document.root, "vgpu-configs").items()}

    def config(self, name: str, node: Node) -> tuple[ConfigEntry, ...]:
        found = [self.entry(item) for item in self.entries(node, f"the named config {name!r}")]
        entries = tuple(e for e in found if e is not None)
        if not self.compat and len(entries) == len(found):
            self.overlaps_by_product(entries)
        return entries

    def overlaps_by_product(self, entries: tuple[ConfigEntry, ...]) -> None:
        """Report overlapping entries of one product.

        Entries with one filter may be for two boards with one PCI id: they conflict only if they name one product.
        """
        by_product: dict[str, list[ConfigEntry]] = {}
        for entry in entries:
            for name in {product_of_type(w.name) for w in entry.types} or {""}:
                by_product.setdefault(name, []).append(entry)
        for name, members in by_product.items():
            self.overlaps((*members, *by_product.get("", ())) if name else tuple(members))

    def entry(self, node: Node) -> ConfigEntry | None:
        fields = self.mapping(node, "an entry")
        if fields is None:
            return None
        required = ("devices", "vgpu-devices")
        fields = self.check_keys(fields, _KEYS, "an entry", required)
        for key in required:
            if key not in fields:
                self.diagnostics.add(node, f"the entry lacks the key {key!r}")
        indexes = self.devices(fields["devices"][1]) if "devices" in fields else None
        filters = self.filters(fields["device-filter"][1]) if "device-filter" in fields else None
        types = self.types(fields.get("vgpu-devices"))
        selector = Selector(indexes=indexes, filters=filters)
        return ConfigEntry(selector, False, (), node.line, node.column, VGPU, types)

    def types(self, field: Field | None) -> tuple[VgpuRequest, ...]:
        node = field[1] if field else None
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if node is not None and not self.compat:
                self.diagnostics.add(node, "'vgpu-devices' holds nothing (write {} for no vGPUs)")
            return ()
        counts = self.mapping(node, "'vgpu-devices'") or {}
        keys = [key for key, _ in counts.values() if product_of_type(key.text)]
        for key in keys:
            if bool(_MIG_BACKED.fullmatch(key.text)) != bool(_MIG_BACKED.fullmatch(keys[0].text)):
                self.diagnostics.add(key, "time-sliced and MIG-backed types cannot be on the same GPU")
        found = [self.type(key, value) for key, value in counts.values()]
        return tuple(request for request in found if request is not None)

    def type(self, key: Scalar, node: Node) -> VgpuRequest | None:
        name = key.text
        if not product_of_type(name):
            short = name.rpartition(" ")[2]
            near = f" (write {short})" if product_of_type(short) else did_you_mean(name, _names())
            self.diagnostics.add(
                key, f"{name!r} is not a vGPU type of this format{near or ' (expected for example A2-4Q)'}"
            )
        count = read_count(self, node, f"the count of {name!r}")
        if count is not None and count < 1:
            self.diagnostics.add(node, f"the count of {name!r} must be 1 or more, not {count}")
        elif count is not None and count > MAX_VGPUS:
            self.diagnostics.add(node, f"no GPU holds {count} vGPUs")
        elif count is not None and product_of_type(name):
            return VgpuRequest(name, key.line, key.column, count, without_mig_attribute(name))
        return None


def _names() -> list[str]:
    from aliquot.core.model import vgpu_types as vgpu

    return list(dict.fromkeys(t.short for table in vgpu.tables() for t in table.types))
