"""The labels by which a node requests a named config, and what differs between the managers that serve them.

Names are those of NVIDIA's mig-manager and vgpu-device-manager.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.core.config.export import Document
from aliquot.core.config.generate import generate
from aliquot.core.config.generate_vgpu import generate_vgpu_configs
from aliquot.core.config.settings import AgentSettings
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import OPERANDS, VM_OPERANDS, Operand


class ManagedLabel(msgspec.Struct, frozen=True):
    """A config label, and how the node around it is managed."""

    name: str
    """The label that requests a named config."""
    generate: Callable[[Inventory], Document]
    """Generates the named configs for a node's GPUs. Raises BlockedError if there is nothing to generate."""
    generated_map: str
    """Suffix of the ConfigMap with the generated configs, after the node's name."""
    default_map: str
    """The ConfigMap with named configs for all nodes."""
    component: str
    """NVIDIA's manager in whose place the agent serves the label."""
    operands: tuple[Operand, ...]
    """The operands to pause for a change."""
    applying: str
    """Log line of that manager before a change."""
    applied: str
    """Its log line after a change."""
    validators_before: tuple[str, ...] = ()
    """``app`` labels of pods that hold a GPU while they check it; deleted before a change."""
    validators_after: tuple[str, ...] = ()
    """``app`` labels of pods that are deleted after a change, so that their DaemonSet runs their checks again."""
    driver_pods: str = ""
    """``app`` label of the pods with the driver; empty if it may also be on the host."""
    for_vms: bool = False
    """True if the devices are for VMs: the agent offers nothing to kubelet and writes no labels about the GPUs."""

    @property
    def state(self) -> str:
        """The label with the state of the request."""
        return f"{self.name}.state"

    @property
    def switch(self) -> tuple[str, str]:
        """The setting that leaves the label to another manager: its key, and its field of AgentSettings."""
        return ("vgpu.enabled", "vgpu_manage") if self.for_vms else ("mig.enabled", "manage")

    def settings(self, merged: AgentSettings) -> AgentSettings:
        """Return the settings as they apply to this label."""
        if not self.for_vms:
            return merged
        return msgspec.structs.replace(
            merged,
            manage=merged.vgpu_manage,
            config_map=merged.vgpu_config_map,
            device_plugin=False,
            cdi=False,
            labels=False,
        )

    def requested(self, labels: dict[str, str], settings: AgentSettings) -> str | None:
        """Return the name of the config that a node with these labels requests; None without a request.

        As under vgpu-device-manager, a node for VMs without the label requests the default config.
        """
        requested = labels.get(self.name)
        return requested or settings.vgpu_default_config or requested if self.for_vms else requested


MIG = ManagedLabel(
    names.CONFIG_LABEL,
    generate,
    "mig-config",
    names.DEFAULT_CONFIG_MAP,
    "nvidia-mig-manager",
    OPERANDS,
    applying="Applying the selected MIG config to the node",
    applied="MIG configuration applied successfully",
    validators_before=("nvidia-cuda-validator", "nvidia-device-plugin-validator"),
    validators_after=("nvidia-operator-validator",),
)
VGPU = ManagedLabel(
    names.VGPU_CONFIG_LABEL,
    generate_vgpu_configs,
    "vgpu-config",
    names.DEFAULT_VGPU_CONFIG_MAP,
    "nvidia-vgpu-device-manager",
    VM_OPERANDS,
    applying="Applying the selected vGPU device configuration to the node",
    applied="Selected vGPU device configuration successfully applied",
    driver_pods="nvidia-vgpu-manager-daemonset",
    for_vms=True,
)
