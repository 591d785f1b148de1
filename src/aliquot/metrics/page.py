"""A page of figures: OpenMetrics or classic text, as who asks prefers; compressed where that is welcome.

prometheus-client writes the text. The choice of format is ours, for it has that as WSGI and ASGI applications only.
"""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import Callable, Hashable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.foundation.http_server import Answer, Page, answer_ok

_END = b"# EOF\n"
_WORTH_BYTES = 4096
"""Less than this is sent as it is."""


class MetricsPage:
    """``registry`` has what is counted. ``collector`` has the figures that follow from the last look alone: they are
    written anew when ``key``, that look or what stands for it, is another.
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
        """The page for a request with these headers, whose names are in small letters."""
        encode, content_type = choose_encoder(headers.get("accept", ""))
        body = encode(self.registry)
        if self._collector is not None:
            body = body.removesuffix(_END) + self._cached(content_type, encode, self._collector)
        if len(body) >= _WORTH_BYTES and _takes_gzip(headers.get("accept-encoding", "")):
            return Answer(200, content_type, gzip.compress(body, 1, mtime=0), {"Content-Encoding": "gzip"})
        return Answer(200, content_type, body)

    def pages(self) -> dict[str, Page]:
        """Return this page and one that only says that the process is there."""
        return {"/metrics": self.render, "/healthz": answer_ok}

    def text(self) -> bytes:
        """The page in classic text, for files."""
        return self.render({}).body

    def _cached(self, content_type: str, encode: Callable[[Collector], bytes], collector: Collector) -> bytes:
        key = self._key()
        known = self._written.get(content_type)
        if known is None or key is None or known[0] != key:
            if len(self._written) > 4:
                self._written.clear()  # content types are the asker's choice: not as many as he likes
            known = self._written[content_type] = (key, encode(collector))
        return known[1]


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        word, _, quality = each.partition(";")
        if word.strip().lower() == "gzip":
            return quality.replace(" ", "") not in ("q=0", "q=0.0")
    return False


def write_textfile(path: str, text: bytes) -> None:
    """Replace the file of node_exporter's textfile collector, which must never read half a page. It is readable by
    everybody, for node_exporter is another user. Raises StorageError.
    """
    folder = os.path.dirname(path) or "."
    try:
        os.stat(folder)  # a misspelt one is not made
        atomic_file.replace(path, text, durable=False)
    except FileNotFoundError as error:
        raise StorageError(
            f"cannot write {path}: there is no folder {folder}", next_step=f"mkdir -p {shlex.quote(folder)}"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=f"ls -ld {folder}") from error
