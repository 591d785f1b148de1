"""Events: they are valid, are in the right namespace, and a refused one stops no work."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiUnavailableError
from aliquot.kubernetes.client.events import MESSAGE_LIMIT, EventSource, EventSubject, EventText, event_body
from aliquot.kubernetes.node_agent.event_writer import EventWriter


class EventApi:
    """An API that keeps the written events, or refuses them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._error = error

    async def create(self, kind: object, body: dict[str, Any], namespace: str) -> None:
        if self._error is not None:
            raise self._error
        self.events.append((namespace, body))


def test_an_event_about_the_node_is_found_by_kubectl() -> None:
    api = EventApi()
    asyncio.run(EventWriter(cast(Api, api), "agent", "n", lambda: 9.0).warn("InvalidSettings", "odd"))
    assert api.events == [
        (
            "default",
            {
                "metadata": {"generateName": "n.", "namespace": "default"},
                "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"},
                "type": "Warning",
                "reason": "InvalidSettings",
                "message": "odd",
                "source": {"component": "agent", "host": "n"},
                "reportingComponent": "agent",
                "firstTimestamp": "1970-01-01T00:00:09Z",
                "lastTimestamp": "1970-01-01T00:00:09Z",
                "count": 1,
            },
        )
    ]


def test_an_event_about_another_object_names_that_object() -> None:
    api = EventApi()
    subject = EventSubject("devices.harvesterhci.io/v1beta1", "VGPUDevice", "n-0000", "uid-1")
    asyncio.run(EventWriter(cast(Api, api), "agent", "n").write(EventText("Normal", "Ready", "ready"), subject))
    ((namespace, body),) = api.events
    assert namespace == "default"
    assert body["involvedObject"] == {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "VGPUDevice",
        "name": "n-0000",
        "uid": "uid-1",
    }


def test_an_event_about_a_pod_lives_in_its_namespace_under_a_given_name() -> None:
    subject = EventSubject("v1", "Pod", "p", "uid-1", "team")
    body = event_body(subject, EventSource("controller"), EventText("Warning", "NearMiss", "text"), 0.0, "p.digest")
    assert body["metadata"] == {"name": "p.digest", "namespace": "team"}
    assert body["involvedObject"]["namespace"] == "team"
    assert body["source"] == {"component": "controller"}


def test_a_long_message_is_cut_to_what_an_event_has_room_for() -> None:
    api = EventApi()
    asyncio.run(EventWriter(cast(Api, api), "agent", "n").warn("InvalidSettings", "x" * (MESSAGE_LIMIT + 1)))
    message = api.events[0][1]["message"]
    assert len(message) == MESSAGE_LIMIT
    assert message.endswith("x…")


def test_an_event_that_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    writer = EventWriter(cast(Api, EventApi(ApiUnavailableError("no answer"))), "agent", "n")
    with caplog.at_level("WARNING", "aliquot.agent"):
        asyncio.run(writer.warn("InvalidSettings", "odd"))
    assert [record.getMessage() for record in caplog.records] == ["cannot write an event: no answer"]
