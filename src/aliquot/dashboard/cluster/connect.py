"""Opening the source and the door of a cluster."""

from __future__ import annotations

from aliquot.dashboard.cluster.access_review import Reviews
from aliquot.dashboard.cluster.outcome_watch import Patience
from aliquot.dashboard.cluster.source import Cluster
from aliquot.dashboard.cluster.token_review import ClusterDoor
from aliquot.dashboard.cluster.user_client import Pen
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kubeconfig import find
from aliquot.kubernetes.client.session import Session
from aliquot.kubernetes.client.transport import Transport
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE


def open_cluster(
    kubeconfig: str | None,
    *,
    namespace: str | None = None,
    kubevirt_namespace: str = KUBEVIRT_NAMESPACE,
    audiences: tuple[str, ...] = (),
    own: bool = False,
    patience: Patience | None = None,
) -> tuple[Cluster, ClusterDoor]:
    """``namespace`` is the agents' (None: the one that the manifests use). ``own`` is for a page that somebody starts
    for himself: it reads and writes with his kubeconfig, and another door lets him in. Otherwise the page itself only
    reads, and whoever comes in with a token of the cluster writes with that. Nothing is asked yet.

    Raises ConfigError, NoClusterError.
    """
    access = find(kubeconfig)
    api = Api(Session(Transport(access)), namespace or Values().namespace)
    reviews = Reviews(api, audiences)
    title = access.server.removeprefix("https://")
    pen = Pen(api, access, own=own)
    source = Cluster(api, pen, reviews, title=title, kubevirt_namespace=kubevirt_namespace, patience=patience)
    return source, ClusterDoor(reviews)
