"""The page of ResourceClaims: the devices that they have, and what of a node's GPUs is left for others."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.claim_views import ClaimableGpu, ClaimableProfile, ClaimRow, ClaimsView
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import FEW, Pager, first, part, sentences

MOST = 200
"""The number of rows on one page."""


class ClaimLine(msgspec.Struct, frozen=True):
    """A device of a claim as text. ``path`` leads to its GPU, or else to its node; "" if neither is known."""

    claim: str
    node: str
    gpu: str
    path: str
    product: str
    what: str
    device: str
    pods: str
    problem: str


class RoomLine(msgspec.Struct, frozen=True):
    """A GPU as text, with what is left of it. ``closed`` are the reasons with the profiles that do not fit for them."""

    gpu: str
    product: str
    driver: str
    open: str
    closed: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


async def show(visit: Visit) -> PageContent:
    view = visit.source.claims()
    found, pager = part(visit, "/claims", view.rows, MOST, _name)
    q = first(visit, "q")
    region = claims_region(msgspec.structs.replace(view, rows=tuple(found)), pager)
    return PageContent("claims.html", "Claims", (region,), {"q": q, "many": q or len(view.rows) > FEW})


def claims_region(view: ClaimsView, pager: Pager = Pager()) -> Region:  # noqa: B008 - frozen
    """Return the region of the claims, and of what is left of a node's GPUs."""
    context = {
        "rows": tuple(_line(row) for row in view.rows),
        "room": tuple(_room(view.room)),
        "missing": sentences(view.missing),
        "pager": pager,
    }
    return Region("claims", "claims_table.html", (view, pager), context)


def _name(row: ClaimRow) -> str:
    return " ".join((f"{row.namespace}/{row.claim}", row.node, row.gpu, row.what, row.product, *row.pods))


def _line(row: ClaimRow) -> ClaimLine:
    kind = row.what or "unknown device"
    return ClaimLine(
        claim=words.clean(f"{row.namespace}/{row.claim}"),
        node=words.clean(row.node),
        gpu=words.clean(row.gpu),
        path=_path(row.node, row.gpu),
        product=words.clean(row.product.removeprefix("NVIDIA ")),
        what=words.clean(f"{kind}, for administration" if row.admin else kind),
        device=words.clean(row.device),
        pods=words.listed([words.clean(name) for name in row.pods]) if row.pods else "none",
        problem=words.clean(row.problem, 400),
    )


def _room(room: tuple[ClaimableGpu, ...]) -> Iterator[RoomLine]:
    """Yield a line for each GPU. A problem of a pool is reported once, with its first GPU."""
    reported: set[tuple[str, str]] = set()
    for gpu in room:
        pool = gpu.driver, gpu.pool
        yield RoomLine(
            gpu=words.clean(gpu.gpu),
            product=words.clean(gpu.product.removeprefix("NVIDIA ")),
            driver=words.clean(gpu.driver),
            open=", ".join([_count(each) for each in gpu.profiles if each.count]),
            closed=tuple(_closed(gpu)),
            problems=() if pool in reported else sentences(gpu.problems),
        )
        reported.add(pool)


def _count(profile: ClaimableProfile) -> str:
    return f"{words.clean(profile.profile)}: {profile.count}{' or more' * profile.more}"


def _closed(gpu: ClaimableGpu) -> Iterator[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for each in gpu.profiles:
        if not each.count:
            reasons.setdefault(each.reason, []).append(words.clean(each.profile))
    for reason, profiles in reasons.items():
        yield words.listed(profiles), words.clean(reason, 400)


def _path(node: str, gpu: str) -> str:
    if not node:
        return ""
    return words.path("nodes", node, "gpus", gpu) if gpu else words.path("nodes", node)
