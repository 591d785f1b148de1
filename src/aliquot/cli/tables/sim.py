"""The rows of ``aliquot sim``: simulated nodes that behave like hardware, on any laptop."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, NODE, OUTPUT, CliCommand, CommandOption

_GPU = CommandOption("gpu", help="a GPU by index, PCI address or UUID", metavar="GPU", complete="gpus", required=True)
_WHERE = CommandOption("instance", help="a GPU instance: its id, or 7/1 for a compute instance", metavar="INSTANCE")
_INSTANCE = CommandOption("instance", help=_WHERE.help, metavar="INSTANCE", required=True)
_FOLDER = CommandOption("folder", help="an empty directory", metavar="FOLDER", required=True)
_PATH = CommandOption("path", help="a path below /sys, /proc or /dev", metavar="PATH", required=True)

SIM = CliCommand(
    "sim",
    "simulate nodes with GPUs, to try every verb without hardware",
    text="A simulated node refuses what the hardware refuses. ALIQUOT_SIM names the node for every verb. "
    "ALIQUOT_STATE_DIR is the directory of the nodes: two directories have separate nodes.",
    children=(
        CliCommand(
            "start",
            "start a node",
            "commands.sim",
            options=(
                CommandOption(
                    "template",
                    help="PRODUCT[*N],... for example h100-80gb-hbm3*2,a30, or an alias: dgx-a100, dgx-a100-80gb, "
                    "dgx-h100, hgx-h200, hgx-b200; PRODUCT:mdev or PRODUCT:vfio has the vGPU host driver",
                    metavar="TEMPLATE",
                    complete="templates",
                    required=True,
                ),
                CommandOption("--name", help="the name of the node; by default made from the template", metavar="NAME"),
                CommandOption(
                    "--count",
                    help="start N equal nodes, named NAME-01 and so on",
                    metavar="N",
                    number="int",
                ),
                CommandOption(
                    "--latency",
                    help="the latency of driver calls: none, or as measured on hardware",
                    choices=("none", "measured"),
                    default="none",
                ),
                CommandOption("--driver", help="the driver version", metavar="VERSION"),
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
                CommandOption("name", help="the name of a node", metavar="NAME", complete="nodes"),
                CommandOption("--all", help="stop every node of this state directory", kind="flag"),
                *EVERYWHERE,
            ),
        ),
        CliCommand("list", "list the nodes of this state directory", "commands.sim", options=(OUTPUT,)),
        CliCommand(
            "show",
            "show a node as the driver sees it, or its log of driver calls",
            "commands.sim",
            options=(
                CommandOption("name", help="the name of a node", metavar="NAME", complete="nodes"),
                CommandOption("--calls", help="list every driver call that reached the node", kind="flag"),
                *EVERYWHERE,
            ),
            examples=("aliquot sim show --calls -o json",),
        ),
        CliCommand(
            "hold",
            "start a process on an instance, or on the whole GPU",
            "commands.sim",
            options=(
                _GPU,
                _WHERE,
                CommandOption("--pid", help="the process id", metavar="PID", number="int"),
                CommandOption(
                    "--memory",
                    help="the GPU memory that the process uses, in MiB; 256 by default",
                    metavar="MIB",
                    number="int",
                ),
                CommandOption(
                    "--busy",
                    help="the share of multiprocessors that the process keeps busy, 0 to 1; 0.5 by default",
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
            "create an instance as another program would",
            "commands.sim",
            options=(
                _GPU,
                CommandOption(
                    "profile", help="the name or id of a profile", metavar="PROFILE", complete="profiles", required=True
                ),
                CommandOption(
                    "--start", help="the first memory slice; by default the driver chooses", metavar="N", number="int"
                ),
                CommandOption("--no-compute", help="create no compute instance in it", kind="flag"),
                *EVERYWHERE,
            ),
        ),
        CliCommand(
            "destroy",
            "destroy an instance as another program would",
            "commands.sim",
            options=(_GPU, _INSTANCE, *EVERYWHERE),
        ),
        CliCommand(
            "mode",
            "set MIG mode as another program would",
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
            "inject a fault into the hardware",
            "commands.sim",
            options=(
                CommandOption(
                    "kind",
                    help="busy, reset-pending, lost, half-create, fail, kill, unprivileged, unbind-lock, vf-delay, "
                    "hang, slow, no-effect, version-mismatch, replace-driver or xid; none clears all faults",
                    metavar="KIND",
                    complete="faults",
                    required=True,
                ),
                CommandOption(
                    "words",
                    help="gpu=0 instance=7 calls=2 seconds=3.5 nth=2 after=2 call=NAME code=999 path=TEXT when=after "
                    "what=compute version=590.44.01, as the kind of fault allows; 'aliquot sim show --calls' lists "
                    "the names of calls",
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
            "restart the node: instances, virtual functions and vGPUs are lost, and modes as on hardware",
            "commands.sim",
            options=(
                CommandOption(
                    "--kernel",
                    help="boot another kernel: vGPUs as mdevs, by vendor-specific VFIO, or no vGPU host driver",
                    choices=("mdev", "vfio", "none"),
                ),
                *EVERYWHERE,
            ),
            examples=("aliquot sim reboot --kernel vfio",),
        ),
        CliCommand(
            "vm",
            "start or stop a VM that holds vGPUs or virtual functions",
            "commands.sim",
            options=(
                CommandOption(
                    "action", help="start or stop", metavar="ACTION", choices=("start", "stop"), required=True
                ),
                CommandOption("machine", help="the name of the VM", metavar="NAME", required=True),
                CommandOption(
                    "devices",
                    help="PCI addresses of virtual functions, or UUIDs of mdevs, that the VM opens",
                    metavar="DEVICE",
                    kind="many",
                ),
                *EVERYWHERE,
            ),
            examples=("aliquot sim vm start db 0000:01:00.4", "aliquot sim vm stop db"),
        ),
        CliCommand(
            "usb",
            "plug a USB device in or out",
            "commands.sim",
            options=(
                CommandOption(
                    "action", help="plug or unplug", metavar="ACTION", choices=("plug", "unplug"), required=True
                ),
                CommandOption(
                    "device",
                    help="vendor and product id of the device to plug in, or the file of the one to unplug",
                    metavar="IDS|FILE",
                    required=True,
                ),
                CommandOption("--product", help="the name that the device reports", metavar="NAME", default=""),
                *EVERYWHERE,
            ),
            examples=("aliquot sim usb plug 0951:1666", "aliquot sim usb unplug /dev/bus/usb/001/002"),
        ),
        CliCommand("read", "read a file of the node's kernel", "commands.sim", options=(_PATH, *EVERYWHERE)),
        CliCommand(
            "write",
            "write a file of the node's kernel as another program would",
            "commands.sim",
            options=(
                _PATH,
                CommandOption("value", help="the text to write", metavar="VALUE", required=True),
                *EVERYWHERE,
            ),
            examples=("aliquot sim write /sys/bus/pci/devices/0000:01:00.4/nvidia/current_vgpu_type 0",),
        ),
        CliCommand(
            "lib",
            "print the path of the node's libnvidia-ml.so.1, for other NVML programs",
            "commands.sim",
            options=EVERYWHERE,
            examples=("LD_LIBRARY_PATH=$(dirname $(aliquot sim lib)) nvitop -1",),
        ),
        CliCommand(
            "tools",
            "print the directory of the node's nvidia-smi, for PATH; a vGPU host also has ../lib/nvidia/sriov-manage",
            "commands.sim",
            options=EVERYWHERE,
            examples=("PATH=$(aliquot sim tools):$PATH nvidia-smi mig -lgip",),
        ),
        CliCommand(
            "mount",
            "mount the node's /sys, /proc and /dev below a directory, for other programs",
            "commands.sim",
            options=(_FOLDER, *EVERYWHERE),
            text="The mount ends with the node, or with 'aliquot sim umount'. It needs FUSE: apt-get install fuse3.",
            extra="mount",
            examples=("aliquot sim mount /mnt/lab",),
        ),
        CliCommand(
            "umount",
            "remove such a mount",
            "commands.sim",
            options=(_FOLDER, OUTPUT),
            examples=("aliquot sim umount /mnt/lab",),
        ),
    ),
    options=(NODE,),
    examples=("aliquot sim start dgx-a100", "aliquot sim hold 0 7 --sim dgx-a100"),
)
