"""The rows of ``aliquot metrics`` and ``aliquot usage``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, FORCE, GPUS, NODE, CliCommand, CommandOption, out_option

METRICS = CliCommand(
    "metrics",
    "print or serve metrics for Prometheus",
    "commands.metrics",
    extra="metrics",
    options=(
        CommandOption(
            "--listen",
            help="serve the metrics page at this address instead of printing it once; a port alone listens on loopback",
            metavar="ADDRESS:PORT",
        ),
        out_option(
            "write the page to a file, replaced as a whole, for node_exporter's textfile collector", metavar="FILE.prom"
        ),
        FORCE,
        CommandOption(
            "--every",
            help="with --listen: seconds between two reads of the GPUs",
            metavar="SECONDS",
            default="15",
            number="float",
        ),
        NODE,
    ),
    text="For hosts without an agent. It only reads. Anyone who reaches the address can read the page: it names GPUs "
    "and profiles, never jobs, pods, processes or users. docs/metrics.md explains each metric.",
    examples=(
        "aliquot metrics",
        "aliquot metrics --listen 127.0.0.1:9837",
        "aliquot metrics --out /var/lib/prometheus/node-exporter/aliquot.prom",
    ),
    exits="0 printed or written, 20 the GPUs cannot be read (the page says so, too)",
)


USAGE = CliCommand(
    "usage",
    "show how much each instance is used, and whether a smaller profile would do",
    "commands.usage",
    options=(
        *GPUS,
        CommandOption(
            "--watch-for",
            help="observe for this many seconds, and report the highest values",
            metavar="SECONDS",
            number="float",
        ),
        CommandOption(
            "--dcgm",
            help="the URL of a dcgm-exporter, for the busy time of instances that the driver does not report",
            metavar="URL",
            env="ALIQUOT_DCGM",
        ),
        *EVERYWHERE,
    ),
    text="The idle time and the highest memory use are known if an agent or 'aliquot metrics --listen' watches this "
    "host. The driver reports how busy a GPU instance is from Hopper on; on Ampere only DCGM does. A smaller profile "
    "is named after a day of watching, by memory alone: how fast the workload would run there is not known. "
    "On a host with NVIDIA's vGPU driver, the vGPUs that VMs run with are listed below their GPU, with the state of "
    "the guest's license.",
    examples=("aliquot usage", "aliquot usage 0 --watch-for 60", "aliquot usage -o json"),
)
