"""Settings as text: layers from the file ``settings.yaml`` of a ConfigMap and from environment variables, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from aliquot.core.config import settings
from aliquot.core.config.file import NATIVE
from aliquot.core.config.formats import yaml_writer as write
from aliquot.core.config.settings import Layer, Override
from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.node_reader import YamlReader, describe_node, did_you_mean
from aliquot.core.config.text.yaml_nodes import Node, Scalar
from aliquot.errors import ConfigError


class Key(msgspec.Struct, frozen=True):
    """A setting: its section and name in the file, its field, its meaning and its valid values.

    ``choices`` are valid words; ``lowest`` and ``highest`` bound a number; ``name`` marks the name of a Kubernetes
    object, ``config`` that of a named config.
    """

    section: str
    key: str
    field: str
    meaning: str
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = 0
    name: bool = False
    config: bool = False


_DAY = 86400
KEYS = (
    Key("mig", "enabled", "manage", "apply the label nvidia.com/mig.config"),
    Key("mig", "strategy", "strategy", "how resources and labels are named", settings.STRATEGIES),
    Key("mig", "config-map", "config_map", "ConfigMap with the named configs, key config.yaml", name=True),
    Key("mig", "default-config", "default_config", "named config of a node without label", settings.DEFAULT_CONFIGS),
    Key("mig", "prediction", "prediction", "if the strategy cannot advertise the result", settings.PREDICTIONS),
    Key("mig", "self-heal", "self_heal", "repair drift automatically"),
    Key("mig", "with-reboot", "with_reboot", "reboot the node if a pending MIG mode needs it"),
    Key("host-clients", "stop", "stop_host_clients", "stop the services of clients.yaml around a change"),
    Key("host-clients", "config-map", "clients_map", "ConfigMap with clients.yaml", name=True),
    Key("holders", "policy", "holders", "what to do with pods on instances that block a change", settings.POD_POLICIES),
    Key("holders", "wait-seconds", "wait_s", "how long the policy wait waits", lowest=1, highest=_DAY),
    Key("holders", "drain-seconds", "drain_s", "how long the policies drain and force wait", lowest=1, highest=_DAY),
    Key("holders", "cordon", "cordon", "keep new pods away from the node during a change"),
    Key("device-plugin", "enabled", "device_plugin", "advertise the devices to the kubelet"),
    Key("device-plugin", "cdi", "cdi", "pass devices as CDI names"),
    Key("device-plugin", "env", "env", "pass devices in NVIDIA_VISIBLE_DEVICES"),
    Key("device-plugin", "device-nodes", "device_nodes", "pass devices as device nodes"),
    Key("labels", "enabled", "labels", "write gpu-feature-discovery's labels"),
    Key("hints", "enabled", "hints", "add an event to pods that wait because of a misspelled name"),
    Key("vgpu", "enabled", "vgpu_manage", "apply the label nvidia.com/vgpu.config"),
    Key("vgpu", "config-map", "vgpu_config_map", "ConfigMap with its named configs, key config.yaml", name=True),
    Key("vgpu", "default-config", "vgpu_default_config", "named config of a vGPU node without label", config=True),
    Key("times", "check-seconds", "check_s", "time between two drift checks", lowest=5, highest=_DAY),
    Key(
        "times", "operands-seconds", "operands_s", "how long to wait until paused operands end", lowest=1, highest=_DAY
    ),
    Key("times", "retry-first-seconds", "retry_first_s", "time before the first retry", lowest=1, highest=3600),
    Key("times", "retry-longest-seconds", "retry_longest_s", "longest time between retries", lowest=1, highest=_DAY),
)
"""All settings. ``configs`` beside the sections holds overrides by named config."""

ENVIRONMENT = {
    "MIG_STRATEGY": "strategy",
    "WITH_REBOOT": "with_reboot",
    "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "stop_host_clients",
    "CDI_ENABLED": "cdi",
    "DEFAULT_VGPU_CONFIG": "vgpu_default_config",
}
"""Variables of NVIDIA's MIG manager, device plugin and vGPU device manager that are settings here."""

_BY_FIELD = {key.field: key for key in KEYS}
_SECTIONS = tuple(dict.fromkeys(key.section for key in KEYS))
_OVERRIDES = {"holders": settings.POD_POLICIES, "cordon": (), "prediction": settings.PREDICTIONS}
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_TRUE, _FALSE = {"1", "t", "true"}, {"0", "f", "false"}
"""The booleans of Go's flag packages, which read the same variables in NVIDIA's tools. Here in any case."""


def read(text: str, source: str) -> Layer:
    """Read a settings file. Raises ConfigError with all errors, each ``source:line:column: ...``."""
    document = yaml.read(text, source)
    root = document.root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        return Layer(source)
    reader = _Settings(source)
    reader.duplicates(document)
    values = reader.top(root)
    reader.diagnostics.check()
    return Layer(source, values)


def from_environment(variables: Mapping[str, str], source: str = "the environment") -> Layer:
    """Return the settings among environment variables; empty ones are ignored. Raises ConfigError with all errors."""
    values: dict[str, object] = {}
    errors: list[str] = []
    for variable, field in ENVIRONMENT.items():
        text = variables.get(variable, "").strip()
        key = _BY_FIELD[field]
        if not text:
            continue
        if (key.choices and text in key.choices) or (key.config and _LABEL_VALUE.fullmatch(text)):
            values[field] = text
        elif not (key.choices or key.config) and text.lower() in _TRUE | _FALSE:
            values[field] = text.lower() in _TRUE
        else:
            wanted = "the value of a label" if key.config else ", ".join(key.choices) or "true or false"
            errors.append(f"{variable} must be {wanted}, not {text[:60]!r}{did_you_mean(text, key.choices)}")
    if errors:
        raise ConfigError(f"{source} has {len(errors)} error{'s' * (len(errors) > 1)}", details=tuple(errors))
    return Layer(source, values)


def to_text(layer: Layer) -> str:
    """Return the settings file of a layer: the same text for the same layer."""
    document: dict[str, object] = {"version": NATIVE}
    for section in _SECTIONS:
        values = {k.key: layer.values[k.field] for k in KEYS if k.section == section and k.field in layer.values}
        document |= {section: values} if values else {}
    configs = msgspec.convert(layer.values.get("configs", {}), dict[str, Override])
    named = {
        name: {key: value for key, value in msgspec.structs.asdict(configs[name]).items() if value is not None}
        for name in sorted(configs)
    }
    return write.to_yaml(document | ({"configs": named} if named else {}))


class _Settings(YamlReader):
    def top(self, root: Node) -> dict[str, object]:
        fields = self.mapping(root, "the file") or {}
        self.check_keys(fields, ("version", *_SECTIONS, "configs"), "the file")
        version = fields["version"][1] if "version" in fields else None
        if fields and (not isinstance(version, Scalar) or version.value != NATIVE):
            self.diagnostics.add(version or root, f"the version must be {NATIVE}")
        values: dict[str, object] = {}
        for section in _SECTIONS:
            if section in fields:
                values |= self.section(section, fields[section][1])
        if "configs" in fields:
            values["configs"] = self.overrides(fields["configs"][1])
        self.order(root, values)
        return values

    def section(self, section: str, node: Node) -> dict[str, object]:
        keys = {key.key: key for key in KEYS if key.section == section}
        fields = self.mapping(node, f"{section!r}") or {}
        self.check_keys(fields, keys, f"{section!r}")
        found = {keys[name].field: self.value(keys[name], node) for name, (_, node) in fields.items() if name in keys}
        return {field: value for field, value in found.items() if value is not None}

    def value(self, key: Key, node: Node) -> object:
        what = f"'{key.section}.{key.key}'"
        if key.choices:
            return self.word(node, what, key.choices)
        if key.highest:
            return self.number(node, what, key)
        if key.config:
            return self.config_name(node, what)
        return self.object_name(node, what) if key.name else self.switch(node, what)

    def word(self, node: Node, what: str, words: tuple[str, ...]) -> str | None:
        text = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None
        if text in words:
            return text
        known = ", ".join(word or '""' for word in words)
        hint = did_you_mean(text, words) if text else ""
        self.diagnostics.add(node, f"{what} must be one of {known}, not {describe_node(node)}{hint}")
        return None

    def switch(self, node: Node, what: str) -> bool | None:
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.diagnostics.add(node, f"{what} must be true or false, not {describe_node(node)}")
        return None

    def number(self, node: Node, what: str, key: Key) -> int | None:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, int) and not isinstance(value, bool) and key.lowest <= value <= key.highest:
            return value
        self.diagnostics.add(
            node, f"{what} must be a whole number from {key.lowest} to {key.highest}, not {describe_node(node)}"
        )
        return None

    def object_name(self, node: Node, what: str) -> str | None:
        text = self.text(node, what)
        if text and not _NAME.fullmatch(text):
            self.diagnostics.add(node, f"{what} must be the name of a ConfigMap, not {text[:80]!r}")
        return text

    def config_name(self, node: Node, what: str) -> str | None:
        text = self.text(node, what)
        if text and not _LABEL_VALUE.fullmatch(text):
            self.diagnostics.add(node, f"{what} must be the value of a label, not {text[:80]!r}")
        return text

    def overrides(self, node: Node) -> dict[str, Override]:
        named = self.mapping(node, "'configs'") or {}
        return {name: self.override(name, value) for name, (_, value) in named.items()}

    def override(self, name: str, node: Node) -> Override:
        what = f"'configs.{name}'"
        fields = self.mapping(node, what) or {}
        self.check_keys(fields, _OVERRIDES, what)
        values: dict[str, object] = {}
        for key, choices in _OVERRIDES.items():
            if key in fields:
                at, place = fields[key][1], f"'configs.{name}.{key}'"
                values[key] = self.word(at, place, choices) if choices else self.switch(at, place)
        return msgspec.convert(values, Override)

    def order(self, root: Node, values: dict[str, object]) -> None:
        """Report two times that contradict each other within one file."""
        first, longest = values.get("retry_first_s"), values.get("retry_longest_s")
        if isinstance(first, int) and isinstance(longest, int) and first > longest:
            self.diagnostics.add(
                root, f"'times.retry-first-seconds' ({first}) is more than the longest wait ({longest})"
            )
