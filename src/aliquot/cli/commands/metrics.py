"""``aliquot metrics``: the figures of this machine's GPUs, once or for as long as it runs."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.long_running import lasts
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.metrics.host_exporter import Host


def run(args: Args) -> int:
    """Prints, writes or serves the page."""
    if not 1 <= args.every <= 3600:
        raise UsageError(
            f"--every {args.every:g} is not between 1 and 3600 seconds", next_step="aliquot metrics --help"
        )
    if args.listen is not None and args.out is not None:
        raise UsageError("--listen and --out: one or the other", next_step="aliquot metrics --help")
    library()
    from aliquot.metrics.host_exporter import Host

    host = Host(args.node, args.node or socket.gethostname(), lambda: node.connected(args), streams.note)
    return _serve(host, args) if args.listen is not None else _once(host, args)


def library() -> None:
    """Raises UsageError where the library that writes pages is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed: figures for Prometheus need it",
            next_step="pip install 'aliquot[metrics]', or in a checkout: pip install '.[metrics]'",
        ) from error


def _once(host: Host, args: Args) -> int:
    """One look. Where it fails, the page that says so is still printed: an old one would look like the truth."""
    host.look()
    host.close()
    text = host.page.text()
    if args.out is None:
        streams.result(text.decode(), end="")
    else:
        from aliquot.metrics.textfile import replace

        replace(args.out, text)
    error = host.trouble
    if error is None:
        return 0
    failure.report(error, "text", args.typed_node)
    return error.exit_code


def _serve(host: Host, args: Args) -> int:
    """Serve until SIGTERM, SIGHUP or Ctrl-C."""
    import threading
    from contextlib import ExitStack

    from aliquot.foundation.signals import asked_to_end
    from aliquot.metrics.http_server import Server
    from aliquot.metrics.listen import place

    lasts()
    stop = threading.Event()
    server = Server(host.page, *place(args.listen))
    ending = ExitStack()
    try:
        ending.enter_context(asked_to_end(stop.set))
        host.look()
        if host.trouble is not None:
            streams.note(f"the GPUs cannot be read now: {host.trouble.brief}")
        host.start(args.every)
        server.start()
        streams.note(f"figures for Prometheus on http://{server.shown}/metrics")
        stop.wait()
    finally:
        server.close()
        host.close()
        ending.close()
    return 0
