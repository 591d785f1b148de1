"""``aliquot metrics``: the metrics of this host's GPUs, printed once or served over HTTP."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import file_output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError
from aliquot.foundation.process_end import leave_if_hung

if TYPE_CHECKING:
    from aliquot.metrics.host_exporter import HostExporter

START_S = 5.0
"""How long serving waits for the first sample: Prometheus waits 10 s by default."""
LATER_S = 3600.0
POLL_S = 0.1


def run(args: Args) -> int:
    """Print, write or serve the page."""
    if not 1 <= args.every <= 3600:
        raise UsageError(
            f"--every {args.every:g} is not between 1 and 3600 seconds", next_step="aliquot metrics --help"
        )
    path = file_output.target(args)
    if args.listen is not None and args.out is not None:
        raise UsageError("--listen and --out exclude each other", next_step="aliquot metrics --help")
    require_library()
    from aliquot.metrics.host_exporter import HostExporter

    host = HostExporter(args.sim, args.sim or socket.gethostname(), lambda: node.connected(args), streams.note)
    return _serve(host, args) if args.listen is not None else _once(host, path, args)


def require_library() -> None:
    """Raise UsageError if the library that writes pages is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_library(error, "metrics", "the metrics page") from error


def _once(host: HostExporter, path: str, args: Args) -> int:
    """Collect one sample. Print the page also after a failure, which it reports: an old page would look current."""
    if not path:
        host.observe()
        host.close()
        streams.result(host.page.text().decode(), end="")
    else:
        from aliquot.cli.framework import owned_files

        owned_files.check(path, force=args.force)
        host.start(every_s=LATER_S)
        _wait_first_sample(host, LATER_S)
        host.close()
        # All users can read it, because node_exporter is another one.
        owned_files.replace(path, host.page.text(), mode=0o644)
    error = host.error
    if error is None:
        return 0
    failure.report(error, "text", args.typed_node)
    leave_if_hung(error.exit_code, streams.error)
    return error.exit_code


def _wait_first_sample(host: HostExporter, seconds: float, stop: threading.Event | None = None) -> None:
    """Wait for the first sample, until a driver call hangs, ``stop`` is set or ``seconds`` have passed."""
    end = time.monotonic() + seconds
    while not host.observed.wait(POLL_S) and time.monotonic() < end:
        if host.hangs() or (stop is not None and stop.is_set()):
            return


def _serve(host: HostExporter, args: Args) -> int:
    """Serve until SIGTERM, SIGHUP or Ctrl-C. A driver that does not answer keeps a client from the page only for a
    few seconds.
    """
    from contextlib import ExitStack

    from aliquot.foundation.http_server import HttpServer
    from aliquot.foundation.signals import stop_on_signal
    from aliquot.metrics.listen_address import LOCAL_STEP, parse_listen_address

    tune_gc()
    stop = threading.Event()
    server = HttpServer(host.page.pages(), *parse_listen_address(args.listen), LOCAL_STEP)
    ending = ExitStack()
    try:
        ending.enter_context(stop_on_signal(stop.set))
        host.start(args.every)
        _wait_first_sample(host, START_S, stop)
        server.start()
        streams.note(f"metrics for Prometheus on http://{server.display_address}/metrics")
        stop.wait()
    finally:
        server.close()
        host.close()
        leave_if_hung(0, streams.error)
        ending.close()
    return 0
