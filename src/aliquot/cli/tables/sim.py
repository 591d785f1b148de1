"""The rows of ``aliquot sim``: nodes that behave as GPUs do, on any laptop."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, NODE, OUTPUT, CliCommand, CommandOption

_GPU = CommandOption("gpu", help="a GPU by index, PCI address or UUID", metavar="GPU", complete="gpus", required=True)
_WHERE = CommandOption("instance", help="a GPU instance: its id, or 7/1 for a compute instance", metavar="INSTANCE")
_INSTANCE = CommandOption("instance", help=_WHERE.help, metavar="INSTANCE", required=True)
_FOLDER = CommandOption("folder", help="an empty folder", metavar="FOLDER", required=True)
_PATH = CommandOption("path", help="below /sys, /proc or /dev", metavar="PATH", required=True)

SIM = CliCommand(
    "sim",
    "simulated nodes: rehearse everything without a GPU",
    text="A simulated node refuses what the hardware refuses. ALIQUOT_SIM names the node for every verb; "
    "ALIQUOT_STATE_DIR says where nodes live, so two directories are two worlds.",
    children=(
        CliCommand(
            "start",
            "start a node",
            "commands.sim",
            options=(
                CommandOption(
                    "template",
                    help="PRODUCT[*N],... for example h100-80gb-hbm3*2,a30, or an alias: dgx-a100, dgx-a100-80gb, "
                    "dgx-h100, hgx-h200, hgx-b200; :mdev or :vfio behind PRODUCT gives it the vGPU host driver",
                    metavar="TEMPLATE",
                    complete="templates",
                    required=True,
                ),
                CommandOption("--name", help="the node's name; made from the template if not given", metavar="NAME"),
                CommandOption(
                    "--count",
                    help="start that many alike nodes, numbered NAME-01 and so on",
                    metavar="N",
                    number="int",
                ),
                CommandOption(
                    "--latency",
                    help="answer at once, or as slowly as measured on hardware",
                    choices=("none", "measured"),
                    default="none",
                ),
                CommandOption("--driver", help="the version of its driver", metavar="VERSION"),
                OUTPUT,
            ),
            examples=(
                "aliquot sim start dgx-a100",
                "aliquot sim start a30*2,h100-80gb-hbm3 --name mixed",
                "aliquot sim start dgx-h100 --count 1000 --name gpu",
            ),
        ),
        CliCommand(
            "stop",
            "stop a node",
            "commands.sim",
            options=(
                CommandOption("name", help="the node", metavar="NAME", complete="nodes"),
                CommandOption("--all", help="every node of this state directory", kind="flag"),
                *EVERYWHERE,
            ),
        ),
        CliCommand("list", "the nodes of this state directory", "commands.sim", options=(OUTPUT,)),
        CliCommand(
            "show",
            "the node as the driver sees it, or its log of driver calls",
            "commands.sim",
            options=(
                CommandOption("name", help="the node", metavar="NAME", complete="nodes"),
                CommandOption("--calls", help="every driver call that reached the node", kind="flag"),
                *EVERYWHERE,
            ),
            examples=("aliquot sim show --calls -o json",),
        ),
        CliCommand(
            "hold",
            "put a process on an instance, or on the whole GPU",
            "commands.sim",
            options=(
                _GPU,
                _WHERE,
                CommandOption("--pid", help="the process id to show", metavar="PID", number="int"),
                CommandOption(
                    "--memory", help="how much of the GPU's memory it uses (256)", metavar="MIB", number="int"
                ),
                CommandOption(
                    "--busy",
                    help="the share of multiprocessors that it keeps busy, 0 to 1 (0.5)",
                    metavar="SHARE",
                    number="float",
                ),
                *EVERYWHERE,
            ),
            examples=("aliquot sim hold 0 7", "aliquot sim hold 0 7 --memory 3000 --busy 0.4"),
        ),
        CliCommand(
            "release",
            "end the processes on an instance, or on the whole GPU",
            "commands.sim",
            options=(_GPU, _WHERE, *EVERYWHERE),
        ),
        CliCommand(
            "create",
            "create an instance behind Aliquot's back",
            "commands.sim",
            options=(
                _GPU,
                CommandOption("profile", help="name or id", metavar="PROFILE", complete="profiles", required=True),
                CommandOption(
                    "--start", help="first memory slice; the driver chooses if not given", metavar="N", number="int"
                ),
                CommandOption("--no-compute", help="leave it without a compute instance", kind="flag"),
                *EVERYWHERE,
            ),
        ),
        CliCommand(
            "destroy",
            "destroy an instance behind Aliquot's back",
            "commands.sim",
            options=(_GPU, _INSTANCE, *EVERYWHERE),
        ),
        CliCommand(
            "mode",
            "set MIG mode behind Aliquot's back",
            "commands.sim",
            options=(
                _GPU,
                CommandOption("mode", help="on or off", metavar="MODE", choices=("on", "off"), required=True),
                *EVERYWHERE,
            ),
        ),
        CliCommand("reset", "reset a GPU", "commands.sim", options=(_GPU, *EVERYWHERE)),
        CliCommand(
            "fault",
            "make the hardware misbehave",
            "commands.sim",
            options=(
                CommandOption(
                    "kind",
                    help="busy, reset-pending, lost, half-create, fail, kill, unprivileged, unbind-lock, vf-delay, "
                    "hang, slow, no-effect, version-mismatch, replace-driver, xid; none clears all",
                    metavar="KIND",
                    complete="faults",
                    required=True,
                ),
                CommandOption(
                    "words",
                    help="gpu=0 instance=7 calls=2 seconds=3.5 nth=2 after=2 call=NAME code=999 path=TEXT "
                    "when=after what=compute version=590.44.01, whichever the kind has; sim show --calls shows the "
                    "names of calls",
                    metavar="KEY=VALUE",
                    kind="many",
                ),
                *EVERYWHERE,
            ),
            examples=(
                "aliquot sim fault busy gpu=0 calls=2",
                "aliquot sim fault xid gpu=0 instance=7/0 code=95",
                "aliquot sim fault fail call=SysfsWrite path=current_vgpu_type code=5 nth=3",
                "aliquot sim fault hang call=GpuInstanceDestroy gpu=0",
                "aliquot sim fault none",
            ),
        ),
        CliCommand(
            "reboot",
            "restart the node: instances, virtual functions and vGPUs go, modes as the hardware keeps them",
            "commands.sim",
            options=(
                CommandOption(
                    "--kernel",
                    help="come up in another kernel: vGPUs as mdevs, by vendor-specific VFIO, or no vGPU host driver",
                    choices=("mdev", "vfio", "none"),
                ),
                *EVERYWHERE,
            ),
            examples=("aliquot sim reboot --kernel vfio",),
        ),
        CliCommand(
            "vm",
            "start or stop a virtual machine that has vGPUs or functions open",
            "commands.sim",
            options=(
                CommandOption(
                    "action", help="start or stop", metavar="ACTION", choices=("start", "stop"), required=True
                ),
                CommandOption("machine", help="its name", metavar="NAME", required=True),
                CommandOption(
                    "devices",
                    help="what it opens: PCI addresses of functions, UUIDs of mdevs",
                    metavar="DEVICE",
                    kind="many",
                ),
                *EVERYWHERE,
            ),
            examples=("aliquot sim vm start db 0000:01:00.4", "aliquot sim vm stop db"),
        ),
        CliCommand("read", "read a file of its kernel", "commands.sim", options=(_PATH, *EVERYWHERE)),
        CliCommand(
            "write",
            "write a file of its kernel behind Aliquot's back",
            "commands.sim",
            options=(_PATH, CommandOption("value", help="the text", metavar="VALUE", required=True), *EVERYWHERE),
            examples=("aliquot sim write /sys/bus/pci/devices/0000:01:00.4/nvidia/current_vgpu_type 0",),
        ),
        CliCommand(
            "lib",
            "the path of the node's libnvidia-ml.so.1, for other NVML programs",
            "commands.sim",
            options=EVERYWHERE,
            examples=("LD_LIBRARY_PATH=$(dirname $(aliquot sim lib)) nvitop -1",),
        ),
        CliCommand(
            "tools",
            "the folder of the node's nvidia-smi, for PATH; a vGPU host has ../lib/nvidia/sriov-manage beside it",
            "commands.sim",
            options=EVERYWHERE,
            examples=("PATH=$(aliquot sim tools):$PATH nvidia-smi mig -lgip",),
        ),
        CliCommand(
            "mount",
            "mount the node's /sys, /proc and /dev below a folder, for programs that know nothing of a simulator",
            "commands.sim",
            options=(_FOLDER, *EVERYWHERE),
            text="It ends with the node, or with umount. Needs FUSE: pip install 'aliquot[mount]' and apt-get install "
            "fuse3.",
            examples=("aliquot sim mount /mnt/lab",),
        ),
        CliCommand(
            "umount",
            "take such a mount away",
            "commands.sim",
            options=(_FOLDER, OUTPUT),
            examples=("aliquot sim umount /mnt/lab",),
        ),
    ),
    options=(NODE,),
    examples=("aliquot sim start dgx-a100", "aliquot sim hold 0 7 --node dgx-a100"),
)
