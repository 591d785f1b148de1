"""The door of a page in a cluster: the cluster's own tokens, and its own rights."""

from __future__ import annotations

from aliquot.dashboard.cluster.access_review import AccessReviews, AccessRight, ClusterUser
from aliquot.dashboard.view_models import Person

READ = (AccessRight("list", "", "nodes"), AccessRight("get", "", "nodes"))
"""Who may look at nodes may look at this page, which shows what nodes have."""


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
