"""Errors of a DRA driver beside another one."""

from __future__ import annotations

from aliquot.errors import BlockedError


class OtherDriverError(BlockedError):
    """Another DRA driver of the same name serves this node."""

    code = "OTHER_DRA_DRIVER"
