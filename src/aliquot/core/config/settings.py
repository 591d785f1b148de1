"""How the cluster's owner wants the agents to behave: a frozen value, merged from layers that each say a part.

Lowest first: the defaults below, the agent's own environment, the ConfigMap ``aliquot-settings``, the GPU Operator's
ClusterPolicy. So a cluster that has the operator keeps its one place for settings, and one without it needs nothing.
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
"""What ClusterPolicy allows for ``migManager.config.default``. Source: GPU Operator, api/nvidia/v1."""


class Override(msgspec.Struct, frozen=True):
    """What one named config wants otherwise. None: as everywhere."""

    holders: Stored[PodPolicy] | None = None
    cordon: bool | None = None
    prediction: Stored[PredictionPolicy] | None = None


class HolderPolicy(msgspec.Struct, frozen=True):
    """What may be done to pods on instances that are in the way, and how long it may take, in seconds.

    ``policy``: ``refuse`` leaves everything as it is; ``wait`` waits until they end; ``drain`` evicts them, budgets
    respected; ``force`` ends them.
    """

    policy: PodPolicy
    timeout_s: int
    cordon: bool


class AgentSettings(msgspec.Struct, frozen=True):
    """All settings. Times are in seconds.

    ``manage``: the label nvidia.com/mig.config is carried out here; False, by hand, where NVIDIA's MIG manager does it.
    ``config_map``: the ConfigMap with the named configs (key config.yaml); empty: CONFIG_FILE, else what is generated
    for the node. ``clients_map``: the ConfigMap with clients.yaml; empty: GPU_CLIENTS_FILE. ``default_config``: the
    named config of a MIG-capable node without label; empty: none. ``prediction``: what to do with a named config whose
    result the strategy cannot offer. ``cdi``, ``env``, ``device_nodes``: how the device plugin hands a device over.
    ``hints``: the controller tells the owners of pods that wait because of a misspelt name.
    """

    strategy: Stored[MigStrategy] = "single"
    manage: bool = True
    config_map: str = ""
    default_config: str = "all-disabled"
    prediction: Stored[PredictionPolicy] = "refuse"
    self_heal: bool = True
    with_reboot: bool = False
    clients_map: str = ""
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
    check_s: int = 30
    operands_s: int = 300
    retry_first_s: int = 5
    retry_longest_s: int = 300
    configs: dict[str, Override] = {}

    def holder_policy(self, config: str, annotation: str | None = None) -> HolderPolicy:
        """What holds for a named config on a node. The node's own annotation comes first, then what is said for the
        named config, then what is said for all.
        """
        override = self.configs.get(config, Override())
        requested = next((each for each in POD_POLICIES if each == annotation), override.holders)
        policy = requested or self.holders
        timeout = self.wait_s if policy == "wait" else self.drain_s
        return HolderPolicy(policy, timeout, self.cordon if override.cordon is None else override.cordon)

    def prediction_for(self, config: str) -> PredictionPolicy:
        """``refuse`` or ``warn``, for a named config."""
        return self.configs.get(config, Override()).prediction or self.prediction


class Layer(msgspec.Struct, frozen=True):
    """What one place says: values by the name of the field of Settings. ``source`` names the place for people.

    A layer that says something about a named config says all of it: overrides are not merged within one name.
    """

    source: str
    values: dict[str, object] = {}


def merge(layers: Sequence[Layer]) -> AgentSettings:
    """The settings of some layers, lowest first; what no layer says has its default."""
    values: dict[str, object] = {}
    configs: dict[str, Override] = {}
    for layer in layers:
        configs |= _configs(layer)
        values |= {name: value for name, value in layer.values.items() if name != "configs"}
    return msgspec.convert(values | {"configs": configs}, AgentSettings)


def _configs(layer: Layer) -> Mapping[str, Override]:
    return msgspec.convert(layer.values.get("configs", {}), dict[str, Override])
