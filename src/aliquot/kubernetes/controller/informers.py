"""Informers of the controller: nodes, the objects of their GPUs, and settings."""

from __future__ import annotations

from aliquot.kubernetes.client.informer import Changed, Informer, InformerGroup
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap, Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice


class ClusterInformers(InformerGroup):
    """Informers of the controller.

    ``settings`` is the ConfigMap that users write, ``effective`` the one that the controller writes. ``changed`` is
    called with the keys of created, changed and deleted objects, ``nodes_changed`` with those of nodes.
    """

    def __init__(self, nodes_changed: Changed, changed: Changed, timing: WatchTiming) -> None:
        self.nodes = Informer(Node, nodes_changed, timing=timing)
        self.policies = Informer(ClusterPolicy, changed, timing=timing)
        self.devices = Informer(SRIOVGPUDevice, changed, timing=timing)
        self.settings = Informer(ConfigMap, changed, name=names.SETTINGS_MAP, timing=timing)
        self.effective = Informer(ConfigMap, changed, name=names.EFFECTIVE_MAP, timing=timing)
        super().__init__(self.nodes, self.policies, self.devices, self.settings, self.effective)
