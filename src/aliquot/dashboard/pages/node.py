"""The page of a node: its state, drift and warnings, and a picture of each GPU."""

from __future__ import annotations

import msgspec

from aliquot.core.config.boot_record import NAME
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.inventory import Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.claims import claims_region
from aliquot.dashboard.pages.gpu_view import gpu_view
from aliquot.dashboard.pages.node_summary import products
from aliquot.dashboard.pages.shared import FLEET, absent, freshness, refusals
from aliquot.dashboard.view_models import ObservedNode


class NodeOverview(msgspec.Struct, frozen=True):
    """The text below a node's name. ``desired`` is the last request, and ``named`` is its name, if any."""

    name: str
    raw: str
    products: str = ""
    driver: str = ""
    desired: str = ""
    named: str = ""
    config: str = ""
    state: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()


async def show(visit: Visit) -> PageContent:
    view = visit.source.fleet.by_name.get(visit.params["node"])
    if view is None:
        return absent(visit, "node", visit.params["node"], FLEET)
    overview = facts(view)
    may = await refusals(visit, ("repair", "config", "make-room"), view)
    configs = visit.source.configs
    top = {"look": freshness(view), "facts": overview, "may": may}
    regions = [Region("node", "node_state.html", (view.revision, tuple(may.items())), top)]
    inventory = view.inventory
    for drawn in [gpu_view(view, inventory, gpu) for gpu in inventory.gpus] if inventory else ():
        drawn_with = {"gpu": drawn, "node": view.name, "stale": view.stale, "may": may}
        regions.append(Region(drawn.id, "node_gpu.html", (drawn, view.stale, may["make-room"]), drawn_with))
    gpus = tuple(r.id for r in regions[1:])
    if configs:
        known = {"facts": overview, "configs": configs, "may": may}
        regions.append(Region("use", "node_config.html", (overview.config, configs, may["config"]), known))
    claims = visit.source.claims(view.name)
    claimed = bool(claims.rows or claims.room)
    if claimed:
        regions.append(claims_region(claims))
    context = {
        "claimed": claimed,
        "crumbs": (FLEET,),
        "name": overview.name,
        "gpus": gpus,
        "configured": bool(configs),
        "history": "/history?" + words.query({"node": view.name}),
    }
    return PageContent("node.html", overview.name, tuple(regions), context)


def facts(view: ObservedNode) -> NodeOverview:
    inventory = view.inventory
    overview = NodeOverview(
        name=words.clean(view.name),
        raw=view.name,
        desired=words.clean(view.desired),
        named=words.clean(view.desired) if view.desired != NAME else "",
        config=words.clean(view.config),
        state=words.clean(view.state),
        message=words.clean(view.message, 400),
        drift=tuple(words.drift(d) for d in view.drift),
    )
    if inventory is None:
        return overview
    return msgspec.structs.replace(
        overview,
        products=products(inventory),
        driver=_driver(inventory),
        notes=tuple(words.clean(s, 600) for s in (*inventory.notes, *drivers.notes(inventory))),
        warnings=tuple(words.clean(s, 600) for s in drivers.verdicts(inventory)),
    )


def _driver(inventory: Inventory) -> str:
    return f"driver {words.clean(inventory.driver, 40)}" if inventory.driver else "driver unknown"
