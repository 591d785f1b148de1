"""The rows of ``aliquot slurm`` that write Slurm's files, and those that Slurm's own scripts call."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, GPU, OUTPUT, CliCommand, CommandOption

NODE_NAME = CommandOption(
    "--node-name",
    help="the node's name in Slurm; this machine's host name if not given",
    metavar="NAME",
    env="SLURMD_NODENAME",
)
TYPE_STYLE = CommandOption(
    "--type-style",
    help="how GRES types are named: short (a100_3g.20gb), full (nvidia_a100_3g.20gb, as Slurm's NVML plugin says it), "
    "profile (3g.20gb)",
    choices=("short", "full", "profile"),
    default="short",
)
_DIR = CommandOption(
    "--dir",
    help="dcgm-exporter's --hpc-job-mapping-dir; /run/aliquot/dcgm-jobs if not given",
    metavar="DIR",
    complete="file",
    env="DCGM_HPC_JOB_MAPPING_DIR",
)
_SCRIPT = (NODE_NAME, _DIR, OUTPUT)

RENDER = CliCommand(
    "render",
    "gres.conf, node lines and what goes with them, for what the GPUs are now",
    "slurm.render",
    options=(
        CommandOption(
            "inventories",
            help="inventory files (aliquot show -o json) of other nodes, FILE or NAME=FILE; this machine if none",
            kind="many",
            metavar="INVENTORY",
            complete="file",
        ),
        NODE_NAME,
        GPU,
        TYPE_STYLE,
        CommandOption(
            "--autodetect",
            help="none: a line for each device; off: the same where gres.conf has a global AutoDetect; nvml, nvidia, "
            "full: slurmd finds them by itself",
            choices=("none", "off", "nvml", "nvidia", "full"),
            default="none",
        ),
        CommandOption(
            "--env",
            help="what jobs get: nvidia (CUDA_VISIBLE_DEVICES alone), uuid (with UUIDs; 26.05 and AutoDetect), none, "
            "all (every vendor's variable)",
            choices=("nvidia", "uuid", "none", "all"),
            default="nvidia",
        ),
        CommandOption(
            "--cores",
            help="auto: Cores= where the cores near a GPU are whole sockets; near: whatever is near; none",
            choices=("auto", "near", "none"),
            default="auto",
        ),
        CommandOption(
            "--fence",
            help="auto: keep jobs from nvidia-cap1 and nvidia-cap2 and from GPUs that this node does not offer, by a "
            "GRES that nobody is given (nic); never",
            choices=("auto", "never"),
            default="auto",
        ),
        CommandOption("--feature", help="a static feature of the node; repeatable", kind="repeat", metavar="NAME"),
        CommandOption("--task-prolog", help="the TaskProlog to name in slurm.conf", metavar="FILE", complete="file"),
        CommandOption("--dev-root", help="where /dev is, if elsewhere", metavar="DIR", complete="file"),
        CommandOption("--slurm-version", help="slurmd's release, if it is not the one here (24.11)", metavar="VERSION"),
        CommandOption(
            "--slurmd", help="the command line of slurmd", metavar="COMMAND", default="slurmd", env="ALIQUOT_SLURMD"
        ),
        CommandOption(
            "--check",
            help="let slurmd read the lines (slurmd -G on a copy): auto where it is installed, always, never",
            choices=("auto", "always", "never"),
            default="auto",
        ),
        CommandOption(
            "--part",
            help="only this: gres (gres.conf), slurm (slurm.conf's keys and nodes), nodes (node lines alone), cgroup "
            "(cgroup.conf), dynamic (options of a slurmd that registers itself)",
            choices=("gres", "slurm", "nodes", "cgroup", "dynamic"),
        ),
        CommandOption(
            "--number",
            help="also keep Slurm's numbers of the devices below /run/aliquot/slurm, for task-prolog and dcgm",
            kind="flag",
        ),
        CommandOption(
            "--make-devices",
            help="first make the device nodes that the lines name and that are missing, as after a boot: slurmd does "
            "not start without them",
            kind="flag",
        ),
        *EVERYWHERE,
    ),
    text="Each GPU is counted once: by its MIG devices where MIG mode is on, else whole; not at all where a virtual "
    "machine has it. Nothing is written but with --number and --make-devices: 'aliquot slurm apply' changes files.",
    examples=(
        "aliquot slurm render",
        "aliquot slurm render --part gres --autodetect off",
        "aliquot slurm render n1.json n2.json --slurm-version 24.11",
    ),
    exits="0, 20 where a device cannot be named safely, the release cannot do it, or slurmd reads it otherwise",
)

TASK_PROLOG = CliCommand(
    "task-prolog",
    "for TaskProlog: exports the UUIDs of the task's MIG devices",
    "slurm.job_hooks",
    options=(NODE_NAME, OUTPUT),
    text="Slurm numbers GRES; CUDA wants the UUID of a MIG device. deploy/slurm/task-prolog.sh calls it. With "
    "AutoDetect Slurm exports UUIDs by itself, and this says nothing.",
    examples=("aliquot slurm task-prolog",),
    exits="0, also where it can say nothing",
)

DCGM = CliCommand(
    "dcgm",
    "which job is on which GPU, for dcgm-exporter's --hpc-job-mapping-dir",
    text="deploy/slurm/prolog.sh and epilog.sh call begin and end. Slurm tells a Prolog one type of a job that has "
    "several: a timer that calls refresh adds the others.",
    children=(
        CliCommand(
            "begin",
            "for Prolog: the job has these GPUs now",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm begin",),
        ),
        CliCommand(
            "end",
            "for Epilog: the job is over",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm end",),
        ),
        CliCommand(
            "refresh",
            "make it what the jobs' processes say: for jobs with several GRES types, and those whose Epilog never ran",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm refresh",),
        ),
        CliCommand(
            "list",
            "the jobs on each GPU and GPU instance, as the exporter is told",
            "slurm.job_hooks",
            options=_SCRIPT,
            examples=("aliquot slurm dcgm list",),
        ),
    ),
    examples=("aliquot slurm dcgm list",),
)
