"""Run a verb with shorter pauses between its polls: ``python -m laws.soak.hurried VERB ...``.

A soak test does in seconds what these processes do in an hour. Only the pauses differ from the installed program.
"""

from __future__ import annotations

from aliquot.cli.main import program
from aliquot.dashboard.local import fleet_poller, node_poller
from aliquot.metrics.host_exporter import HostExporter

TIMES = 20
"""Factor by which the pauses are shorter. The page polls without viewers as often as with them."""
PAUSES = {node_poller: ("WATCHED_S", "USAGE_S", "SAMPLE_S"), fleet_poller: ("EMPTY_S", "FILES_S")}


def hurry() -> None:
    """Shorten the pauses of the metrics server and of the pages over local nodes."""
    start = HostExporter.start

    def quick(host: HostExporter, every_s: float) -> None:
        start(host, every_s / TIMES)

    setattr(HostExporter, "start", quick)  # noqa: B010 - a method, which may not be assigned
    for module, names in PAUSES.items():
        for name in names:
            setattr(module, name, getattr(module, name) / TIMES)
    node_poller.UNWATCHED_S, fleet_poller.FILES_UNWATCHED_S = node_poller.WATCHED_S, fleet_poller.FILES_S


if __name__ == "__main__":
    hurry()
    program()
