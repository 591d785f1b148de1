"""The agent's DaemonSet: one privileged pod on every node whose GPUs can be partitioned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.values import AGENT, AGENT_ACCOUNT, Object, Values

FALLBACK_FILE = "/mig-parted-config-default/config.yaml"
CLIENTS_FILE = "/gpu-clients/clients.yaml"
HOST = "/host"


NODE_AND_POD = {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
"""Variables of the agents, and the fields of the pod that they have."""


def daemon_set(values: Values) -> Object:
    container = agent_container(AGENT, "agent", (), environment(values), values)
    pod = gpu_pod(values.plugin_nodes, _volumes(values))
    return workload.daemon_set(values.daemon_set, container, pod, _mounts(), values)


def agent_container(
    name: str, component: str, flags: Sequence[str], variables: Mapping[str, str], values: Values, **fields: str
) -> workload.WorkloadContainer:
    """Return the container of an agent. ``fields`` are more variables that have a field of the pod."""
    return workload.WorkloadContainer(
        name=name,
        component=component,
        args=("agent", *flags, f"--port={values.port}"),
        variables=[
            *workload.pod_field_variables(**NODE_AND_POD, **fields),
            *({"name": variable, "value": value} for variable, value in variables.items()),
        ],
        ports={"http": values.port},
    )


def gpu_pod(nodes: tuple[str, str], volumes: list[Object]) -> Object:
    """Return the fields specific to the agents that partition GPUs: the label agent and the claim agent.

    On each node one of them runs. ``nodes`` are its nodes, by their label ``aliquot.dev/allocation``.
    """
    return {
        "serviceAccountName": AGENT_ACCOUNT,
        "nodeSelector": {names.DEPLOY_LABEL: "true", "kubernetes.io/os": "linux"},
        "affinity": workload.node_affinity(nodes),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": volumes,
    }


def environment(values: Values) -> dict[str, str]:
    """Return the variables of NVIDIA's MIG manager, under their names."""
    return {
        "HOST_ROOT_MOUNT": HOST,
        "DEFAULT_CONFIG_FILE": FALLBACK_FILE,
        "GPU_CLIENTS_FILE": CLIENTS_FILE,
        "DEFAULT_GPU_CLIENTS_NAMESPACE": values.namespace,
        "MIG_STRATEGY": values.strategy,
        "WITH_REBOOT": values.with_reboot,
        "WITH_SHUTDOWN_HOST_GPU_CLIENTS": values.stop_host_clients,
        "CDI_ENABLED": values.cdi,
        "NVIDIA_CDI_HOOK_PATH": values.cdi_hook,
    }


PATHS = (
    ("host", "/", HOST, True, "driver libraries and nvidia-smi in any location; the host's D-Bus socket"),
    ("dev", "/dev", "/dev", False, "/dev/nvidia* and /dev/nvidia-caps/*, which come and go with MIG devices"),
    ("sys", "/sys", "/sys", False, "PCI functions, NUMA nodes, reset"),
    ("cdi", "/var/run/cdi", "/var/run/cdi", False, "the CDI specification, written again after each change"),
    ("device-plugins", "/var/lib/kubelet/device-plugins", "", False, "sockets between kubelet and the device plugin"),
    ("plugins", "/var/lib/kubelet/plugins", "", False, "the DRA driver's socket and its device metadata"),
    (
        "plugins-registry",
        "/var/lib/kubelet/plugins_registry",
        "",
        False,
        "the socket by which kubelet finds the driver",
    ),
    ("pod-resources", "/var/lib/kubelet/pod-resources", "", True, "the kubelet's list of devices by pod"),
    ("state", "/var/lib/aliquot", "", False, "the journal, which outlives the pod"),
    ("run", "/run/aliquot", "", False, "the lock: one writer per node, in a pod or on the host"),
)
"""Host paths. Columns: volume, path on the host, path in the pod (empty if it is the same), read-only, reason."""
_CLAIMS_ONLY = ("plugins", "plugins-registry")
LABEL_AGENT_PATHS = tuple(name for name, *_ in PATHS if name not in _CLAIMS_ONLY)

_MADE = ("cdi", "state", "run")
"""Paths that are created if they are missing. The kubelet creates its own."""


def mounts(chosen: Collection[str]) -> list[Object]:
    """Return the mounts of host paths in the pod, by the names of their volumes."""
    found: list[Object] = []
    for name, host, inside, read_only, _ in PATHS:
        mount: Object = {"name": name, "mountPath": inside or host}
        if read_only:
            mount["readOnly"] = True
        if name == "host":
            mount["mountPropagation"] = "HostToContainer"
        found += [mount] * (name in chosen)
    return found


def volumes(chosen: Collection[str]) -> list[Object]:
    """Return the volumes of host paths, by their names."""
    return [
        {"name": name, "hostPath": {"path": host, "type": "DirectoryOrCreate" if name in _MADE else "Directory"}}
        for name, host, *_ in PATHS
        if name in chosen
    ]


def _mounts() -> list[Object]:
    configs = (("mig-parted-config-default", FALLBACK_FILE), ("gpu-clients", CLIENTS_FILE))
    return mounts(LABEL_AGENT_PATHS) + [
        {"name": name, "mountPath": path.rpartition("/")[0], "readOnly": True} for name, path in configs
    ]


def _volumes(values: Values) -> list[Object]:
    sources = (("mig-parted-config-default", values.fallback_map), ("gpu-clients", values.clients_map))
    return volumes(LABEL_AGENT_PATHS) + [
        {"name": name, "configMap": {"name": source, "optional": True}} for name, source in sources
    ]
