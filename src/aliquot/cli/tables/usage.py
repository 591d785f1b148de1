"""The row of ``aliquot usage``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption

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
