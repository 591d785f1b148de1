"""Where this agent's settings come from: its own command line and environment, and the cluster's ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.config.settings import AgentSettings, Layer
from aliquot.core.config.settings_text import from_environment
from aliquot.errors import AliquotError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings

LIMIT = 253
"""Characters of a Kubernetes object's name."""


class AgentSetup(msgspec.Struct, frozen=True):
    """What was said on the command line and in the environment. The files are the container's; the operands' pods are
    looked for in ``clients_namespace``, "" for the agent's own.
    """

    node: str
    environment: dict[str, str] = {}
    config_file: str = ""
    default_config_file: str = ""
    clients_file: str = ""
    clients_namespace: str = ""

    @property
    def generated_map(self) -> str:
        """The ConfigMap with the configs that are generated for this node."""
        return f"{self.node}-mig-config"[-LIMIT:]

    @property
    def own_map(self) -> str:
        """The ConfigMap with configs that were made for this node alone."""
        return names.own_map(self.node)

    def config_maps(self, settings: AgentSettings, label: str = "") -> tuple[str, ...]:
        """The ConfigMaps to follow while the node has this wish."""
        clients = (settings.clients_map or names.DEFAULT_CLIENTS_MAP) if settings.stop_host_clients else ""
        configs = settings.config_map or ("" if self.config_file else names.DEFAULT_CONFIG_MAP)
        own = self.own_map if label.startswith(names.OWN_PREFIX) else ""
        found = (names.SETTINGS_MAP, names.EFFECTIVE_MAP, configs, clients, own)
        return tuple(dict.fromkeys(name for name in found if name))

    @staticmethod
    def reserved(marks: NodeMarks) -> frozenset[str]:
        """The PCI addresses that the cluster controller declares out of bounds (enabled SRIOVGPUDevices)."""
        text = marks.annotations.get(names.RESERVED_ANNOTATION, "")
        return frozenset(filter(None, (word.strip().lower() for word in text.split(","))))


def layers(
    setup: AgentSetup, config_maps: Mapping[str, dict[str, str] | None], last: LastSettings, labels: Mapping[str, str]
) -> tuple[list[Layer], list[AliquotError], tuple[str, ...]]:
    """Everything that is said about settings, lowest first; what could not be understood; and sentences about texts
    whose last good version, kept in ``last``, still holds: one bad value must not stop every node of the cluster.
    ``labels`` are the node's: where they keep an operand of the operator away, ours is not kept away for its sake.
    """
    found: list[Layer] = []
    errors: list[AliquotError] = []
    warnings: list[str] = []
    try:
        found.append(from_environment(setup.environment))
    except AliquotError as error:
        errors.append(error)
    for name in (names.SETTINGS_MAP, names.EFFECTIVE_MAP):
        if name not in config_maps:
            continue  # not read yet
        text = (config_maps[name] or {}).get(names.SETTINGS_KEY)
        if text is None:
            last.forget(name)
            continue
        layer, read_error = last.read(name, text)
        if read_error is not None and layer is not None:
            warnings.append(": ".join((read_error.brief, *read_error.details[:3])) + "; what it said before holds")
        elif read_error is not None:
            errors.append(read_error)
        if layer is not None:
            found.append(_layer_on_node(layer, labels) if name == names.EFFECTIVE_MAP else layer)
    return found, errors, tuple(warnings)


def _layer_on_node(layer: Layer, labels: Mapping[str, str]) -> Layer:
    """What the operator's policy means on this node: its operands run only where their deploy labels let them."""
    switched_off = {
        field for field, operand in _OPERANDS.items() if labels.get(names.DEPLOY_PREFIX + operand) == "false"
    }
    values = {name: value for name, value in layer.values.items() if not (name in switched_off and value is False)}
    return Layer(layer.source, values)


_OPERANDS = {"device_plugin": "device-plugin", "labels": "gpu-feature-discovery"}
