"""The answers to ``prioritize``. Whatever is missing, the scheduler gets an answer at once, if need be an empty one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from aliquot.foundation.http_server import Answer, text_answer
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.dra.extender.demand import pod_demand
from aliquot.kubernetes.dra.extender.fleet import PublishedFleet
from aliquot.kubernetes.dra.extender.messages import (
    PrioritizeRequest,
    decode_request,
    encode_priorities,
)
from aliquot.kubernetes.dra.extender.priorities import node_priorities
from aliquot.kubernetes.dra.extender.selectors import UnknownRequestError
from aliquot.kubernetes.dra.model.ranking import ScoreName

PATH = "/prioritize"
ANSWER_S = 0.5
"""Seconds for an answer. The controller has other work, and the scheduler waits for a second."""


RatingOutcome = Literal["rated", "no_gpu", "not_ready", "not_understood", "late"]
RatingListener = Callable[[RatingOutcome], None]
"""Called for each pod."""


class Prioritizer:
    """Rates nodes by a score."""

    def __init__(
        self, fleet: PublishedFleet, score: ScoreName, on_rating: RatingListener = lambda outcome: None
    ) -> None:
        self._fleet, self._score, self._on_rating = fleet, score, on_rating

    async def answer(self, body: bytes) -> Answer:
        """Answer a request. The list is empty for a pod whose nodes are not rated."""
        try:
            request = decode_request(body)
        except ValueError as error:
            return text_answer(400, str(error))
        return Answer(200, "application/json", encode_priorities(await self.priorities(request)))

    async def priorities(self, request: PrioritizeRequest) -> dict[str, int]:
        """Return the priorities of the nodes. Empty if the pod needs no device, or its needs are not understood."""
        outcome, found = await self._rate(request)
        self._on_rating(outcome)
        return found

    async def _rate(self, request: PrioritizeRequest) -> tuple[RatingOutcome, dict[str, int]]:
        pod = request.pod
        if not self._fleet.ready:
            return "not_ready", {}
        claims = await self._fleet.claims_of(pod)
        if claims is None:
            log.info("no priorities for %s: its claim is not known yet", pod)
            return "not_ready", {}
        try:
            demand = pod_demand(pod, claims, self._fleet.classes.items)
        except UnknownRequestError as error:
            log.info("no priorities for %s: %s", pod, error)
            return "not_understood", {}
        if not demand.requests:
            return "no_gpu", {}
        end = time.monotonic() + ANSWER_S
        try:
            nodes = self._fleet.nodes(request.nodes)
            return "rated", node_priorities(nodes, demand, self._score, lambda: time.monotonic() > end)
        except TimeoutError:
            log.warning("no priorities for %s: they take longer than %g s", pod, ANSWER_S)
            return "late", {}
