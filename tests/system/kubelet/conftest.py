"""A kubelet below a short path (a unix socket's path has 107 bytes), and plugins that end with the test."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from aliquot.kubernetes.device_plugin.manager import DevicePlugins, PluginTiming
from aliquot.kubernetes.gpu.device_resources import DeviceResource, ResourceDevice, ResourceOffer
from system.kubelet.kubeletdouble import Kubelet

ONE_G = "nvidia.com/mig-1g.5gb"
THREE_G = "nvidia.com/mig-3g.20gb"
QUICK = PluginTiming(poll=0.05, register=5.0, streamless=0.3, first_pause=0.02, longest_pause=0.1)


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kubelet-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def kubelet(root: Path) -> Iterator[Kubelet]:
    double = Kubelet(root)
    double.start()
    yield double
    double.stop()


def devices(count: int, size: int = 7, first: int = 0, kind: str = "1g") -> tuple[ResourceDevice, ...]:
    """Build MIG devices, ``size`` on each GPU, with two GPUs on each NUMA node."""
    return tuple(
        ResourceDevice(
            id=f"MIG-{kind}-{n // size}-{n % size}",
            gpu=f"0000:{n // size:02x}:00.0",
            paths=(f"/dev/nvidia{n // size}", f"/dev/nvidia-caps/nvidia-cap{n}"),
            index=f"{n // size}:{n % size}",
            numa=n // size // 2,
        )
        for n in range(first, first + count)
    )


def offer(**kinds: tuple[ResourceDevice, ...]) -> ResourceOffer:
    names = {"ones": ONE_G, "threes": THREE_G}
    return ResourceOffer(tuple(DeviceResource(names[kind], found) for kind, found in kinds.items()))


@asynccontextmanager
async def running(directory: Path, **more: object) -> AsyncIterator[DevicePlugins]:
    """Run plugins that keep the kubelet informed."""
    plugins = DevicePlugins(str(directory), **{"timing": QUICK, **more})  # type: ignore[arg-type]
    task = asyncio.create_task(plugins.run())
    try:
        yield plugins
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await plugins.close()


async def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until something holds, polling from a thread: the kubelet's side blocks."""
    limit = time.monotonic() + seconds
    while not await asyncio.to_thread(true):
        assert time.monotonic() < limit, "it did not come to hold"
        await asyncio.sleep(0.02)


def go(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario to its end, within three minutes."""

    async def bounded() -> None:
        async with asyncio.timeout(180):
            await scenario()

    asyncio.run(bounded())
