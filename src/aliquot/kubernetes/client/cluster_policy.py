"""The kind that NVIDIA's GPU Operator (``nvidia.com/v1``) brings along."""

from __future__ import annotations

from typing import ClassVar

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.client.pods import ConfigMapSource, EnvVar


class MigSpec(ApiStruct, frozen=True):
    strategy: str = ""


class OperatorMigConfig(ApiStruct, frozen=True):
    """The named configs of the MIG manager or the vGPU device manager. ``default`` None: not said. Empty: nodes
    without the label get none.
    """

    name: str = ""
    default: str | None = None


class OperatorMigSpec(ApiStruct, frozen=True):
    """``enabled`` None: not said, which the operator reads as yes."""

    enabled: bool | None = None
    config: OperatorMigConfig = OperatorMigConfig()
    gpu_clients_config: ConfigMapSource = ConfigMapSource()
    env: tuple[EnvVar, ...] = ()


class OperatorVgpuSpec(ApiStruct, frozen=True):
    """``enabled`` None: not said."""

    enabled: bool | None = None
    config: OperatorMigConfig = OperatorMigConfig()


class OperandSwitch(ApiStruct, frozen=True):
    """``enabled`` None: not said."""

    enabled: bool | None = None


class ClusterPolicySpec(ApiStruct, frozen=True):
    mig: MigSpec = MigSpec()
    mig_manager: OperatorMigSpec = OperatorMigSpec()
    device_plugin: OperandSwitch = OperandSwitch()
    gfd: OperandSwitch = OperandSwitch()
    driver: OperandSwitch = OperandSwitch()
    cdi: OperandSwitch = OperandSwitch()
    sandbox_workloads: OperandSwitch = OperandSwitch()
    vgpu_device_manager: OperatorVgpuSpec = OperatorVgpuSpec()


class ClusterPolicyStatus(ApiStruct, frozen=True):
    state: str = ""
    namespace: str = ""


class ClusterPolicy(KubeObject, frozen=True):
    """The GPU Operator's settings; one per cluster."""

    TYPE: ClassVar[ResourceType] = ResourceType(
        "nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False
    )

    spec: ClusterPolicySpec = ClusterPolicySpec()
    status: ClusterPolicyStatus = ClusterPolicyStatus()
