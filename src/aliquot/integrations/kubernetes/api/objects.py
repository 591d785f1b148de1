"""Kubernetes objects as narrow frozen structs: only the fields that are read here, the rest is skipped unread.

Decoding what is needed and nothing else is what keeps the agent small: a node of 7.5 KB becomes a few hundred bytes.
Timestamps stay RFC 3339 text, quantities stay Kubernetes' own text (``"2"``, ``"1936Mi"``). Absent and null are both
the field's default. Sources: the Kubernetes API reference (v1.30 to v1.36); ``nvidia.com/v1`` of the GPU Operator;
``devices.harvesterhci.io/v1beta1`` of Harvester's pcidevices.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class ResourceType(msgspec.Struct, frozen=True):
    """Where a kind lives: group, version and plural as in a URL. ``str()`` is kubectl's name: ``plural[.group]``."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL's path. ``namespace`` None is the whole cluster."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of everything below: camelCase on the wire."""


class OwnerReference(Part, frozen=True):
    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Part, frozen=True):
    """``deletion_timestamp`` is None unless the object is being deleted."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class KubeObject(Part, frozen=True):
    """Base of the kinds. ``TYPE`` says where the kind lives."""

    TYPE: ClassVar[ResourceType]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name


class Condition(Part, frozen=True):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Taint(Part, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(Part, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeInfo(Part, frozen=True):
    kernel_version: str = ""
    os_image: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")


class NodeStatus(Part, frozen=True):
    """``capacity`` and ``allocatable`` by resource name."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class EnvVar(Part, frozen=True):
    """``value_from`` is kept as it came (a reference to a field, a Secret or a ConfigMap)."""

    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ResourceClaimUse(Part, frozen=True):
    name: str
    request: str = ""


class ContainerResources(Part, frozen=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class Container(Part, frozen=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ContainerResources = ContainerResources()
    restart_policy: str = ""


class Toleration(Part, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ConfigMapSource(Part, frozen=True):
    name: str = ""


class HostPath(Part, frozen=True):
    path: str = ""


class Volume(Part, frozen=True):
    """``empty_dir`` is not None for a volume whose data ends with its pod."""

    name: str
    config_map: ConfigMapSource | None = None
    host_path: HostPath | None = None
    empty_dir: dict[str, Any] | None = None


class PodSpec(Part, frozen=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
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


class ContainerStatus(Part, frozen=True):
    name: str
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")


class PodStatus(Part, frozen=True):
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


class ConfigMap(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "configmaps", "ConfigMap")

    data: dict[str, str] = {}


class LabelSelector(Part, frozen=True):
    match_labels: dict[str, str] = {}


class PodTemplate(Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Part, frozen=True):
    selector: LabelSelector = LabelSelector()
    template: PodTemplate = PodTemplate()


class DaemonSetStatus(Part, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    number_misscheduled: int = 0


class DaemonSet(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("apps", "v1", "daemonsets", "DaemonSet")

    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class LeaseSpec(Part, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")

    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Part, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Event(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "events", "Event")

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: str | None = None


class MigSpec(Part, frozen=True):
    strategy: str = ""


class MigManagerConfig(Part, frozen=True):
    name: str = ""
    default: str = ""


class MigManagerSpec(Part, frozen=True):
    """``enabled`` None: not said, which the operator reads as yes."""

    enabled: bool | None = None
    config: MigManagerConfig = MigManagerConfig()
    gpu_clients_config: ConfigMapSource = ConfigMapSource()
    env: tuple[EnvVar, ...] = ()


class ClusterPolicySpec(Part, frozen=True):
    mig: MigSpec = MigSpec()
    mig_manager: MigManagerSpec = MigManagerSpec()


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


class SRIOVGPUDeviceSpec(Part, frozen=True):
    """``address`` is the PCI address of the physical function."""

    address: str = ""
    node_name: str = ""
    enabled: bool = False


class SRIOVGPUDevice(KubeObject, frozen=True):
    """Harvester's word about one GPU whose virtual functions it manages."""

    TYPE: ClassVar[ResourceType] = ResourceType(
        "devices.harvesterhci.io", "v1beta1", "sriovgpudevices", "SRIOVGPUDevice", namespaced=False
    )

    spec: SRIOVGPUDeviceSpec = SRIOVGPUDeviceSpec()
