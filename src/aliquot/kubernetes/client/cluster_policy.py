"""The kind that NVIDIA's GPU Operator (``nvidia.com/v1``) brings along."""

from __future__ import annotations

from typing import ClassVar

from aliquot.kubernetes.client.object_base import KubeObject, Part, ResourceType
from aliquot.kubernetes.client.pods import ConfigMapSource, EnvVar


class MigSpec(Part, frozen=True):
    strategy: str = ""


class OperatorMigConfig(Part, frozen=True):
    """``default`` None: not said. Empty: nodes without the label get none."""

    name: str = ""
    default: str | None = None


class OperatorMigSpec(Part, frozen=True):
    """``enabled`` None: not said, which the operator reads as yes."""

    enabled: bool | None = None
    config: OperatorMigConfig = OperatorMigConfig()
    gpu_clients_config: ConfigMapSource = ConfigMapSource()
    env: tuple[EnvVar, ...] = ()


class Switch(Part, frozen=True):
    """``enabled`` None: not said."""

    enabled: bool | None = None


class ClusterPolicySpec(Part, frozen=True):
    mig: MigSpec = MigSpec()
    mig_manager: OperatorMigSpec = OperatorMigSpec()
    device_plugin: Switch = Switch()
    gfd: Switch = Switch()
    driver: Switch = Switch()
    cdi: Switch = Switch()


class ClusterPolicyStatus(Part, frozen=True):
    state: str = ""
    namespace: str = ""


class ClusterPolicy(KubeObject, frozen=True):
    """The GPU Operator's settings; one per cluster."""

    TYPE: ClassVar[ResourceType] = ResourceType(
        "nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False
    )

    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus = ClusterPolicyStatus()
