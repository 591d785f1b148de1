"""What one row of the table of rights says."""

from __future__ import annotations

import msgspec

CLUSTER, OWN, DEFAULT = "cluster", "own namespace", "namespace default"
"""Where a right holds."""
READ = ("get", "list", "watch")


class RbacRight(msgspec.Struct, frozen=True):
    """``verbs`` on a ``resource`` (``pods/eviction``) of an API ``group``, for ``resource_names`` or for all.

    ``narrowed`` says what the admission policies leave of it. ``devices``: only where virtual machines are served.
    ``certificate``: of those, only where the controller makes the webhooks' certificate itself. ``evictions``: only
    where an administrator lets agents evict pods.
    """

    account: str
    scope: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    resource_names: tuple[str, ...] = ()
    narrowed: str = ""
    devices: bool = False
    certificate: bool = False
    evictions: bool = False
