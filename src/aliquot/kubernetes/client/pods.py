"""Pods and their parts."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, Condition, KubeObject, ResourceType


class EnvVar(ApiStruct, frozen=True):
    """An environment variable of a container."""

    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None
    """Undecoded reference to a field, a Secret or a ConfigMap."""


class ResourceClaimUse(ApiStruct, frozen=True):
    name: str
    request: str = ""


class ContainerResources(ApiStruct, frozen=True):
    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class PodContainer(ApiStruct, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class Toleration(ApiStruct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ConfigMapSource(ApiStruct, frozen=True):
    name: str = ""


class HostPath(ApiStruct, frozen=True):
    path: str = ""


class Volume(ApiStruct, frozen=True):
    """A volume of a pod."""

    name: str
    config_map: ConfigMapSource | None = None
    host_path: HostPath | None = None
    empty_dir: dict[str, Any] | None = None
    """Not None for a volume whose data is deleted with its pod."""


class PodSpec(ApiStruct, frozen=True):
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    init_containers: tuple[PodContainer, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    service_account_name: str = ""
    runtime_class_name: str = ""
    priority_class_name: str = ""
    priority: int = 0
    restart_policy: str = ""
    termination_grace_period_seconds: int = 30
    host_network: bool = False
    host_pid: bool = msgspec.field(name="hostPID", default=False)


class ContainerStatus(ApiStruct, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")


class PodStatus(ApiStruct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "pods", "Pod")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
