"""Impersonation: ``kubectl --as``."""

from __future__ import annotations

from support.standin import rbac
from support.standin.answers import forbidden
from support.standin.call import SYSTEM, Caller
from support.standin.store import Store


def impersonated(store: Store, caller: Caller, headers: dict[str, str]) -> Caller:
    """Return the caller that ``Impersonate-User`` names, with one group at most.

    Raises:
        RefusalError: 403, the caller may not impersonate others
    """
    name = headers.get("impersonate-user")
    if not name:
        return caller
    group = headers.get("impersonate-group")
    if not rbac.allows_resource(store, caller, "impersonate", "", "users", name=name):
        why = f'User "{caller.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
        raise forbidden("users", "", name, why)
    groups: tuple[str, ...] = (group,) if group else ()
    if name.startswith(SYSTEM):
        namespace = name.removeprefix(SYSTEM).partition(":")[0]
        groups += ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Caller(name, (*groups, "system:authenticated"))
