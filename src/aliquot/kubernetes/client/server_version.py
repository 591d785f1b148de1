"""The version of an API server."""

from __future__ import annotations

import re

from aliquot.kubernetes.client.object_base import ApiStruct

_DIGITS = re.compile(r"\d+")


class ServerVersion(ApiStruct, frozen=True):
    """The answer of an API server to ``/version``."""

    major: str = ""
    minor: str = ""
    """``36``, or ``36+`` where a distributor changed the release."""
    git_version: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor number, such as ``(1, 36)``. ``(0, 0)`` if the server does not name them."""
        found = _DIGITS.match(self.major), _DIGITS.match(self.minor)
        return (int(found[0].group()), int(found[1].group())) if found[0] and found[1] else (0, 0)

    def __str__(self) -> str:
        return self.git_version or f"v{self.major}.{self.minor}"
