"""The page of MIG configurations: requested and present instances of every GPU."""

from __future__ import annotations

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import FEW, first, missing, part, refusals
from aliquot.dashboard.view_models import MigRow, ProfileRow
from aliquot.kubernetes.kinds.harvester_names import DISABLED, OUT_OF_SYNC, SYNCED

MOST = 48
"""The number of configurations on one page."""


class MigLayoutCard(msgspec.Struct, frozen=True):
    """A GPU's configuration as text. ``mood`` is ``odd`` if it differs from the request."""

    id: str
    node: str
    shown: str
    gpu: str
    path: str
    product: str
    name: str
    enabled: bool
    status: str
    mood: str
    profiles: tuple[ProfileRow, ...]
    why_not: str


def configuration(row: MigRow) -> MigLayoutCard:
    return MigLayoutCard(
        id=f"mig-{words.key(f'{row.node}/{row.gpu}')}",
        node=row.node,
        shown=words.clean(row.node),
        gpu=words.clean(row.gpu),
        path=words.path("nodes", row.node, "gpus", row.gpu),
        product=words.clean(row.product.removeprefix("NVIDIA ")),
        name=words.clean(row.name),
        enabled=row.enabled,
        status=words.clean(row.status, 300) or (SYNCED if row.enabled else DISABLED),
        mood="odd" if row.status == OUT_OF_SYNC else "",
        profiles=row.profiles,
        why_not=words.clean(row.why_not, 300),
    )


async def show(visit: Visit) -> PageContent:
    virtual = visit.source.virtual
    may, lacks = await refusals(visit, ("layout",)), missing(virtual)
    permissions = tuple(may.items())
    found, pager = part(
        visit, "/mig", virtual.migs, MOST, lambda row: f"{row.node} {row.gpu} {row.product} {row.status}"
    )
    shown = [(row, configuration(row)) for row in found]
    regions = (
        Region("missing", "missing.html", (lacks, not shown), {"missing": lacks, "empty": not shown}),
        *(Region(c.id, "mig_gpu.html", (row, permissions), {"mig": c, "may": may}) for row, c in shown),
    )
    q = first(visit, "q")
    context = {"rows": tuple(c.id for _, c in shown), "pager": pager, "q": q, "many": q or len(virtual.migs) > FEW}
    return PageContent("mig.html", "MIG configurations", regions, context)
