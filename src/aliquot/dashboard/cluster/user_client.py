"""API clients with a user's own token, so that RBAC and the audit log apply to the user, not to the dashboard."""

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
    """Opens API clients for users.

    With ``own_credentials``, users without a token write with the dashboard's kubeconfig.
    """

    def __init__(self, api: Api, access: ClusterAccess, *, own_credentials: bool) -> None:
        self._api = api
        self._access = access
        self._own_credentials = own_credentials

    @asynccontextmanager
    async def of(self, who: Person) -> AsyncIterator[Api]:
        """Open the API client of a user. Raises PermissionDeniedError if the user may not write."""
        if not who.token:
            if not self._own_credentials or who.reads_only:
                raise PermissionDeniedError(f"{who.name or 'a user without a token'} has read-only access")
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
    """Read an object with all its fields. Raises ApiError."""
    found: JSON = msgspec.json.decode(await api.session.send("get", ApiTarget(kind, name, namespace or None)))
    return found


def is_conflict(error: ApiError) -> bool:
    """Report whether another client wrote first."""
    return isinstance(error, ConflictError)


def why(error: ApiError, who: Person) -> str:
    """Describe a refusal to the user."""
    if isinstance(error, ForbiddenError):
        return f"{who.name} may not do this: {error.brief}"
    return error.brief
