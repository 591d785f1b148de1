"""mig-parted's configuration file, version v1.

Strict reading refuses, besides what mig-parted itself refuses, everything that it accepts in silence and that cannot
be meant. ``compat`` reading accepts exactly what mig-parted does. Source: the tool's observable behaviour.
"""

from __future__ import annotations

from aliquot.core.config.file import MIG_PARTED, ConfigFile, Entry
from aliquot.core.config.formats.device_entries import DeviceReading
from aliquot.core.config.select.selector import Selector
from aliquot.core.config.text.instance_request import MAX_COUNT, Wish
from aliquot.core.config.text.node_reader import Field, article, repeated_wishes
from aliquot.core.config.text.yaml_nodes import Document, Node, Scalar
from aliquot.core.model.profile import ProfileName

_TRUE = {"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
_FALSE = {"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
"""Booleans of YAML 1.1, which these files are written in. They count only where a boolean is due."""

_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices")


def read(document: Document, source: str, *, compat: bool, profiles: tuple[str, ...] = ()) -> ConfigFile:
    """Raises ConfigError with every fault."""
    reading = _MigParted(source, compat)
    reading.profile_hints = profiles
    if not compat:
        reading.duplicates(document)
    configs = reading.top(document)
    reading.faults.check()
    return ConfigFile(source, MIG_PARTED, configs, compat)


class _MigParted(DeviceReading):
    def top(self, document: Document) -> dict[str, tuple[Entry, ...]]:
        return {name: self.config(name, node) for name, node in self.named(document.root, "mig-configs").items()}

    def config(self, name: str, node: Node) -> tuple[Entry, ...]:
        found = [self.entry(item) for item in self.entries(node, f"the named config {name!r}")]
        entries = tuple(e for e in found if e is not None)
        if not self.compat and len(entries) == len(found):
            self.overlaps(entries)
        return entries

    def entry(self, node: Node) -> Entry | None:
        fields = self.mapping(node, "an entry")
        if fields is None:
            return None
        required = ("devices", "mig-enabled")
        fields = self.known(fields, _KEYS, "an entry", required)
        for key in required:
            if key not in fields:
                self.faults.add(node, f"the entry lacks the key {key!r}")
        indexes = self.devices(fields["devices"][1]) if "devices" in fields else None
        filters = self.filters(fields["device-filter"][1]) if "device-filter" in fields else None
        mig = self.enabled(fields["mig-enabled"][1]) if "mig-enabled" in fields else None
        wishes = self.wishes(fields.get("mig-devices"), mig, node)
        if mig is None:
            return None
        return Entry(Selector(indexes=indexes, filters=filters), mig, wishes, node.line, node.column)

    def enabled(self, node: Node) -> bool | None:
        if isinstance(node, Scalar):
            if isinstance(node.value, bool):
                return node.value
            if node.plain and node.text in _TRUE | _FALSE:
                return node.text in _TRUE
        self.faults.add(node, f"'mig-enabled' must be true or false, not {article(node)}")
        return None

    def wishes(self, field: Field | None, mig: bool | None, entry: Node) -> tuple[Wish, ...]:
        node = field[1] if field else None
        if node is None or (isinstance(node, Scalar) and node.value is None):
            if mig:
                self.faults.add(node or entry, "MIG is enabled here, so 'mig-devices' is needed ({} for no instances)")
            return ()
        counts = self.mapping(node, "'mig-devices'")
        if counts is None:
            return ()
        if mig is False and counts:
            self.faults.add(node, "'mig-devices' lists instances, but 'mig-enabled' is false")
        found = [self.wish(key, value) for key, value in counts.values()]
        if counts and not any(w is None or w.count for w in found):
            self.faults.add(node, "every count is zero (write {} for MIG mode without instances)")
        wishes = [w for w in found if w is not None]
        if not self.compat:
            for wish in repeated_wishes(wishes):
                self.faults.add(wish, f"{wish.text!r} names a profile that this entry has already")
            for wish in wishes:
                if not wish.count:
                    self.faults.add(wish, f"the count of {wish.text!r} is zero: leave it out")
        return tuple(w for w in wishes if w.count)

    def wish(self, key: Scalar, node: Node) -> Wish | None:
        name = None
        try:
            name = ProfileName.parse(key.text)
        except ValueError as error:
            self.bad_profile(key, error, key.text)
        count = node.value if isinstance(node, Scalar) else None
        if not isinstance(count, int) or isinstance(count, bool):
            self.faults.add(node, f"the count of {key.text!r} must be a whole number, not {article(node)}")
        elif count < 0:
            self.faults.add(node, f"the count of {key.text!r} is negative")
        elif count > MAX_COUNT:
            self.faults.add(node, f"no GPU holds {count} instances")
        elif name is not None:
            return Wish(key.text, key.line, key.column, name, None, count)
        return None
