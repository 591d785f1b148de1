"""What goes wrong between us and kubelet."""

from __future__ import annotations

from aliquot.errors import AliquotError, BlockedError


class KubeletUnavailableError(BlockedError):
    """Kubelet does not answer on its socket."""

    code = "KUBELET_AWAY"


class OfferError(AliquotError):
    """An offer that no kubelet can be given: a resource or a device twice."""

    code = "OFFER"
