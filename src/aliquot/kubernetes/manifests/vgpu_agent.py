"""The DaemonSet of the agent that serves ``nvidia.com/vgpu.config``, in place of NVIDIA's vGPU device manager."""

from __future__ import annotations

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.agent import HOST, agent_container, mounts, volumes
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, VGPUS, VGPUS_DAEMON_SET, Object, Values

PATHS = ("host", "dev", "sys", "pod-resources", "state", "run")
"""The host paths of ``agent.PATHS`` that it mounts."""


def daemon_set(values: Values) -> Object:
    """Return the DaemonSet, whose pod runs where the GPU Operator would run NVIDIA's manager."""
    variables = {
        "HOST_ROOT_MOUNT": HOST,
        "DEFAULT_GPU_CLIENTS_NAMESPACE": values.namespace,
        "DEFAULT_VGPU_CONFIG": values.vgpu_default_config,
        "WITH_REBOOT": values.with_reboot,
        "WITH_SHUTDOWN_HOST_GPU_CLIENTS": values.stop_host_clients,
    }
    container = agent_container(VGPUS, "vgpus", ("--vgpus",), variables, values)
    pod: Object = {
        "serviceAccountName": AGENT_ACCOUNT,
        "nodeSelector": {names.VGPU_DEPLOY_LABEL: "true", "kubernetes.io/os": "linux"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": volumes(PATHS),
    }
    return workload.daemon_set(VGPUS_DAEMON_SET, container, pod, mounts(PATHS), values)
