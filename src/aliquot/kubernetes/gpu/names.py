"""Names that others rely on: labels, annotations, resources, pods.

Sources: NVIDIA's mig-manager, GPU Operator, gpu-feature-discovery and device plugin (labels and resources under
``nvidia.com/``); those under ``aliquot.dev/`` are ours.
"""

from __future__ import annotations

from typing import Literal, get_args

CONFIG_LABEL = "nvidia.com/mig.config"
STATE_LABEL = "nvidia.com/mig.config.state"
STRATEGY_LABEL = "nvidia.com/mig.strategy"
CAPABLE_LABEL = "nvidia.com/mig.capable"
DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-mig-change"

STATUS_ANNOTATION = "aliquot.dev/status"
"""The status as JSON: state, reason, sentence, times, progress."""
MESSAGE_ANNOTATION = "aliquot.dev/message"
"""The sentence alone: what was done, or why not."""
PAUSE_ANNOTATION = "aliquot.dev/paused"
"""What was paused, with the former values, as JSON; written in the same patch as the pause itself."""
HOLDERS_ANNOTATION = "aliquot.dev/holders"
"""The policy for held instances of this node: refuse, wait, drain or force."""

RESERVED_ANNOTATION = "aliquot.dev/reserved-gpus"
"""PCI addresses of GPUs that are out of bounds on this node, separated by commas; written by the controller alone."""
DEPLOY_LABEL = DEPLOY_PREFIX + "mig-manager"
"""The node selector of the agent's DaemonSet."""
WORKLOAD_LABEL = "nvidia.com/gpu.workload.config"
"""``container`` where absent; ``vm-vgpu`` and ``vm-passthrough`` nodes belong to virtual machines."""
PRODUCT_LABEL = "nvidia.com/gpu.product"
PRESENT_LABEL = "nvidia.com/gpu.present"
GUEST_LABEL = "nvidia.com/vgpu.host-driver-version"
"""Set by gpu-feature-discovery in virtual machines with a vGPU, which cannot be partitioned from inside."""

LabelState = Literal["pending", "rebooting", "success", "failed"]
STATES: tuple[LabelState, ...] = get_args(LabelState)
DEFAULT_CONFIG_MAP = "default-mig-parted-config"
DEFAULT_CLIENTS_MAP = "default-gpu-clients"
SETTINGS_MAP = "aliquot-settings"
EFFECTIVE_MAP = "aliquot-effective"
"""What the controller found out and the agents follow: key settings.yaml."""
SETTINGS_KEY = "settings.yaml"
OWN_PREFIX = "own-"
"""How the names of configs begin that were made for one node alone; they are in its ``NODE-own-config``."""
FIELD_MANAGER = "aliquot-agent"


def own_map(node: str) -> str:
    """The ConfigMap with the configs that were made for one node alone."""
    return f"{node}-own-config"[-253:]
