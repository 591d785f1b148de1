"""Writing with a person's own token, so that the cluster's rights and its audit log see the person, not this page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aliquot.dashboard.view_models import Person
from aliquot.errors import PermissionDeniedError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, ForbiddenError
from aliquot.kubernetes.client.kubeconfig import ClusterAccess, KubeconfigUser
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.session import ApiSession, ApiTarget
from aliquot.kubernetes.client.transport import Transport

JSON = dict[str, Any]


class UserClients:
    """Opens connections for writers. ``own_credentials`` says that who has no token writes with the page's own
    credentials: a page that somebody started with his kubeconfig.
    """

    def __init__(self, api: Api, access: ClusterAccess, *, own_credentials: bool) -> None:
        self._api = api
        self._access = access
        self._own_credentials = own_credentials

    @asynccontextmanager
    async def of(self, who: Person) -> AsyncIterator[Api]:
        """The API server as this person. Raises PermissionDeniedError for one who cannot write."""
        if not who.token:
            if not self._own_credentials or who.reads_only:
                raise PermissionDeniedError(f"{who.name or 'who has no token'} may look, and change nothing")
            yield self._api
            return
        plain = msgspec.structs.replace(
            self._access, user=KubeconfigUser(token=who.token), plugin=None, impersonation_headers=()
        )
        api = Api(ApiSession(Transport(plain)), self._api.namespace)
        try:
            yield api
        finally:
            await api.aclose()


async def raw(api: Api, kind: ResourceType, name: str, namespace: str) -> JSON:
    """A whole object, every field of it. Raises ApiError."""
    found: JSON = msgspec.json.decode(await api.session.send("get", ApiTarget(kind, name, namespace or None)))
    return found


def is_conflict(error: ApiError) -> bool:
    """Whether somebody else wrote first."""
    return isinstance(error, ConflictError)


def why(error: ApiError, who: Person) -> str:
    """A refusal in the page's words."""
    if isinstance(error, ForbiddenError):
        return f"{who.name} may not do this: {error.brief}"
    return error.brief
