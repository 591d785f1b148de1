"""Settings of the agent from its command line, its environment and the cluster's ConfigMaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.core.config.settings import AgentSettings, Layer
from aliquot.core.config.settings_text import from_environment
from aliquot.errors import AliquotError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks
from aliquot.kubernetes.gpu.managed_label import MIG, ManagedLabel
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings

LIMIT = 253
"""Maximum length of a Kubernetes object's name."""


class AgentSetup(msgspec.Struct, frozen=True):
    """Options of the command line and the environment. Files are those of the container."""

    node: str
    environment: dict[str, str] = {}
    config_file: str = ""
    default_config_file: str = ""
    clients_file: str = ""
    clients_namespace: str = ""
    """Namespace of the operands' pods; empty for the agent's own."""
    managed: ManagedLabel = MIG
    """The label that the agent serves."""
    pod: str = ""
    """The agent's pod as ``namespace/name``; empty outside a pod."""

    @property
    def generated_map(self) -> str:
        """Name of the ConfigMap with the configs that are generated for this node."""
        return f"{self.node}-{self.managed.generated_map}"[-LIMIT:]

    @property
    def own_map(self) -> str:
        """Name of the ConfigMap with configs for only this node."""
        return names.own_map(self.node)

    def config_maps(self, settings: AgentSettings, label: str = "") -> tuple[str, ...]:
        """Return the names of the ConfigMaps to watch with these settings and this label."""
        clients = (settings.clients_map or names.DEFAULT_CLIENTS_MAP) if settings.stop_host_clients else ""
        configs = settings.config_map or ("" if self.config_file else self.managed.default_map)
        own = self.own_map if label.startswith(names.OWN_PREFIX) else ""
        found = (names.SETTINGS_MAP, names.EFFECTIVE_MAP, configs, clients, own)
        return tuple(dict.fromkeys(name for name in found if name))

    @staticmethod
    def reserved(marks: NodeMarks) -> frozenset[str]:
        """Return the PCI addresses that the controller reserves for VMs (for example, enabled SRIOVGPUDevices)."""
        text = marks.annotations.get(names.RESERVED_ANNOTATION, "")
        return frozenset(filter(None, (word.strip().lower() for word in text.split(","))))


def layers(
    setup: AgentSetup, config_maps: Mapping[str, dict[str, str] | None], last: LastSettings, labels: Mapping[str, str]
) -> tuple[list[Layer], list[AliquotError], tuple[str, ...]]:
    """Return the layers of settings by rising precedence, the errors, and warnings.

    A warning is about an invalid text whose last valid version, from ``last``, stays in use: one invalid value must not
    stop all nodes of the cluster. ``labels`` are the node's. If they keep an operand of the operator off the node,
    Aliquot's counterpart is not disabled because of it.
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
            warnings.append(
                ": ".join((read_error.brief, *read_error.details[:3])) + "; the last valid settings stay in use"
            )
        elif read_error is not None:
            errors.append(read_error)
        if layer is not None:
            found.append(_layer_on_node(layer, labels, setup.managed) if name == names.EFFECTIVE_MAP else layer)
    return found, errors, tuple(warnings)


def left_to_another(managed: ManagedLabel, known: Sequence[Layer], namespace: str) -> tuple[str, ...]:
    """Return the sentence about a label that the settings leave to another manager; empty if the agent applies it."""
    key, field = managed.switch
    layer = next((each for each in reversed(known) if field in each.values), None)
    if layer is None or layer.values[field]:
        return ()
    what, _, name = layer.source.partition(" ")
    step = f" | next: kubectl -n {namespace} get configmap {name} -o yaml" if what == "ConfigMap" else ""
    return (f"the label {managed.name} is not applied on this node: {key} is false in {layer.source}{step}",)


def _layer_on_node(layer: Layer, labels: Mapping[str, str], managed: ManagedLabel) -> Layer:
    """Return the operator's policy for this node, as its operands run only if their deploy labels allow it.

    What it says about the MIG manager is not about vGPUs.
    """
    switched_off = {
        field for field, operand in _OPERANDS.items() if labels.get(names.DEPLOY_PREFIX + operand) == "false"
    }
    foreign = _OF_MIG_MANAGER if managed.for_vms else frozenset()
    values = {
        name: value
        for name, value in layer.values.items()
        if name not in foreign and not (name in switched_off and value is False)
    }
    return Layer(layer.source, values)


_OPERANDS = {"device_plugin": "device-plugin", "labels": "gpu-feature-discovery"}
_OF_MIG_MANAGER = frozenset({"clients_map", "stop_host_clients", "with_reboot"})
"""Settings that the operator gives to its MIG manager, and never to its vGPU device manager."""
