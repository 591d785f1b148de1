"""The claim agent's DaemonSet: the DRA driver of the nodes that allocate by claims."""

from __future__ import annotations

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.agent import HOST, NODE_AND_POD, mounts, volumes
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CLAIMS, Object, Values

PATHS = ("host", "dev", "sys", "cdi", "plugins", "plugins-registry", "pod-resources", "state", "run")
"""The host paths of ``agent.PATHS`` that it mounts."""


def daemon_set(values: Values) -> Object:
    """Return the DaemonSet. On each node either this agent or the label agent runs, as the node's label says."""
    plain = {
        "HOST_ROOT_MOUNT": HOST,
        "NVIDIA_CDI_HOOK_PATH": values.cdi_hook,
        "DRA_DRIVER": values.dra_driver,
        "DRA_SCORE": values.dra_score,
        "DRA_MODE_CHANGES": values.dra_mode_changes,
    }
    fields = workload.pod_field_variables(**NODE_AND_POD, POD_UID="metadata.uid")
    container = workload.WorkloadContainer(
        name=CLAIMS,
        component="claims",
        args=("agent", "--claims", f"--port={values.port}"),
        variables=fields + [{"name": name, "value": value} for name, value in plain.items()],
        ports={"http": values.port},
    )
    pod = {
        "serviceAccountName": AGENT_ACCOUNT,
        "nodeSelector": {names.DEPLOY_LABEL: "true", "kubernetes.io/os": "linux"},
        "affinity": workload.node_affinity(values.claim_nodes),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": volumes(PATHS),
    }
    return workload.daemon_set(CLAIMS, container, pod, mounts(PATHS), values)
