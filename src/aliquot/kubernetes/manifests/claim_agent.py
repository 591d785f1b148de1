"""The claim agent's DaemonSet: the DRA driver of the nodes that allocate by claims."""

from __future__ import annotations

from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.agent import HOST, agent_container, gpu_pod, mounts, volumes
from aliquot.kubernetes.manifests.values import CLAIMS, Object, Values

PATHS = ("host", "dev", "sys", "cdi", "plugins", "plugins-registry", "pod-resources", "state", "run")
"""The host paths of ``agent.PATHS`` that it mounts."""


def daemon_set(values: Values) -> Object:
    """Return the DaemonSet. On each node either this agent or the label agent runs, as the node's label says."""
    variables = {
        "HOST_ROOT_MOUNT": HOST,
        "NVIDIA_CDI_HOOK_PATH": values.cdi_hook,
        "DRA_DRIVER": values.dra_driver,
        "DRA_SCORE": values.dra_score,
        "DRA_MODE_CHANGES": values.dra_mode_changes,
        "DRA_VM": values.dra_vms,
    }
    container = agent_container(CLAIMS, "claims", ("--claims",), variables, values, POD_UID="metadata.uid")
    return workload.daemon_set(CLAIMS, container, gpu_pod(values.claim_nodes, volumes(PATHS)), mounts(PATHS), values)
