"""The command-line options of the HTTPS server. This module imports none of the server's libraries."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.manifests.values import WEBHOOK

CHECK_S = 30.0
"""How often the controller checks whether the certificate is current, in seconds."""


class WebhookOptions(msgspec.Struct, frozen=True):
    """The options of the HTTPS server."""

    port: int = -1
    """-1 serves no webhooks."""
    certificates: str = ""
    """A folder with mounted certificates; empty for self-made ones."""
    service: str = WEBHOOK
    """The Service by which the API server calls the webhooks."""
    hosts: tuple[str, ...] = ()
    """More DNS names for the certificate."""
    accounts: tuple[str, ...] = ()
    """More user names whose writes are not reviewed."""
    check_s: float = CHECK_S
