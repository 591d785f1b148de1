"""Opening the source and the door of a cluster: the cluster's own tokens, and its own rights."""

from __future__ import annotations

from aliquot.dashboard.cluster.access_review import AccessReviews, AccessRight, ClusterUser
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.source import ClusterSource
from aliquot.dashboard.cluster.user_client import UserClients
from aliquot.dashboard.view_models import Person
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kubeconfig import find_access
from aliquot.kubernetes.client.session import ApiSession
from aliquot.kubernetes.client.transport import Transport
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE

READ = (AccessRight("list", "", "nodes"), AccessRight("get", "", "nodes"))
"""Who may look at nodes may look at this page, which shows what nodes have."""


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


class ClusterAuthenticator:
    """See ``dashboard.ports.Authenticator``. Whoever a token stands for comes in if they may read nodes."""

    hint = "a token of the cluster, for example what this prints: kubectl create token NAME -n NAMESPACE"

    def __init__(self, reviews: AccessReviews) -> None:
        self._reviews = reviews

    async def admit(self, token: str) -> Person | None:
        """Raises AliquotError where nobody can tell now."""
        user = await self._reviews.user(token)
        if user is None or not await self._may_read(user):
            return None
        return Person(user.username, token, user.groups)

    async def _may_read(self, user: ClusterUser) -> bool:
        return all([await self._reviews.allowed(user, right) for right in READ])
