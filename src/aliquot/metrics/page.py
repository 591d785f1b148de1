"""A page of metrics: OpenMetrics or classic text, as the client prefers; compressed if the client accepts it.

prometheus-client writes the text. Aliquot chooses the format itself, because prometheus-client does so only in its WSGI
and ASGI applications.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Hashable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from aliquot.foundation.http_server import Answer, Page, answer_ok

_END = b"# EOF\n"
_WORTH_BYTES = 4096
"""Smaller pages are not compressed."""


class MetricsPage:
    """A page of metrics. ``registry`` has the counted metrics. ``collector`` has those that depend only on the last
    observation: they are rendered again when ``key``, which stands for that observation, changes.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        collector: Collector | None = None,
        key: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.registry = registry
        self._collector = collector
        self._key = key
        self._written: dict[str, tuple[Hashable, bytes]] = {}

    def render(self, headers: Mapping[str, str]) -> Answer:
        """Return the page for a request with these headers, whose names are in lower case."""
        encode, content_type = choose_encoder(headers.get("accept", ""))
        body = encode(self.registry)
        if self._collector is not None:
            body = body.removesuffix(_END) + self._cached(content_type, encode, self._collector)
        if len(body) >= _WORTH_BYTES and _takes_gzip(headers.get("accept-encoding", "")):
            return Answer(200, content_type, gzip.compress(body, 1, mtime=0), {"Content-Encoding": "gzip"})
        return Answer(200, content_type, body)

    def pages(self) -> dict[str, Page]:
        """Return this page, and a health page that only confirms that the process runs."""
        return {"/metrics": self.render, "/healthz": answer_ok}

    def text(self) -> bytes:
        """Return the page in classic text, for files."""
        return self.render({}).body

    def _cached(self, content_type: str, encode: Callable[[Collector], bytes], collector: Collector) -> bytes:
        key = self._key()
        known = self._written.get(content_type)
        if known is None or key is None or known[0] != key:
            if len(self._written) > 4:
                self._written.clear()  # clients choose content types, so the cache is bounded
            known = self._written[content_type] = (key, encode(collector))
        return known[1]


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        word, _, quality = each.partition(";")
        if word.strip().lower() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0")
    return False
