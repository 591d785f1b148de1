"""mig-parted's configuration file, version v1.

Strict reading refuses what mig-parted refuses, and also mistakes that it accepts silently. ``compat`` reading accepts
exactly what mig-parted does. Source: the tool's observable behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.config.file import MIG_PARTED, ConfigEntry, ConfigFile
from aliquot.core.config.formats.device_entries import DeviceEntryReader
from aliquot.core.config.select.selector import Selector
from aliquot.core.config.text.instance_request import MAX_COUNT, InstanceRequest
from aliquot.core.config.text.node_reader import Field, ProfileNames, describe_node, repeated_requests
from aliquot.core.config.text.yaml_nodes import Node, Scalar, YamlDocument
from aliquot.core.model.profile import ProfileName

_TRUE = {"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
"""Booleans of YAML 1.1, which these files use. They count only where a boolean is expected."""

_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices")


def read(document: YamlDocument, source: str, *, compat: bool, profiles: ProfileNames) -> ConfigFile:
    """Read a document. Raises ConfigError with all errors."""
    reader = _MigParted(source, compat)
    reader.profile_hints = profiles
    if not compat:
        reader.duplicates(document)
    configs = reader.top(document)
    reader.diagnostics.check()
    return ConfigFile(source, MIG_PARTED, configs, compat)


class _MigParted(DeviceEntryReader):
    def top(self, document: YamlDocument) -> dict[str, tuple[ConfigEntry, ...]]:
        return {name: self.config(name, node) for name, node in self.named(document.root, "mig-configs").items()}

    def config(self, name: str, node: Node) -> tuple[ConfigEntry, ...]:
        found = [self.entry(item) for item in self.entries(node, f"the named config {name!r}")]
        entries = tuple(e for e in found if e is not None)
        if not self.compat and len(entries) == len(found):
            self.overlaps(entries)
        return entries

    def entry(self, node: Node) -> ConfigEntry | None:
        fields = self.mapping(node, "an entry")
        if fields is None:
            return None
        required = ("devices", "mig-enabled")
        fields = self.check_keys(fields, _KEYS, "an entry", required)
        for key in required:
            if key not in fields:
                self.diagnostics.add(node, f"the entry lacks the key {key!r}")
        indexes = self.devices(fields["devices"][1]) if "devices" in fields else None
        filters = self.filters(fields["device-filter"][1]) if "device-filter" in fields else None
        mig = self.enabled(fields["mig-enabled"][1]) if "mig-enabled" in fields else None
        requests = self.instances(fields.get("mig-devices"), mig, node)
        if mig is None:
            return None
        return ConfigEntry(Selector(indexes=indexes, filters=filters), mig, requests, node.line, node.column)

    def enabled(self, node: Node) -> bool | None:
        if isinstance(node, Scalar):
            if isinstance(node.value, bool):
                return node.value
            if node.plain and node.text in _TRUE | _FALSE:
                return node.text in _TRUE
        self.diagnostics.add(node, f"'mig-enabled' must be true or false, not {describe_node(node)}")
        return None

    def instances(self, field: Field | None, mig: bool | None, entry: Node) -> tuple[InstanceRequest, ...]:
        node = field[1] if field else None
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if mig:
                self.diagnostics.add(
                    node or entry, "MIG is enabled here, so 'mig-devices' is needed ({} for no instances)"
                )
            return ()
        counts = self.mapping(node, "'mig-devices'")
        if counts is None:
            return ()
        if mig is False and counts:
            self.diagnostics.add(node, "'mig-devices' lists instances, but 'mig-enabled' is false")
        found = [self.instance(key, value) for key, value in counts.values()]
        if counts and not any(w is None or w.count for w in found):
            self.diagnostics.add(node, "every count is zero (write {} for MIG mode without instances)")
        requests = [w for w in found if w is not None]
        if not self.compat:
            self.superfluous(requests)
        return tuple(w for w in requests if w.count)

    def superfluous(self, requests: Sequence[InstanceRequest]) -> None:
        for request in repeated_requests(requests):
            self.diagnostics.add(request, f"{request.text!r} names a profile that this entry already has")
        for request in requests:
            if not request.count:
                self.diagnostics.add(request, f"the count of {request.text!r} is zero: leave it out")

    def instance(self, key: Scalar, node: Node) -> InstanceRequest | None:
        name = None
        try:
            name = ProfileName.parse(key.text)
        except ValueError as error:
            self.bad_profile(key, error, key.text)
        count = node.value if isinstance(node, Scalar) else None
        if not isinstance(count, int) or isinstance(count, bool):
            self.diagnostics.add(node, f"the count of {key.text!r} must be a whole number, not {describe_node(node)}")
        elif count < 0:
            self.diagnostics.add(node, f"the count of {key.text!r} is negative")
        elif count > MAX_COUNT:
            self.diagnostics.add(node, f"no GPU holds {count} instances")
        elif name is not None:
            return InstanceRequest(key.text, key.line, key.column, name, None, count)
        return None
