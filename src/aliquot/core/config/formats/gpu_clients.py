"""The GPU clients of a host: the systemd services to stop around a change, in mig-manager's ``clients.yaml``."""

from __future__ import annotations

import re

from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.node_reader import YamlReader, describe_node
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar
from aliquot.errors import ConfigError

DEFAULT = (
    "nvsm.service",
    "nvsm-mqtt.service",
    "nvsm-core.service",
    "nvsm-api-gateway.service",
    "nvsm-notifier.service",
    "nv_peer_mem.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
)
"""GPU clients that DGX software installs on the host, in the order in which they stop. Source: the GPU Operator's
ConfigMap ``default-gpu-clients``.
"""

_STOPPABLE = ("service", "socket", "timer", "path")
"""Unit types that may be listed: a service, and the types that would start it again."""
_OTHER_TYPES = ("target", "mount", "automount", "swap", "slice", "scope", "device")
_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+")
_LONGEST = 255
"""Characters of a unit name, suffix included (systemd.unit(5))."""


def load_clients(text: str | None, source: str) -> tuple[str, ...]:
    """Return the units to stop, in order, each once and with its suffix; the default list if ``text`` is None.

    Raises ConfigError with all errors.
    """
    if text is None:
        return DEFAULT
    document = yaml.read(text, source)
    if not isinstance(document.root, Map):
        raise ConfigError(
            f"{source} is not a list of GPU clients: it has no mapping with 'version' and 'systemd-services'"
        )
    reader = _Clients(source)
    reader.duplicates(document)
    found = reader.top(document.root)
    reader.diagnostics.check()
    return tuple(dict.fromkeys(found))


def unit_name(text: str) -> str:
    """Return the name with its suffix: ``dcgm.service`` for ``dcgm``. Raises ValueError for units that Aliquot does
    not stop.
    """
    suffix = text.rpartition(".")[2] if "." in text else ""
    if suffix in _OTHER_TYPES:
        raise ValueError(f"{text!r} is a {suffix}: only these unit types can be stopped: {', '.join(_STOPPABLE)}")
    name = text if suffix in _STOPPABLE else f"{text}.service"
    stem = name.rpartition(".")[0]
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or not stem or stem.startswith("@"):
        raise ValueError(f"{text[:60]!r} is not the name of a systemd unit")
    if stem.endswith("@"):
        raise ValueError(f"{text!r} is a template: name the instance, {stem}NAME.{name.rpartition('.')[2]}")
    return name


class _Clients(YamlReader):
    def top(self, root: Map) -> list[str]:
        fields = self.mapping(root, "the file") or {}
        self.check_keys(fields, ("version", "systemd-services"), "the file")
        version = fields["version"][1] if "version" in fields else None
        if not isinstance(version, Scalar) or version.value != "v1":
            self.diagnostics.add(version or root, "the version must be v1")
        if "systemd-services" not in fields:
            self.diagnostics.add(root, "the key 'systemd-services' is missing")
            return []
        return self.services(fields["systemd-services"][1])

    def services(self, node: Node) -> list[str]:
        if isinstance(node, Scalar) and node.value is None:
            return []
        if not isinstance(node, List):
            self.diagnostics.add(node, f"'systemd-services' must be a list of names, not {describe_node(node)}")
            return []
        found = []
        for item in node.items:
            text = self.text(item, "a service")
            if text is None:
                continue
            try:
                found.append(unit_name(text))
            except ValueError as error:
                self.diagnostics.add(item, str(error))
        return found
