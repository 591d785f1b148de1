"""Errors of the communication with kubelet."""

from __future__ import annotations

from aliquot.errors import AliquotError, BlockedError


class KubeletUnavailableError(BlockedError):
    """Kubelet does not answer on its socket."""

    code = "KUBELET_AWAY"


class OfferError(AliquotError):
    """Kubelet refused a resource, or an offer has a resource or device twice."""

    code = "OFFER"
