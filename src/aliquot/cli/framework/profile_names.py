"""Names of MIG profiles on a command line: those that the node's GPUs have, and a name that no GPU has."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.foundation.decimals import decimal


def known_names(args: Args) -> Sequence[str]:
    """Return the names to suggest for a wrong one: those of the node, or of every GPU if it cannot be read."""
    from aliquot.core.config.select.profile_lookup import names_of_gpus
    from aliquot.core.config.text.node_reader import catalog_names
    from aliquot.errors import AliquotError

    try:
        found = node.inventory(args)
    except AliquotError:
        return catalog_names()
    return names_of_gpus(found, found.gpus)


def check_name(profile: str, inventory: Inventory) -> None:
    """Raise ConfigError for a name that no table and no GPU of this node has; the error lists similar names."""
    from aliquot.errors import ConfigError

    if profile.startswith("id:") and decimal(profile[3:]) is not None:
        return
    families = [inventory.family(g) for g in inventory.gpus if g.mig.capable and g.family]
    if any(profile in _names(family) for family in families):
        return
    known = {n for f in map(catalog.family, catalog.family_names()) for n in _names(f)}
    if profile in known:
        return
    import difflib

    local = list(dict.fromkeys(n for family in families for n in family.by_name))
    close = difflib.get_close_matches(profile, local or sorted(known), 3)
    details = (f"close: {', '.join(close)}",) if close else ()
    command = f"aliquot explain {close[0]}" if close else "aliquot profiles"
    from aliquot.core.config.select.vgpu_lookup import every_name

    if profile in every_name(inventory):
        raise ConfigError(f"{profile!r} is a vGPU type, not a MIG profile", next_step="aliquot vgpu types")
    raise ConfigError(f"no GPU has a profile {profile!r}", details=details, next_step=command)


def _names(family: catalog.Family) -> set[str]:
    return set(family.by_name) | {c.name for p in family.profiles for c in p.compute}
