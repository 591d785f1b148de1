"""Errors of a DRA driver beside another one."""

from __future__ import annotations

from aliquot.errors import BlockedError


class OtherDriverError(BlockedError):
    """Another DRA driver of the same name serves this node."""

    code = "OTHER_DRA_DRIVER"


class UnreadableClaimError(BlockedError):
    """Kubelet named a ResourceClaim by a uid that is not a name."""

    code = "DRA_CLAIM"
