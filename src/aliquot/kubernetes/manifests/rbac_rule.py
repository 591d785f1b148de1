"""What one row of the table of rights says."""

from __future__ import annotations

import msgspec

CLUSTER, OWN, DEFAULT = "cluster", "own namespace", "namespace default"
"""Where a right holds."""
READ = ("get", "list", "watch")


class Right(msgspec.Struct, frozen=True):
    """``verbs`` on a ``resource`` (``pods/eviction``) of an API ``group``, for the objects ``named`` or for all.

    ``narrowed`` says what the admission policies leave of it. ``devices``: only where virtual machines are served.
    ``certificate``: of those, only where the controller makes the webhooks' certificate itself. ``evictions``: only
    where an administrator lets agents evict pods.
    """

    who: str
    where: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    named: tuple[str, ...] = ()
    narrowed: str = ""
    devices: bool = False
    certificate: bool = False
    evictions: bool = False
