"""The SR-IOV page: enabling and disabling the virtual functions of GPUs."""

from __future__ import annotations

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import FEW, first, missing, part, refusals
from aliquot.dashboard.view_models import SriovRow

MOST = 200
"""The number of rows on one page."""


class SriovLine(msgspec.Struct, frozen=True):
    """A row as text. ``value`` names the GPU in a request, and ``places`` is the path of its vGPUs."""

    id: str
    value: str
    node: str
    gpu: str
    path: str
    product: str
    name: str
    enabled: bool
    functions: str
    vgpus: int
    state: str
    why_not: str
    places: str


def line(row: SriovRow) -> SriovLine:
    return SriovLine(
        id=words.key(f"{row.node}/{row.gpu}"),
        value=f"{row.node}/{row.gpu}",
        node=words.clean(row.node),
        gpu=words.clean(row.gpu),
        path=words.path("nodes", row.node, "gpus", row.gpu),
        product=words.clean(row.product.removeprefix("NVIDIA ")),
        name=words.clean(row.name),
        enabled=row.enabled,
        functions=f"{row.functions} of {row.total} enabled",
        vgpus=row.vgpus,
        state=words.clean(row.state, 300),
        why_not=words.clean(row.why_not, 300),
        places="/vgpus?" + words.query({"parent": f"{row.node}/{row.gpu}"}),
    )


async def show(visit: Visit) -> PageContent:
    virtual = visit.source.virtual
    may, lacks = await refusals(visit, ("functions",)), missing(virtual)
    found, pager = part(
        visit, "/sriov", virtual.sriov, MOST, lambda row: f"{row.node} {row.gpu} {row.product} {row.name}"
    )
    able = [row for row in found if row.enabled or not row.why_not]
    rest = [row for row in found if row not in able]
    context = {
        "rows": tuple(map(line, able)),
        "rest": tuple(map(line, rest)),
        "may": may,
        "missing": lacks,
        "pager": pager,
        "able": any(not r.why_not for r in able),
    }
    region = Region("functions", "sriov_table.html", (tuple(found), tuple(may.items()), lacks, pager), context)
    q = first(visit, "q")
    return PageContent("sriov.html", "SR-IOV GPUs", (region,), {"q": q, "many": q or len(virtual.sriov) > FEW})
