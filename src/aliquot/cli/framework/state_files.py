"""State files that were set aside, for people who look at a node."""

from __future__ import annotations


def set_aside(node: str | None) -> list[str]:
    """Return a sentence for each state file of this host (``node`` None) or of a simulated node that could not be
    understood and that still lies there.
    """
    from aliquot.foundation.paths import directories
    from aliquot.foundation.state_store import found_unreadable

    return [str(each) for each in found_unreadable(*directories(node)) if not each.why]
