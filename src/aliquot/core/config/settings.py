"""The settings of the agents: a frozen value, merged from layers that each set a part.

Lowest first: the defaults below, the agent's own environment, the ConfigMap ``aliquot-settings``, the GPU Operator's
ClusterPolicy. A cluster with the operator keeps its one place for settings, and one without it needs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from aliquot.core.model.stored import Stored

MigStrategy = Literal["none", "single", "mixed"]
PodPolicy = Literal["refuse", "wait", "drain", "force"]
PredictionPolicy = Literal["refuse", "warn"]
STRATEGIES: tuple[MigStrategy, ...] = get_args(MigStrategy)
POD_POLICIES: tuple[PodPolicy, ...] = get_args(PodPolicy)
PREDICTIONS: tuple[PredictionPolicy, ...] = get_args(PredictionPolicy)
DEFAULT_CONFIGS = ("all-disabled", "")
"""The values that ClusterPolicy allows for ``migManager.config.default``. Source: GPU Operator, api/nvidia/v1."""


class Override(msgspec.Struct, frozen=True):
    """The settings that differ for one named config. None: as for all."""

    holders: Stored[PodPolicy] | None = None
    cordon: bool | None = None
    prediction: Stored[PredictionPolicy] | None = None


class HolderPolicy(msgspec.Struct, frozen=True):
    """The treatment of pods on instances that block a change."""

    policy: PodPolicy
    """``refuse`` changes nothing; ``wait`` waits until they end; ``drain`` evicts them and respects disruption
    budgets; ``force`` ends them.
    """
    timeout_s: int
    cordon: bool


class AgentSettings(msgspec.Struct, frozen=True):
    """All settings. Times are in seconds. ``KEYS`` has the meaning of each.

    ``cdi``, ``env`` and ``device_nodes`` choose how the device plugin passes a device to a container.
    """

    strategy: Stored[MigStrategy] = "single"
    manage: bool = True
    """Whether the agent applies the label nvidia.com/mig.config. Set it to False if NVIDIA's MIG manager does."""
    config_map: str = ""
    """The ConfigMap with the named configs (key config.yaml). Empty: CONFIG_FILE, else generated for the node."""
    default_config: str = "all-disabled"
    """The named config of a MIG-capable node without label. Empty: none."""
    prediction: Stored[PredictionPolicy] = "refuse"
    """The reaction to a named config whose result the strategy cannot advertise."""
    self_heal: bool = True
    with_reboot: bool = False
    clients_map: str = ""
    """The ConfigMap with clients.yaml. Empty: GPU_CLIENTS_FILE."""
    stop_host_clients: bool = False
    holders: Stored[PodPolicy] = "refuse"
    wait_s: int = 600
    drain_s: int = 600
    cordon: bool = False
    device_plugin: bool = True
    cdi: bool = True
    env: bool = True
    device_nodes: bool = False
    labels: bool = True
    hints: bool = True
    """Whether the controller reports to the owners of pods that wait because of a misspelled name."""
    vgpu_manage: bool = True
    """Whether the agent applies the label nvidia.com/vgpu.config."""
    vgpu_config_map: str = ""
    """The ConfigMap with the named configs of that label (key config.yaml). Empty: CONFIG_FILE, else generated."""
    vgpu_default_config: str = ""
    """The named config of a node for VMs without the label. Empty: none."""
    check_s: int = 30
    operands_s: int = 300
    retry_first_s: int = 5
    retry_longest_s: int = 300
    configs: dict[str, Override] = {}

    def holder_policy(self, config: str, annotation: str | None = None) -> HolderPolicy:
        """Return the policy for a named config on a node. The node's annotation comes first, then the setting of the
        named config, then the setting for all.
        """
        override = self.configs.get(config, Override())
        requested = next((each for each in POD_POLICIES if each == annotation), override.holders)
        policy = requested or self.holders
        timeout = self.wait_s if policy == "wait" else self.drain_s
        return HolderPolicy(policy, timeout, self.cordon if override.cordon is None else override.cordon)

    def prediction_for(self, config: str) -> PredictionPolicy:
        """Return ``refuse`` or ``warn`` for a named config."""
        return self.configs.get(config, Override()).prediction or self.prediction


class Layer(msgspec.Struct, frozen=True):
    """The settings from one place: values by the field name of AgentSettings. ``source`` names the place for people.

    A layer that overrides a named config replaces all its overrides: they are not merged within one name.
    """

    source: str
    values: dict[str, object] = {}


def merge(layers: Sequence[Layer]) -> AgentSettings:
    """Merge layers, lowest first; a setting that no layer sets has its default."""
    values: dict[str, object] = {}
    configs: dict[str, Override] = {}
    for layer in layers:
        configs |= _configs(layer)
        values |= {name: value for name, value in layer.values.items() if name != "configs"}
    return msgspec.convert(values | {"configs": configs}, AgentSettings)


def _configs(layer: Layer) -> Mapping[str, Override]:
    return msgspec.convert(layer.values.get("configs", {}), dict[str, Override])
