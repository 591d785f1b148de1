"""Random changes through a random network: what a watch has reported adds up to what the server holds, always.

A proxy between watch and server cuts connections, resets them and lets them fall silent; the server's memory of old
versions is thrown away in between.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.informer import Informer, Key
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import WatchTiming
from support.cluster import Cluster

TIMING = WatchTiming(shortest_s=1, longest_s=2, grace_s=0.5, first_backoff_s=0.05, longest_backoff_s=0.3, refused_s=0.3)
NAMES = [f"n{number}" for number in range(12)]
ROUNDS = 150


class Network:
    """A TCP proxy to ``url`` that misbehaves on demand."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._target = (address.hostname or "", address.port or 0)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.refusing = False

    async def __aenter__(self) -> Network:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut(1.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self, share: float) -> None:
        """Break connections."""
        for pair in list(self._pairs):
            if random.random() < share:
                for writer in pair:
                    writer.transport.abort()

    def silence(self, share: float) -> None:
        """Keep connections open without forwarding anything to the client."""
        self._silent |= {near for near, _ in self._pairs if random.random() < share}

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        with suppress(OSError):
            back, forth = await asyncio.open_connection(*self._target)
            pair = (writer, forth)
            self._pairs.add(pair)
            try:
                await asyncio.gather(self._carry(reader, forth), self._carry(back, writer))
            finally:
                self._pairs.discard(pair)
                self._silent.discard(writer)
                for each in pair:
                    each.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(random.choice((7, 100, 65536))):
            if writer not in self._silent:
                writer.write(data)
                await writer.drain()
        raise ConnectionAbortedError  # one direction ended, so the other ends too


class Mirror:
    """The changes that an informer reported. A report without a change is an error."""

    def __init__(self) -> None:
        self.held: dict[str, Node] = {}
        self.informer = Informer(Node, self._changed, timing=TIMING)

    def _changed(self, keys: set[Key]) -> None:
        for _, name in keys:
            item = self.informer.get(name)
            assert self.held.get(name) != item, "nothing changed"
            if item is None:
                del self.held[name]
            else:
                self.held[name] = item


async def change_something(api: Api, mark: int) -> None:
    name = random.choice(NAMES)
    with suppress(ApiError):
        try:
            if random.random() < 0.4:
                await api.delete(Node, name)
            else:
                await api.patch(Node, name, {"metadata": {"labels": {"mark": str(mark)}}})
        except NotFoundError:
            await api.create(Node, {"metadata": {"name": name}})


async def failure(network: Network, cluster: Cluster) -> None:
    dice = random.random()
    if dice < 0.08:
        network.cut(0.7)
    elif dice < 0.12:
        network.silence(0.7)
    elif dice < 0.15:
        network.refusing = True
        network.cut(1.0)
        await asyncio.sleep(0.3)
        network.refusing = False
    elif dice < 0.18 and cluster.name == "standin":  # a real server would have to be restarted each time
        await asyncio.to_thread(cluster.expire)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_watch_reported_adds_up(cluster: Cluster, tmp_path: Path, seed: int) -> None:
    random.seed(seed)
    plain = cluster.kubeconfig()

    async def main() -> None:
        async with Network(cluster.url) as network:
            config = yaml.safe_load(plain.read_text())
            for entry in config["clusters"]:
                entry["cluster"]["server"] = f"https://127.0.0.1:{network.port}"
            path = tmp_path / "through-the-network"
            path.write_text(yaml.safe_dump(config))
            async with Api.connect(str(plain)) as sure, Api.connect(str(path), timeout_s=1) as shaky:
                mirror = Mirror()
                following = asyncio.create_task(mirror.informer.follow(shaky))
                for number in range(ROUNDS):
                    await change_something(sure, number)
                    await failure(network, cluster)
                    await asyncio.sleep(random.random() * 0.03)
                truth = {item.name: item for item in await sure.list(Node)}
                end = asyncio.get_running_loop().time() + 10
                while mirror.held != truth and asyncio.get_running_loop().time() < end:
                    assert not following.done(), following.exception()
                    await asyncio.sleep(0.05)
                following.cancel()
                assert mirror.held == truth

    asyncio.run(main())
