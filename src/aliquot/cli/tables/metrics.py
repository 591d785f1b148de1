"""The row of ``aliquot metrics``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import FORCE, NODE, CliCommand, CommandOption

METRICS = CliCommand(
    "metrics",
    "figures for Prometheus: GPUs, instances, holes, drift, memory in use",
    "commands.metrics",
    options=(
        CommandOption(
            "--listen",
            help="serve the page there instead of printing it once; a port alone is on loopback",
            metavar="ADDRESS:PORT",
        ),
        CommandOption(
            "--out",
            help="write the page to a file, replaced whole, for node_exporter's textfile collector",
            metavar="FILE.prom",
            complete="file",
        ),
        FORCE,
        CommandOption(
            "--every",
            help="with --listen: seconds between two looks at the GPUs",
            metavar="SECONDS",
            default="15",
            number="float",
        ),
        NODE,
    ),
    text="For hosts that no agent runs on. It reads, and changes nothing. The page is open to whoever reaches the "
    "address: it names GPUs and profiles, never jobs, pods, processes or people. docs/metrics.md explains every name.",
    examples=(
        "aliquot metrics",
        "aliquot metrics --listen 127.0.0.1:9837",
        "aliquot metrics --out /var/lib/prometheus/node-exporter/aliquot.prom",
    ),
    exits="0 printed or written, 20 the GPUs cannot be read (the page says so, too)",
)
