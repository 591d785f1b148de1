"""Opening the source and authenticator of a cluster, with the cluster's own tokens and permissions."""

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
"""Permissions needed to see the dashboard. It shows the resources of nodes, so users must be able to read nodes."""


def open_cluster(
    kubeconfig: str | None,
    *,
    namespace: str | None = None,
    kubevirt_namespace: str = KUBEVIRT_NAMESPACE,
    audiences: tuple[str, ...] = (),
    own_credentials: bool = False,
    timeouts: OutcomeTimeouts | None = None,
) -> tuple[ClusterSource, ClusterAuthenticator]:
    """Open the source and the authenticator. No request is sent yet.

    ``namespace`` is that of the agents (None: the default of the manifests).
    With ``own_credentials``, a user runs the dashboard for themselves: it reads and writes with their kubeconfig,
    and the caller uses another authenticator. Otherwise the dashboard only reads, and users write with their tokens.

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
    """See ``dashboard.ports.Authenticator``. Admits cluster users who may read nodes."""

    hint = "a token of the cluster, for example from: kubectl create token NAME -n NAMESPACE"

    def __init__(self, reviews: AccessReviews) -> None:
        self._reviews = reviews

    async def admit(self, token: str) -> Person | None:
        """Return the user of a token, None if refused. Raises AliquotError if it cannot be checked now."""
        user = await self._reviews.user(token)
        if user is None or not await self._may_read(user):
            return None
        return Person(user.username, token, user.groups)

    async def _may_read(self, user: ClusterUser) -> bool:
        return all([await self._reviews.allowed(user, right) for right in READ])
