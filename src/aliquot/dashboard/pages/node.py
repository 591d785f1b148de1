"""One node: a picture for each of its GPUs, what drifted, what is wrong with it."""

from __future__ import annotations

import msgspec

from aliquot.core.config.boot_record import NAME
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.inventory import Inventory
from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import Region, Shown, Visit
from aliquot.dashboard.pages.gpu_card import view
from aliquot.dashboard.pages.node_summary import products
from aliquot.dashboard.pages.shared import FLEET, absent, refusals, standing
from aliquot.dashboard.view_models import NodeLook


class Facts(msgspec.Struct, frozen=True):
    """What stands below a node's name. ``wish`` is what was asked last, ``named`` the same where somebody named it."""

    name: str
    raw: str
    products: str = ""
    driver: str = ""
    wish: str = ""
    named: str = ""
    config: str = ""
    state: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()


async def show(visit: Visit) -> Shown:
    look = visit.source.fleet.by_name.get(visit.params["node"])
    if look is None:
        return absent(visit, "node", visit.params["node"], FLEET)
    told = facts(look)
    may = await refusals(visit, ("repair", "config", "make-room"), look)
    configs = visit.source.configs
    top = {"look": standing(look), "facts": told, "may": may}
    regions = [Region("node", "node_state.html", (look.revision, tuple(may.items())), top)]
    inventory = look.inventory
    for drawn in [view(look, inventory, gpu) for gpu in inventory.gpus] if inventory else ():
        drawn_with = {"gpu": drawn, "node": look.name, "stale": look.stale, "may": may}
        regions.append(Region(drawn.id, "node_gpu.html", (drawn, look.stale, may["make-room"]), drawn_with))
    gpus = tuple(r.id for r in regions[1:])
    if configs:
        known = {"facts": told, "configs": configs, "may": may}
        regions.append(Region("use", "node_config.html", (told.config, configs, may["config"]), known))
    context = {
        "crumbs": (FLEET,),
        "name": told.name,
        "gpus": gpus,
        "configured": bool(configs),
        "history": "/history?" + words.query({"node": look.name}),
    }
    return Shown("node.html", told.name, tuple(regions), context)


def facts(look: NodeLook) -> Facts:
    inventory = look.inventory
    told = Facts(
        name=words.clean(look.name),
        raw=look.name,
        wish=words.clean(look.wish),
        named=words.clean(look.wish) if look.wish != NAME else "",
        config=words.clean(look.config),
        state=words.clean(look.state),
        message=words.clean(look.message, 400),
        drift=tuple(words.placed(words.clean(d.message, 300)) for d in look.drift),
    )
    if inventory is None:
        return told
    return msgspec.structs.replace(
        told,
        products=products(inventory),
        driver=_driver(inventory),
        notes=tuple(words.clean(s, 600) for s in (*inventory.notes, *drivers.notes(inventory))),
        warnings=tuple(words.clean(s, 600) for s in drivers.verdicts(inventory)),
    )


def _driver(inventory: Inventory) -> str:
    return f"driver {words.clean(inventory.driver, 40)}" if inventory.driver else "driver unknown"
