"""GPU Operator's ClusterPolicy as a layer of settings.

Sources: GPU Operator, api/nvidia/v1 and controllers (choice of the ClusterPolicy, meaning of absent fields).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.config import settings
from aliquot.core.config.settings import Layer
from aliquot.core.config.settings_text import from_environment
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.errors import ConfigError
from aliquot.kubernetes.client.objects import ClusterPolicy

_IGNORED = "ignored"
"""The state of all ClusterPolicies but the first."""


class PolicySettings(msgspec.Struct, frozen=True):
    """Settings of a ClusterPolicy."""

    layer: Layer
    """The settings that it defines."""
    manager: bool = False
    """True if the operator runs its MIG manager and labels the nodes for it."""
    notes: tuple[str, ...] = ()
    """Sentences about settings that Aliquot ignores or leaves to the operator."""


def choose_policy(policies: Iterable[ClusterPolicy]) -> ClusterPolicy | None:
    """Return the ClusterPolicy in effect: the oldest that the operator does not ignore."""
    counting = [p for p in policies if p.status.state != _IGNORED]
    return min(counting, key=lambda p: (p.metadata.creation_timestamp or "", p.name), default=None)


def read_policy(policy: ClusterPolicy) -> PolicySettings:
    """Read the settings of a ClusterPolicy. Absent fields stay undefined, and invalid values become notes."""
    spec, source = policy.spec, f"ClusterPolicy {policy.name}"
    values: dict[str, object] = {}
    notes: list[str] = []
    _environment(policy, source, values, notes)
    _choice(values, notes, f"{source}: spec.mig.strategy", "strategy", spec.mig.strategy or None, settings.STRATEGIES)
    manager = spec.mig_manager
    default = f"{source}: spec.migManager.config.default"
    _choice(values, notes, default, "default_config", manager.config.default, settings.DEFAULT_CONFIGS)
    if manager.config.name:
        values["config_map"] = manager.config.name
    if manager.gpu_clients_config.name:
        values["clients_map"] = manager.gpu_clients_config.name
    if spec.driver.enabled is False:
        values["stop_host_clients"] = True
    if spec.cdi.enabled is not None:
        values["cdi"] = spec.cdi.enabled
    running = bool(policy.status.state)
    _vgpus(policy, source, values, notes)
    for switch, field, what in (
        (spec.device_plugin, "device_plugin", "device plugin"),
        (spec.gfd, "labels", "gpu-feature-discovery"),
    ):
        if _is_running(switch.enabled, running):
            values[field] = False
            notes.append(f"{source}: the operator runs its {what}, so that of Aliquot stays off")
    manages = _is_running(manager.enabled, running)
    if manages:
        notes.append(
            f"{source}: the operator runs its MIG manager, which applies the same label: "
            "turn it off, or set mig.enabled to false in aliquot-settings"
        )
    return PolicySettings(Layer(source, values), manages, tuple(notes))


def _vgpus(policy: ClusterPolicy, source: str, values: dict[str, object], notes: list[str]) -> None:
    """Read the settings of the vGPU device manager, which runs only with sandbox workloads."""
    manager, running = policy.spec.vgpu_device_manager, bool(policy.status.state)
    if manager.config.name:
        values["vgpu_config_map"] = manager.config.name
    if manager.config.default:
        variable = {"DEFAULT_VGPU_CONFIG": manager.config.default}
        try:
            values |= from_environment(variable).values
        except ConfigError as error:
            notes += [f"{source}: spec.vgpuDeviceManager.config.default: {each}" for each in error.details]
    if policy.spec.sandbox_workloads.enabled and _is_running(manager.enabled, running):
        values["vgpu_manage"] = False
        notes.append(f"{source}: the operator runs its vGPU device manager, so Aliquot's vGPU agents change nothing")


def _is_running(enabled: bool | None, running: bool) -> bool:
    """Report whether the operator runs an operand; by default, if the operator itself is running."""
    return running if enabled is None else enabled


def _choice(
    values: dict[str, object], notes: list[str], where: str, field: str, word: str | None, words: tuple[str, ...]
) -> None:
    if word is None:
        return
    if word in words:
        values[field] = word
        return
    known = ", ".join(each or '""' for each in words)
    notes.append(f"{where}: {word[:60]!r} is ignored: use one of {known}{did_you_mean(word, words)}")


def _environment(policy: ClusterPolicy, source: str, values: dict[str, object], notes: list[str]) -> None:
    """Read ``migManager.env``, one variable at a time, so that an invalid one does not affect the others."""
    for variable in policy.spec.mig_manager.env:
        try:
            values |= from_environment({variable.name: variable.value}, f"{source}: spec.migManager.env").values
        except ConfigError as error:
            notes += [f"{source}: spec.migManager.env: {detail}: the variable is ignored" for detail in error.details]
