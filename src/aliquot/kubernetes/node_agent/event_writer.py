"""Events that an agent writes about its node and the node's objects."""

from __future__ import annotations

import time
from collections.abc import Callable

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.events import EventSource, EventSubject, EventText, event_body, node_subject
from aliquot.kubernetes.client.objects import Event
from aliquot.kubernetes.gpu.reasons import WarningReason


class EventWriter:
    """Writer of a component's events on a node.

    A failure is only logged, as it must not stop the agent's work. ``clock`` returns seconds since the epoch.
    """

    def __init__(self, api: Api, component: str, node: str, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._source = EventSource(component, node)
        self._clock = clock

    async def write(self, text: EventText, subject: EventSubject | None = None) -> None:
        """Write an event about a cluster-scoped object, by default the node."""
        body = event_body(subject or node_subject(self._source.host), self._source, text, self._clock())
        try:
            await self._api.create(Event, body, body["metadata"]["namespace"])
        except ApiError as error:
            log.warning("cannot write an event: %s", error.brief)

    async def warn(self, reason: WarningReason, message: str) -> None:
        """Write a warning about the node."""
        await self.write(EventText("Warning", reason, message))
