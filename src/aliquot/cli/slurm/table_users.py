"""Command table of ``aliquot slurm`` for the users of a cluster, and for those who account for them."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUT, OUTPUT, CliCommand, CommandOption

SETTINGS = "/etc/aliquot/slurm.yaml"

TYPES = CliCommand(
    "types",
    "show the GPU types that jobs can request here: total, free now and soon, possible on demand",
    "slurm.types",
    options=(
        CommandOption(
            "type", help="only this type, in any spelling (3g.20gb); names the nearest types if it does not exist"
        ),
        CommandOption(
            "-f",
            "--file",
            help=f"the controller's settings, which restrict layouts on demand; default: {SETTINGS} if it exists",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--list", help="print one line for each type of each partition, as job_submit.lua reads them", kind="flag"
        ),
        *OUT,
        OUTPUT,
    ),
    text="Needs no special rights. With PrivateData, Slurm hides nodes or other users' jobs, and their devices have no "
    "known end. 'free' counts devices on nodes that take jobs and have an idle CPU; 'free soon' follows the time "
    "limits of running jobs.",
    examples=(
        "aliquot slurm types",
        "aliquot slurm types 3g.20gb",
        "aliquot slurm types --list --out /etc/slurm/aliquot-types",
    ),
    exits="0 done, 20 no such type here, or Slurm does not answer",
)

WEIGHTS = CliCommand(
    "weights",
    "print TRESBillingWeights for partitions with MIG devices, by their part of a GPU",
    "slurm.weights",
    options=(
        CommandOption(
            "partitions", help="partitions; default: all that have MIG devices", kind="many", metavar="PARTITION"
        ),
        CommandOption(
            "--whole",
            help="weight of a whole GPU; default: the partition's weight of GRES/gpu, else 100",
            metavar="NUMBER",
            number="float",
        ),
        CommandOption(
            "--conf-dir",
            help="directory of slurm.conf; default: that of SLURM_CONF, else /etc/slurm",
            metavar="DIR",
            complete="file",
        ),
        OUTPUT,
    ),
    text="A weight is the larger of the device's shares of memory slices and of compute slices. Slurm counts TRES only "
    "with slurmdbd, and only those in AccountingStorageTRES: slurmctld does not start with weights of others. Prints "
    "lines for slurm.conf and changes nothing.",
    examples=("aliquot slurm weights", "aliquot slurm weights main --whole 8"),
    exits="0 done, 20 no slurmdbd, no such partition, or Slurm does not answer",
)

REPORT = CliCommand(
    "report",
    "report what jobs requested and used, by GPU type, and which smaller type would do",
    "slurm.report",
    options=(
        CommandOption(
            "--since",
            help="begin of the time window, which ends now: a length (30min, 12h, 7d, 4w) or a date (2026-11-01)",
            metavar="WHEN",
            default="7d",
        ),
        CommandOption("--user", help="only jobs of these users, with commas between", metavar="NAMES"),
        CommandOption("--partition", help="only jobs in these partitions", metavar="NAMES"),
        CommandOption("--account", help="only jobs of these accounts", metavar="NAMES"),
        CommandOption(
            "--prometheus",
            help="URL of the Prometheus that scrapes dcgm-exporter, for the memory and compute that jobs used",
            metavar="URL",
            env="ALIQUOT_PROMETHEUS",
        ),
        CommandOption(
            "--prometheus-token-file",
            help="a file with the bearer token that the Prometheus wants",
            metavar="FILE",
            complete="file",
            env="ALIQUOT_PROMETHEUS_TOKEN_FILE",
        ),
        CommandOption(
            "--prometheus-label",
            help="use only metrics with this label, if the Prometheus has several clusters; repeatable",
            kind="repeat",
            metavar="NAME=VALUE",
        ),
        OUTPUT,
    ),
    text="Reads Slurm's accounting, and changes nothing. A wait begins when the job could have started. GPU-hours are "
    "the device-hours times the billing share of 'aliquot slurm weights'. 'would do' names the smallest profile that "
    "holds the memory peak of a job, and the compute if it was measured. 'aliquot slurm dcgm' puts the job ids into "
    "the metrics of dcgm-exporter. Without them, Slurm's own gres/gpumem is used if it is there.",
    examples=(
        "aliquot slurm report",
        "aliquot slurm report --since 4w --account physics",
        "aliquot slurm report --prometheus http://127.0.0.1:9090 -o json",
    ),
    exits="0 done, 20 no slurmdbd, no such user or partition, or Slurm does not answer",
)

USERS = (TYPES, WEIGHTS, REPORT)
