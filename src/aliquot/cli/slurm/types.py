"""``aliquot slurm types``: what jobs can request of this cluster, in the words of ``--gres``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from aliquot.cli.framework import file_output, output, owned_files, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import types_view
from aliquot.errors import AliquotError, UsageError

if TYPE_CHECKING:
    from aliquot.slurm.controller.settings import SlurmControllerSettings
    from aliquot.slurm.types.offers import ClusterView, TypeOffer


def run(args: Args) -> int:
    from aliquot.slurm.types.offers import offered_types
    from aliquot.slurm.types.on_demand import on_demand_types

    if args.out and not args.list:
        raise UsageError("--out takes the list of --list", next_step="aliquot slurm types --list --out FILE")
    settings = _settings(args)
    view = _view()
    offers = offered_types(view, on_demand_types(view.nodes, settings))
    if args.list:
        return _write_list(offers, settings, args)
    shown = _chosen(offers, args.type) if args.type else offers
    document = output.build("SlurmTypes", types=[types_view.plain(each) for each in shown])
    output.emit(document, args.output, types_view.table(shown, view.now))
    if args.output == "text" and any(each.later for each in shown):
        streams.note("note     not in 'free soon': devices of jobs that are longer, have no time limit, or are hidden")
    return 0


def _view() -> ClusterView:
    """Read the cluster. Raises SlurmError."""
    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.types.offers import ClusterView

    with open_client() as slurm:
        return ClusterView(slurm.nodes(), slurm.jobs(holding=True), slurm.partitions(), time.time())


def _settings(args: Args) -> SlurmControllerSettings | None:
    """Return the controller's settings. The usual file may be missing, private or wrong."""
    from aliquot.cli.slurm.table_users import SETTINGS
    from aliquot.slurm.controller.settings_parser import load

    if args.file:
        return load(output.read_text(args.file, "settings file"), args.file)
    if not os.access(SETTINGS, os.R_OK):
        return None
    try:
        return load(output.read_text(SETTINGS, "settings file"), SETTINGS)
    except AliquotError as error:
        streams.note(f"note     the restrictions of {SETTINGS} are not applied: {error.brief}")
        return None


def _chosen(offers: tuple[TypeOffer, ...], word: str) -> tuple[TypeOffer, ...]:
    """Return the types that a word names. Raises NoTypeError with the nearest ones."""
    from aliquot.slurm.types.near import NoTypeError, match_types

    by_type = {each.type: each for each in offers}
    exact, near = match_types(word, tuple(by_type))
    if not exact:
        raise NoTypeError(
            f"no type {word} can be requested here",
            details=tuple(types_view.near_line(by_type[name]) for name in near),
            next_step="aliquot slurm types",
        )
    return tuple(by_type[name] for name in exact)


def _write_list(offers: tuple[TypeOffer, ...], settings: SlurmControllerSettings | None, args: Args) -> int:
    lines = types_view.listed(offers, tuple(settings.layouts) if settings else ())
    if path := file_output.target(args):
        owned_files.save(path, owned_files.marked("".join(f"{line}\n" for line in lines)), force=args.force)
        streams.note(f"wrote {path}")
        return 0
    output.emit(output.build("SlurmTypeList", lines=lines), args.output, "\n".join(lines))
    return 0
