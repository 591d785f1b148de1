"""Command table of ``aliquot slurm`` for rendering Slurm's files, and for Slurm's own scripts."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, GPU, OUTPUT, CliCommand, CommandOption

NODE_NAME = CommandOption(
    "--node-name",
    help="the node's name in Slurm; default: this host's name",
    metavar="NAME",
    env="SLURMD_NODENAME",
)
TYPE_STYLE = CommandOption(
    "--type-style",
    help="names of GRES types: short (a100_3g.20gb), full (nvidia_a100_3g.20gb, as in Slurm's NVML plugin), "
    "profile (3g.20gb)",
    choices=("short", "full", "profile"),
    default="short",
)
_DIR = CommandOption(
    "--dir",
    help="dcgm-exporter's --hpc-job-mapping-dir; default: /run/aliquot/dcgm-jobs",
    metavar="DIR",
    complete="file",
    env="DCGM_HPC_JOB_MAPPING_DIR",
)
_SCRIPT = (NODE_NAME, _DIR, OUTPUT)

RENDER = CliCommand(
    "render",
    "render gres.conf, node lines and related settings for the current GPUs",
    "slurm.render",
    options=(
        CommandOption(
            "inventories",
            help="inventory files (aliquot show -o json) of other nodes, FILE or NAME=FILE; default: this host",
            kind="many",
            metavar="INVENTORY",
            complete="file",
        ),
        NODE_NAME,
        GPU,
        TYPE_STYLE,
        CommandOption(
            "--autodetect",
            help="none: a line for each device; off: the same if gres.conf has a global AutoDetect; nvml, nvidia, "
            "full: slurmd detects them",
            choices=("none", "off", "nvml", "nvidia", "full"),
            default="none",
        ),
        CommandOption(
            "--env",
            help="variables of jobs: nvidia (only CUDA_VISIBLE_DEVICES), uuid (with UUIDs; 26.05 and AutoDetect), "
            "none, all (every vendor's variable)",
            choices=("nvidia", "uuid", "none", "all"),
            default="nvidia",
        ),
        CommandOption(
            "--cores",
            help="auto: Cores= if the cores near a GPU are whole sockets; near: all near cores; none",
            choices=("auto", "near", "none"),
            default="auto",
        ),
        CommandOption(
            "--fence",
            help="auto: deny jobs access to nvidia-cap1, nvidia-cap2 and GPUs that this node does not offer, through a "
            "GRES that no job gets (nic); never",
            choices=("auto", "never"),
            default="auto",
        ),
        CommandOption("--feature", help="a static feature of the node; repeatable", kind="repeat", metavar="NAME"),
        CommandOption("--task-prolog", help="the TaskProlog to name in slurm.conf", metavar="FILE", complete="file"),
        CommandOption("--dev-root", help="directory that contains dev, if not /", metavar="DIR", complete="file"),
        CommandOption(
            "--slurm-version", help="slurmd's release, if it differs from this host's (24.11)", metavar="VERSION"
        ),
        CommandOption(
            "--slurmd", help="the command that runs slurmd", metavar="COMMAND", default="slurmd", env="ALIQUOT_SLURMD"
        ),
        CommandOption(
            "--check",
            help="validate the lines with slurmd (slurmd -G on a copy): auto if it is installed, always, never",
            choices=("auto", "always", "never"),
            default="auto",
        ),
        CommandOption(
            "--part",
            help="print only: gres (gres.conf), slurm (slurm.conf's keys and nodes), nodes (only node lines), "
            "cgroup (cgroup.conf), dynamic (options of a slurmd that registers itself)",
            choices=("gres", "slurm", "nodes", "cgroup", "dynamic"),
        ),
        CommandOption(
            "--number",
            help="also store Slurm's numbers of the devices in /run/aliquot/slurm, for task-prolog and dcgm",
            kind="flag",
        ),
        CommandOption(
            "--make-devices",
            help="first create missing device nodes of the lines, for example after a boot: slurmd does not start "
            "without them",
            kind="flag",
        ),
        *EVERYWHERE,
    ),
    text="Each GPU is counted once: by its MIG devices if MIG mode is on, else whole; not at all if a VM uses it. Only "
    "--number and --make-devices write anything: 'aliquot slurm apply' changes files.",
    examples=(
        "aliquot slurm render",
        "aliquot slurm render --part gres --autodetect off",
        "aliquot slurm render n1.json n2.json --slurm-version 24.11",
    ),
    exits="0 done, 20 a device cannot be named safely, the release lacks support, or slurmd reads it differently",
)

TASK_PROLOG = CliCommand(
    "task-prolog",
    "for TaskProlog: export the UUIDs of the task's MIG devices",
    "slurm.job_hooks",
    options=(NODE_NAME, OUTPUT),
    text="Slurm numbers GRES, but CUDA needs the UUID of a MIG device. deploy/slurm/task-prolog.sh calls it. With "
    "AutoDetect, Slurm itself exports UUIDs, and this prints nothing.",
    examples=("aliquot slurm task-prolog",),
    exits="0 always, even if the devices are unknown",
)

DCGM = CliCommand(
    "dcgm",
    "map jobs to GPUs for dcgm-exporter's --hpc-job-mapping-dir",
    text="deploy/slurm/prolog.sh and epilog.sh call begin and end. Slurm passes a Prolog only one type of a job that "
    "has several. A timer that calls refresh adds the others.",
    children=(
        CliCommand(
            "begin",
            "for Prolog: record the GPUs of the job",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm begin",),
        ),
        CliCommand(
            "end",
            "for Epilog: record the end of the job",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm end",),
        ),
        CliCommand(
            "refresh",
            "update the mapping from processes: for jobs with several GRES types, or whose Epilog did not run",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm refresh",),
        ),
        CliCommand(
            "list",
            "list the jobs on each GPU and GPU instance, as the exporter reads them",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm list",),
        ),
    ),
    examples=("aliquot slurm dcgm list",),
)
