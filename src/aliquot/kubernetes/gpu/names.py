"""Names that other programs rely on: labels, annotations and ConfigMaps.

Sources: NVIDIA's mig-manager, GPU Operator, gpu-feature-discovery and device plugin for names under ``nvidia.com/``.
Names under ``aliquot.dev/`` are Aliquot's.
"""

from __future__ import annotations

from typing import Literal, get_args

CONFIG_LABEL = "nvidia.com/mig.config"
STATE_LABEL = "nvidia.com/mig.config.state"
VGPU_CONFIG_LABEL = "nvidia.com/vgpu.config"
"""The named config for the vGPUs of a node for VMs. Its state is in ``nvidia.com/vgpu.config.state``."""
STRATEGY_LABEL = "nvidia.com/mig.strategy"
CAPABLE_LABEL = "nvidia.com/mig.capable"
DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-mig-change"
PAUSED_FOR_VGPU = "paused-for-vgpu-change"

STATUS_ANNOTATION = "aliquot.dev/status"
"""The status as JSON: state, reason, message, times and progress."""
MESSAGE_ANNOTATION = "aliquot.dev/message"
"""Only the message: what was done, or why not."""
PAUSE_ANNOTATION = "aliquot.dev/paused"
"""The paused labels with their previous values, as JSON; written in the same patch as the pause."""
HOLDERS_ANNOTATION = "aliquot.dev/holders"
"""The policy for held instances of this node: refuse, wait, drain or force."""

RESERVED_ANNOTATION = "aliquot.dev/reserved-gpus"
"""PCI addresses of GPUs that must not be changed, separated by commas; only the controller writes it."""
DEPLOY_LABEL = DEPLOY_PREFIX + "mig-manager"
"""The node selector of the agent's DaemonSet."""
VGPU_DEPLOY_LABEL = DEPLOY_PREFIX + "vgpu-device-manager"
"""The node selector of the agent for vGPUs. The GPU Operator sets it on nodes ``vm-vgpu``."""
ALLOCATION_LABEL = "aliquot.dev/allocation"
"""How pods get the GPUs of a node: ``plugin`` (device plugin) or ``dra`` (claims). Administrators set it."""
WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""``container`` if absent; ``vm-vgpu`` and ``vm-passthrough`` nodes are reserved for VMs."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
PRESENT_LABEL = "nvidia.com/gpu.present"
GUEST_LABEL = "nvidia.com/vgpu.host-driver-version"
"""Set by gpu-feature-discovery in VMs with a vGPU, which the guest cannot partition."""

LabelState = Literal["pending", "rebooting", "success", "failed"]
STATES: tuple[LabelState, ...] = get_args(LabelState)
DEFAULT_CONFIG_MAP = "default-mig-parted-config"
DEFAULT_VGPU_CONFIG_MAP = "default-vgpu-devices-config"
DEFAULT_CLIENTS_MAP = "default-gpu-clients"
SETTINGS_MAP = "aliquot-settings"
EFFECTIVE_MAP = "aliquot-effective"
"""Effective settings that the controller writes for the agents, under the key settings.yaml."""
SETTINGS_KEY = "settings.yaml"
OWN_PREFIX = "own-"
"""Prefix of named configs for only one node, which are in its ``NODE-own-config``."""
FIELD_MANAGER = "aliquot-agent"


def own_map(node: str) -> str:
    """Return the name of the ConfigMap with the configs for only this node."""
    return f"{node}-own-config"[-253:]
