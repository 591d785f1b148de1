"""Publication of GPUs by an agent: to the kubelet, as CDI documents, and again after a refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.errors import StorageError
from aliquot.kubernetes.label_agent.agent.publisher import Publisher
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from support.agent_observations import make_observation, node

NO_KUBELET = DeviceOffering("")


def _publisher(offering: object = NO_KUBELET, cdi: object = None) -> Publisher:
    informer = SimpleNamespace(marks=SimpleNamespace(labels={}))
    none: Any = None
    return Publisher(cast(Any, informer), none, none, offering=cast(Any, offering), cdi=cast(Any, cdi), uses=None)


def test_a_cdi_document_that_cannot_be_written_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def full(inventory: object) -> tuple[str, ...]:
        raise StorageError("no space")

    publisher = _publisher(cdi=full)
    for _ in range(2):
        publisher.problem = publisher._write_cdi(node())
        assert len(caplog.records) == 1
    assert publisher.problem == "cannot write the CDI documents: no space"
    assert _publisher()._write_cdi(node()) == ""


@pytest.mark.parametrize(
    ("problem", "path", "read", "again"),
    [("", "", True, False), ("no", "", True, True), ("", "gone", True, True), ("no", "", False, False)],
    ids=["all is well", "a problem", "a document went", "no GPU can be read"],
)
def test_what_was_refused_is_published_again(
    problem: str, path: str, read: bool, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[object] = []

    async def publish(o: object) -> str:
        published.append(o)
        return ""

    publisher = _publisher()
    publisher.problem = problem
    publisher._paths = (str(tmp_path / path),)
    monkeypatch.setattr(publisher, "publish", publish)
    o = make_observation("all-1g.5gb")
    asyncio.run(publisher.retry_refused(o if read else msgspec.structs.replace(o, inventory=None)))
    assert bool(published) == again
