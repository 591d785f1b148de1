"""A row of the table of rights."""

from __future__ import annotations

import msgspec

CLUSTER, OWN, DEFAULT = "cluster", "own namespace", "namespace default"
"""Scope of a right."""
READ = ("get", "list", "watch")


class RbacRight(msgspec.Struct, frozen=True):
    """``verbs`` on a ``resource`` (``pods/eviction``) of an API ``group``."""

    account: str
    scope: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    resource_names: tuple[str, ...] = ()
    """Names of the objects, empty for all."""
    narrowed: str = ""
    """The part that the admission policies permit."""
    devices: bool = False
    """Only in installations for VMs."""
    certificate: bool = False
    """Only in installations for VMs whose controller creates the webhooks' certificate."""
    claims: bool = False
    """Only in installations whose agents prepare ResourceClaims."""
    extender: bool = False
    """Only in installations whose controller rates nodes for the scheduler."""
    evictions: bool = False
    """Only in installations whose administrator lets agents evict pods."""
    repair: bool = False
    """Only in installations for VMs whose controller repairs the definitions of Harvester's kinds."""
    all_devices: bool = False
    """Only in installations for VMs whose agents serve the devices of all vendors."""
