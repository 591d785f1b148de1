"""``aliquot version``: versions and facts for a bug report."""

from __future__ import annotations

import sys
from typing import Any

from aliquot import __version__
from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import AliquotError


def run(args: Args) -> int:
    facts: dict[str, Any] = {"version": __version__, "python": sys.version.split()[0], "platform": _platform()}
    try:
        inventory = node.inventory(args)
        facts |= {"node": inventory.node, "driver": inventory.driver, "nvml": inventory.nvml}
        facts["gpus"] = [g.product for g in inventory.gpus]
    except AliquotError as error:
        facts["driver"] = f"{error.code}: {error.brief}"
    text = "\n".join([f"aliquot {__version__}", *(f"{k:<9}{_shown(v)}" for k, v in list(facts.items())[1:])])
    output.emit(output.build("Version", **facts), args.output, text)
    return 0


def _platform() -> str:
    import os

    system = os.uname()
    return f"{system.sysname} {system.release} {system.machine}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
