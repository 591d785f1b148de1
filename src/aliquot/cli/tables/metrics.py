"""The rows of ``aliquot metrics`` and ``aliquot usage``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, FORCE, NODE, CliCommand, CommandOption

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


USAGE = CliCommand(
    "usage",
    "what the pieces of each GPU are used for: memory, computing, idle since when, and whether a smaller one would do",
    "commands.usage",
    options=(
        CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus"),
        CommandOption(
            "--watch-for",
            help="look again and again for so long, and tell the most that was seen",
            metavar="SECONDS",
            number="float",
        ),
        CommandOption(
            "--dcgm",
            help="the page of a dcgm-exporter, which knows how busy instances are where the driver does not say",
            metavar="URL",
            env="ALIQUOT_DCGM",
        ),
        *EVERYWHERE,
    ),
    text="Since when something is idle, and the most of its memory that was in use, is known where an agent or "
    "'aliquot metrics --listen' watches this machine. How busy a GPU instance is the driver tells from Hopper on; "
    "on Ampere only DCGM does. A smaller profile is named after a day of watching, by memory alone: how fast work "
    "would be there nobody knows.",
    examples=("aliquot usage", "aliquot usage 0 --watch-for 60", "aliquot usage -o json"),
)
