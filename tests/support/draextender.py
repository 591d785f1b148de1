"""The scheduler extender as a controller runs it, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.controller.extender import Extender
from aliquot.kubernetes.dra.extender.options import ExtenderOptions

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/dra.md"


def scheduler_settings(port: int) -> dict[str, Any]:
    """Return the configuration of the scheduler as the page shows it, for an extender on this host."""
    text = PAGE.read_text().partition("apiVersion: kubescheduler")[2].partition("```")[0]
    found: dict[str, Any] = yaml.safe_load("   apiVersion: kubescheduler" + text)
    found["extenders"][0]["urlPrefix"] = f"https://127.0.0.1:{port}"
    return found


@contextmanager
def extender(config: Path) -> Iterator[Extender]:
    """Run the extender inside the block, with the account of a kubeconfig."""
    loop = asyncio.new_event_loop()
    made: list[Extender] = []
    started, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        async with Api.connect(str(config), namespace="gpu-operator") as api:
            made.append(Extender(api, ExtenderOptions(0)))
            task = asyncio.create_task(made[0].run())
            started.set()
            await stop.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield made[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
