"""The output of ``--watch`` without a terminal: a line for each change, or a document for each sample with changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.watch.child_process import WatchFailure
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.core.model.inventory import Inventory
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering.diff_text import InventoryChange
from aliquot.hardware.state.current_run import CurrentRun


class LineSink:
    """A sink that writes to stdout, each line with its time, so that a file of them is a log."""

    keyboard = -1

    def __init__(self, args: Args) -> None:
        self._form = args.output
        self._node = args.sim or ""
        self._failure = ""
        self._busy = ""

    def show(self, snapshot: WatchSnapshot, found: tuple[InventoryChange, ...], first: bool) -> None:
        self._node = snapshot.inventory.node
        back, self._failure = bool(self._failure), ""
        event = "start" if first else "back" if back else "change"
        if self._form != "text":
            if first or back or found:
                self._document(snapshot.document, event, [c.text for c in found])
            return
        if first or back:
            self._line(f"{'answers again: ' if back else ''}{summary(snapshot.inventory)}")
        for change in found:
            self._line(change.text)

    def show_failure(self, failure: WatchFailure) -> None:
        if failure.code == self._failure:
            return
        self._failure = failure.code
        if self._form == "text":
            self._line(f"error[{failure.code}]: {failure.brief}")
        else:
            self._document(failure.error.document(), "trouble", [])

    def show_change(self, change: CurrentRun | None) -> None:
        who = change.process if change else ""
        if who == self._busy:
            return
        self._busy = who
        if self._form == "text" and change is not None:
            pause = "; no samples meanwhile: it needs the GPUs exclusively" if change.exclusive else ""
            self._line(f"{who} is changing this node's GPUs{pause}")

    def refresh(self) -> None:
        return

    def pressed(self) -> list[str]:
        return []

    def pause(self) -> None:
        return

    def resume(self) -> None:
        return

    def _line(self, text: str) -> None:
        streams.result(f"{_now()}  {self._node or 'this host'}  {text}")

    def _document(self, document: dict[str, Any], event: str, texts: list[str]) -> None:
        whole = document | {"watch": {"at": _now(), "event": event, "changes": texts}}
        if self._form == "json":
            streams.result(msgspec.json.encode(whole).decode())
        else:
            streams.result(f"---\n{output.encoded(whole, self._form)}")


def summary(inventory: Inventory) -> str:
    """Return a node in a line: ``2 GPUs; GPU 0: 3g.20gb:1,1g.5gb:2  (a held); GPU 1: MIG disabled``."""
    count = "1 GPU" if len(inventory.gpus) == 1 else f"{len(inventory.gpus)} GPUs"
    parts = []
    for gpu in inventory.gpus:
        if gpu.passthrough:
            what = "passed through"
        elif gpu.mig.enabled:
            what = mig_picture.summary(mig_picture.current_instances(gpu))
        else:
            what = f"{len(gpu.vgpus)} vGPUs" if gpu.vgpus else f"MIG {gpu.mig.current}" if gpu.mig.capable else "no MIG"
        parts.append(f"GPU {gpu.index}: {what}")
    return "; ".join([count, *parts])


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
