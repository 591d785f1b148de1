"""Output of ``aliquot slurm types``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.core.rendering import usage_text as words
from aliquot.slurm.gpus.type_facts import TypeFacts
from aliquot.slurm.types.offers import TypeOffer

_HEAD = ("request", "total", "free", "free soon", "on demand", "memory", "compute", "partitions")


def plain(offer: TypeOffer) -> dict[str, Any]:
    """Convert an offer for a document."""
    return {**msgspec.to_builtins(offer), "request": offer.request, "example": offer.example}


def table(offers: Sequence[TypeOffer], now: float) -> str:
    """Format the types as a table, with an example below. ``now`` is in seconds since the epoch."""
    if not offers:
        return "no GPUs can be requested here, or Slurm hides its nodes (PrivateData)"
    rows = draw.table([_HEAD, *(_row(each, now) for each in offers)], indent="")
    best = max(offers, key=lambda each: (min(each.free, 1), min(each.total, 1)))
    return "\n".join([*rows, "", f"example  {best.example}"])


def near_line(offer: TypeOffer) -> str:
    """Return the request for a type and its size, on one line."""
    size = ", ".join(filter(None, (_memory(offer.facts), f"compute {_compute(offer.facts)}".rstrip())))
    return f"near     {offer.request}" + (f"  ({size})" if offer.facts.memory_mib else "")


def listed(offers: Sequence[TypeOffer], layouts: Sequence[str]) -> list[str]:
    """Return ``type PARTITION TYPE`` for each type of each partition, and ``layout NAME`` for each layout feature."""
    pairs = sorted((place.name, each.type) for each in offers for place in each.partitions if each.type)
    return [*(f"type {name} {kind}" for name, kind in pairs), *(f"layout {name}" for name in sorted(layouts))]


def _row(offer: TypeOffer, now: float) -> tuple[str, ...]:
    return (
        offer.request,
        str(offer.total),
        str(offer.free),
        _soon(offer, now),
        f"{offer.on_demand} a node" if offer.on_demand else "",
        _memory(offer.facts),
        _compute(offer.facts),
        ",".join(place.name for place in offer.partitions if place.up),
    )


def _soon(offer: TypeOffer, now: float) -> str:
    """Return ``2 in 12 min``: the devices that come next, and when at the latest."""
    if not offer.soon:
        return ""
    first = offer.soon[0]
    return f"{first.count} in {words.span(first.at - now)}"


def _memory(facts: TypeFacts) -> str:
    return f"{words.gib(facts.memory_mib)} GiB" if facts.memory_mib else ""


def _compute(facts: TypeFacts) -> str:
    if facts.compute_slices is None or facts.of_compute is None:
        return ""
    return f"{facts.compute_slices} of {facts.of_compute}"
