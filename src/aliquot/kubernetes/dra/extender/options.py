"""The command-line options of the extender. This module imports none of the server's libraries."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.dra.model.ranking import ScoreName


class ExtenderOptions(msgspec.Struct, frozen=True):
    """The options of the extender."""

    port: int = -1
    """The HTTPS port. -1 serves none."""
    certificates: str = ""
    """A folder with a mounted certificate. Empty for one of the process's own, which no client can verify."""
    score: ScoreName = "fragmentation"
    check_s: float = 30.0
    """How often the mounted certificate is read again, in seconds."""
