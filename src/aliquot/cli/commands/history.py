"""``aliquot history``: past changes of this node, from its journal, with time, user, actions and outcome."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.target_node import set_aside
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.core.engine.history import PastRun


def run(args: Args) -> int:
    """Print past changes. Needs neither driver nor GPUs, because the journal is a file."""
    from aliquot.core.engine.history import past_runs
    from aliquot.foundation.lock import holder, since
    from aliquot.hardware.state.journal_reader import JOURNAL, read

    if args.limit < 1:
        raise UsageError("--limit takes a number, 1 or more", next_step=f"{args.prog} --help")
    name, run_folder, folder = _place(args.sim)
    lock = os.path.join(run_folder, "lock")
    busy, taken = holder(lock), since(lock)
    every = past_runs(read(os.path.join(folder, JOURNAL)), running=bool(busy), since=taken)
    found = every[: args.limit]
    if args.output == "markdown":
        from aliquot.cli.views import ticket

        streams.result(ticket.history(name, found, _ENDS))
        return 0
    document = output.build("History", node=name, changes=found, more=len(every) - len(found))
    output.emit(document, args.output, "\n\n".join(map(_text, found)))
    if args.output == "text" and not found:
        streams.note(f"{name} has no recorded changes: Aliquot has not changed it yet")
    for note in set_aside(args.sim):
        streams.note(note)
    if args.output == "text" and len(every) > len(found):
        older = len(every) - len(found)
        left = "1 older change is" if older == 1 else f"{older} older changes are"
        streams.note(f"{left} left out: --limit {len(every)} shows all")
    return 0


def _place(node: str | None) -> tuple[str, str, str]:
    """Return the node's name and the folders of its lock and its journal. Raises BlockedError for an unknown node."""
    from aliquot.foundation import paths

    if node is None:
        return (os.uname().nodename, *paths.node_directories())
    from aliquot.sim import lifecycle as control

    base = paths.state_dir()
    if node not in control.names(base):
        raise control.unknown_node(base, node)
    return (node, *paths.directories(node))


_ENDS = {
    "done": "done",
    "undone": "failed, and undone: the previous state is restored",
    "stopped": "stopped by a signal, and undone: the previous state is restored",
    "partial": "failed, and not all could be undone",
    "refused": "refused: nothing was touched",
    "cut off": "cut off: it never ended",
    "under way": "under way",
}


def _text(past: PastRun) -> str:
    """Return one change as text."""
    head = [_when(past.at), f"by {past.by}" if past.by else "", _ENDS.get(past.outcome, past.outcome), _took(past)]
    lines = ["  ".join(filter(None, head))]
    lines += [f"  command  {shlex.join(past.command)}"] if past.command else []
    lines += [f"  request  {past.name}"] if past.name else []
    lines += [f"  {'did' if n == 0 else '':<8} {line}" for n, line in enumerate(past.actions)]
    lines += [f"  why      {past.failure}"] if past.failure else []
    lines += [f"  {'undid' if n == 0 else '':<8} {line}" for n, line in enumerate(past.undone)]
    return "\n".join(lines)


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "some time ago"


def _took(past: PastRun) -> str:
    return f"in {past.ended - past.at:.1f} s" if past.ended > past.at > 0 else ""
