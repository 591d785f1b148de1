"""What the command line says to the devices agent."""

from __future__ import annotations

import msgspec

from aliquot.core.model.claims import HolderSource

NAMESPACE = "harvester-system"
"""Where Harvester, and the driver toolkit, keep their pods."""
CHECK_S = 30.0
"""Virtual functions that somebody switches on, or a vGPU made by hand, is seen no later than this."""


class DevicesAgentOptions(msgspec.Struct, frozen=True):
    """``node_name`` is this node's name in the cluster, ``node`` the simulated machine (None: this one). ``driver``
    says where the GPU driver's programs are: in its pod (``pod``), on this machine (``local``), or ``auto``: in the pod
    where the node has one. ``holders`` know what must not be destroyed, beside containers. ``kubelet_dir`` is empty
    where there is no kubelet; ``port`` 0 takes a free one, -1 none. ``check_s`` is the longest time between two looks,
    in seconds; ``pod`` the agent's own, "" outside a pod.
    """

    node_name: str
    holders: tuple[HolderSource, ...]
    node: str | None = None
    kubeconfig: str | None = None
    driver: str = "auto"
    driver_namespace: str = NAMESPACE
    kubelet_dir: str = "/var/lib/kubelet"
    host_root: str = ""
    driver_root: str = ""
    port: int = 8080
    check_s: float = CHECK_S
    debug: bool = False
    pod: str = ""
    namespace: str | None = None
