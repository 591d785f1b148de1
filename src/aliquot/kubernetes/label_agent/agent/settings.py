"""Where this agent's settings come from: its own command line and environment, and the cluster's ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.config.settings import Layer, Settings
from aliquot.core.config.settings_text import from_environment
from aliquot.errors import AliquotError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import Marks
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings

LIMIT = 253
"""Characters of a Kubernetes object's name."""


class Place(msgspec.Struct, frozen=True):
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

    def maps(self, settings: Settings, label: str = "") -> tuple[str, ...]:
        """The ConfigMaps to follow while the node has this wish."""
        clients = (settings.clients_map or names.DEFAULT_CLIENTS_MAP) if settings.stop_host_clients else ""
        configs = settings.config_map or ("" if self.config_file else names.DEFAULT_CONFIG_MAP)
        own = self.own_map if label.startswith(names.OWN_PREFIX) else ""
        found = (names.SETTINGS_MAP, names.EFFECTIVE_MAP, configs, clients, own)
        return tuple(dict.fromkeys(name for name in found if name))

    @staticmethod
    def reserved(marks: Marks) -> frozenset[str]:
        """The PCI addresses that the cluster controller declares out of bounds (enabled SRIOVGPUDevices)."""
        text = marks.annotations.get(names.RESERVED_ANNOTATION, "")
        return frozenset(filter(None, (word.strip().lower() for word in text.split(","))))


def layers(
    place: Place, maps: Mapping[str, dict[str, str] | None], last: LastSettings, labels: Mapping[str, str]
) -> tuple[list[Layer], list[AliquotError], tuple[str, ...]]:
    """Everything that is said about settings, lowest first; what could not be understood; and sentences about texts
    whose last good version, kept in ``last``, still holds: one bad value must not stop every node of the cluster.
    ``labels`` are the node's: where they keep an operand of the operator away, ours is not kept away for its sake.
    """
    said: list[Layer] = []
    faults: list[AliquotError] = []
    unclear: list[str] = []
    try:
        said.append(from_environment(place.environment))
    except AliquotError as error:
        faults.append(error)
    for name in (names.SETTINGS_MAP, names.EFFECTIVE_MAP):
        if name not in maps:
            continue  # not read yet
        text = (maps[name] or {}).get(names.SETTINGS_KEY)
        if text is None:
            last.forget(name)
            continue
        layer, fault = last.read(name, text)
        if fault is not None and layer is not None:
            unclear.append(": ".join((fault.brief, *fault.details[:3])) + "; what it said before holds")
        elif fault is not None:
            faults.append(fault)
        if layer is not None:
            said.append(_here(layer, labels) if name == names.EFFECTIVE_MAP else layer)
    return said, faults, tuple(unclear)


def _here(layer: Layer, labels: Mapping[str, str]) -> Layer:
    """What the operator's policy means on this node: its operands run only where their deploy labels let them."""
    away = {field for field, operand in _OPERANDS.items() if labels.get(names.DEPLOY_PREFIX + operand) == "false"}
    kept = {name: value for name, value in layer.values.items() if not (name in away and value is False)}
    return Layer(layer.source, kept)


_OPERANDS = {"device_plugin": "device-plugin", "labels": "gpu-feature-discovery"}
