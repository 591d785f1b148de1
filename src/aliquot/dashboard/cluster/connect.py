"""Opening the source and the door of a cluster."""

from __future__ import annotations

from aliquot.dashboard.cluster.access_review import AccessReviews
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.source import ClusterSource
from aliquot.dashboard.cluster.token_review import ClusterAuthenticator
from aliquot.dashboard.cluster.user_client import UserClients
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kubeconfig import find_access
from aliquot.kubernetes.client.session import ApiSession
from aliquot.kubernetes.client.transport import Transport
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE


def open_cluster(
    kubeconfig: str | None,
    *,
    namespace: str | None = None,
    kubevirt_namespace: str = KUBEVIRT_NAMESPACE,
    audiences: tuple[str, ...] = (),
    own_credentials: bool = False,
    timeouts: OutcomeTimeouts | None = None,
) -> tuple[ClusterSource, ClusterAuthenticator]:
    """``namespace`` is the agents' (None: the one that the manifests use). ``own_credentials`` is for a page that
    somebody starts for himself: it reads and writes with his kubeconfig, and another door lets him in. Otherwise the
    page itself only reads, and whoever comes in with a token of the cluster writes with that. Nothing is asked yet.

    Raises ConfigError, NoClusterError.
    """
    access = find_access(kubeconfig)
    api = Api(ApiSession(Transport(access)), namespace or Values().namespace)
    reviews = AccessReviews(api, audiences)
    title = access.server.removeprefix("https://")
    clients = UserClients(api, access, own_credentials=own_credentials)
    source = ClusterSource(api, clients, reviews, title=title, kubevirt_namespace=kubevirt_namespace, timeouts=timeouts)
    return source, ClusterAuthenticator(reviews)
