"""What the command line says about the HTTPS server. Needs none of its libraries."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.manifests.values import WEBHOOK

CHECK_S = 30.0
"""How often it is looked whether the certificate is still the one to use."""


class WebhookOptions(msgspec.Struct, frozen=True):
    """``port`` -1 serves no webhooks. ``certificates`` is a folder with mounted ones, empty for our own. ``service`` is
    the name of the Service that the API server calls us by, ``hosts`` are further names. ``accounts`` are further user
    names whose writes are not judged. ``check_s`` is in seconds.
    """

    port: int = -1
    certificates: str = ""
    service: str = WEBHOOK
    hosts: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    check_s: float = CHECK_S
