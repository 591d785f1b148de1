"""What differs from one installation to the next. Everything else in the manifests is the same everywhere."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot import __version__

Object = dict[str, Any]

AGENT = "nvidia-mig-manager"
"""The DaemonSet's, container's and ``app`` label's name: what scripts and people select by today."""
AGENT_ACCOUNT = "aliquot-agent"
CONTROLLER = "aliquot-controller"


class Values(msgspec.Struct, frozen=True):
    """``namespace`` is the GPU Operator's own, so that its operands, ConfigMaps and our pods are neighbours. ``port``
    serves health and metrics. ``config_map`` empty: named configs are generated for each node.
    """

    namespace: str = "gpu-operator"
    image: str = f"localhost/aliquot:{__version__}"
    port: int = 8080
    strategy: str = "single"
    with_reboot: str = "false"
    stop_host_clients: str = "false"
    cdi: str = "true"
    clients_map: str = "default-gpu-clients"
    cdi_hook: str = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"

    def account(self, name: str) -> str:
        """The user name of a ServiceAccount."""
        return f"system:serviceaccount:{self.namespace}:{name}"


def labels(component: str, app: str = "") -> dict[str, str]:
    """The labels of an object; with ``app`` those of a pod, too."""
    common = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": component}
    return ({"app": app} if app else {}) | common


def metadata(name: str, component: str, namespace: str = "") -> Object:
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(component)}
