"""The row of ``aliquot slurm check``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption

CHECK = CliCommand(
    "check",
    "what is wrong with Slurm's files for GPUs: with file and line, the rule's name, and what to do",
    "slurm.check",
    options=(
        CommandOption(
            "--conf-dir",
            help="the folder of slurm.conf, gres.conf, cgroup.conf and helpers.conf; that of SLURM_CONF, else "
            "/etc/slurm, else what a configless slurmd was sent",
            metavar="DIR",
            complete="file",
        ),
        CommandOption(
            "--node-name",
            help="this machine's name in Slurm; its host name if not given",
            metavar="NAME",
            env="SLURMD_NODENAME",
        ),
        CommandOption(
            "--inventory",
            help="the GPUs of another node (aliquot show -o json), FILE or NAME=FILE; repeatable; then this machine's "
            "are not looked at",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--files-only", help="compare with no GPUs at all", kind="flag"),
        CommandOption("--dev-root", help="where /dev is, if elsewhere", metavar="DIR", complete="file"),
        CommandOption("--live", help="ask slurmctld, too: what it has, and whether it has read the files", kind="flag"),
        CommandOption(
            "--script",
            help="also look for wrong steps in a script, a playbook or a page of instructions; repeatable; without "
            "--conf-dir at nothing else",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--slurm-version", help="Slurm's release, if it is not the one here (24.11)", metavar="VERSION"),
        CommandOption("--strict", help="warnings count, too", kind="flag"),
        CommandOption("--fix", help="print nothing but the commands to type", kind="flag"),
        *EVERYWHERE,
    ),
    text="Files are read as Slurm itself reads them, with what they include. An error is what Slurm refuses, or takes "
    "otherwise than it is meant, or what gives a job more than its own; a warning works, and hardly as meant.",
    examples=(
        "aliquot slurm check",
        "aliquot slurm check --live",
        "aliquot slurm check --script change-mig.sh",
        "aliquot slurm check --conf-dir etc/slurm --inventory n1=n1.json --slurm-version 24.11",
    ),
    exits="0 nothing wrong (warnings are told), 30 findings, 2 files that are not there or cannot be read",
)
