"""The rows of ``aliquot libvirt``: virtual machines and the vGPUs and GPUs that they have."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, GPU, NODE, CliCommand, CommandOption

_CONNECT = CommandOption(
    "--connect",
    help="libvirt's URI",
    metavar="URI",
    default="qemu:///system",
    env="LIBVIRT_DEFAULT_URI",
)
_VM = CommandOption("vm", help="the VM's name or UUID", metavar="VM", required=True)
_DEVICES = CommandOption(
    "devices",
    help="by name: a vGPU's UUID, a virtual function, or a GPU to hand out whole (index, PCI address, UUID, product)",
    kind="many",
    metavar="DEVICE",
    complete="gpus",
)
_VGPU = CommandOption(
    "--vgpu",
    help="vGPUs by type, any that are free: A2-4Q, 'NVIDIA A2-4Q*2', A2-4Q:2; repeatable",
    kind="repeat",
    metavar="TYPE",
    complete="types",
)
_COUNT = CommandOption("--count", help="how many of each --vgpu", metavar="N", number="int")
_RAMFB = CommandOption(
    "--ramfb",
    help="auto: a boot display (ramFB) on exactly one vGPU of the VM; none: on none",
    choices=("auto", "none"),
    default="auto",
)
_MULTI = CommandOption(
    "--multi",
    help="which vGPUs may be several in one VM: what NVIDIA supports, or whatever the driver takes",
    choices=("nvidia", "driver"),
    default="nvidia",
)
_CONFIG = CommandOption(
    "--config", help="change the VM's definition: it holds from its next start on (the default)", kind="flag"
)
_LIVE = CommandOption("--live", help="plug it into the running VM, or out of it", kind="flag")
_DRY_RUN = CommandOption("--dry-run", help="say what would be done, with the XML, and touch nothing", kind="flag")
_WHICH = CommandOption(
    "mdevs",
    help="by UUID or virtual function; all of the node if none",
    kind="many",
    metavar="MDEV",
)

_NODEDEV = CliCommand(
    "nodedev",
    "vGPUs that libvirt itself starts again after a reboot (mdevs; needs mdevctl)",
    text="A definition outlives a reboot. With autostart the vGPU is made as soon as the function that carries it "
    "appears, its UUID the same. MIG-backed vGPUs need their GPU instance first, which only 'aliquot restore --boot' "
    "makes. With vendor-specific VFIO there are no mdevs: 'aliquot restore --boot' is the only way there.",
    children=(
        CliCommand(
            "list",
            "the mdevs of the node, those that a reboot took among them, and what libvirt has of each",
            "libvirt.nodedev",
            options=(_CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev list",),
        ),
        CliCommand(
            "define",
            "give mdevs a definition that outlives a reboot",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev define",),
        ),
        CliCommand(
            "start",
            "make defined mdevs that are not there",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev start",),
        ),
        CliCommand(
            "autostart",
            "have mdevs made whenever the function that carries them appears; defines them first",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev autostart",),
        ),
        CliCommand(
            "undefine",
            "forget definitions; an mdev that is there stays until it is destroyed",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev undefine",),
        ),
    ),
)

LIBVIRT = CliCommand(
    "libvirt",
    "virtual machines of libvirt: device XML, attach, detach, check",
    text="Through libvirt-python where it is installed (pip install 'aliquot[libvirt]'), else through virsh.",
    children=(
        CliCommand(
            "xml",
            "the <hostdev> XML of free vGPUs, or of devices by name",
            "libvirt.commands",
            options=(_DEVICES, _VGPU, _COUNT, GPU, _RAMFB, _MULTI, _CONNECT, *EVERYWHERE),
            text="vGPUs that a VM has in its definition are left out where libvirt answers.",
            examples=(
                "aliquot libvirt xml --vgpu 'NVIDIA A2-4Q' --count 2 --gpu 0",
                "aliquot libvirt xml 0000:08:00.4",
            ),
        ),
        CliCommand(
            "check",
            "what is right and what is wrong about the GPUs and vGPUs of a VM",
            "libvirt.commands",
            options=(_VM, _MULTI, _CONNECT, *EVERYWHERE),
            text="Its definition and, where it runs, the running machine.",
            examples=("aliquot libvirt check win11",),
            exits="0 fine, 20 with problems",
        ),
        CliCommand(
            "attach",
            "give a VM free vGPUs, or devices by name; every rule is checked before anything is touched",
            "libvirt.commands",
            options=(
                _VM,
                _DEVICES,
                _VGPU,
                _COUNT,
                GPU,
                _CONFIG,
                _LIVE,
                _RAMFB,
                _MULTI,
                CommandOption(
                    "--autostart", help="have libvirt make the mdevs again at boot (see nodedev)", kind="flag"
                ),
                CommandOption("--start", help="start the VM afterwards", kind="flag"),
                _DRY_RUN,
                _CONNECT,
                *EVERYWHERE,
            ),
            text="All of them or none. A running VM gets them at its next start, unless --live is typed; QEMU cannot "
            "plug ramFB in, so a vGPU that is plugged in has none.",
            examples=(
                "aliquot libvirt attach win11 --vgpu 'NVIDIA A2-4Q' --count 2",
                "aliquot libvirt attach win11 0000:08:00.4 --dry-run",
            ),
            exits="0 done, 20 blocked, and nothing was changed",
        ),
        CliCommand(
            "detach",
            "take vGPUs or GPUs from a VM",
            "libvirt.commands",
            options=(
                _VM,
                _DEVICES,
                _VGPU,
                _COUNT,
                CommandOption("--all", help="every vGPU and GPU that it has", kind="flag"),
                _CONFIG,
                _LIVE,
                _DRY_RUN,
                _CONNECT,
                *EVERYWHERE,
            ),
            text="The vGPU itself stays, for another VM. From a running VM (--live) it goes when the guest lets it.",
            examples=("aliquot libvirt detach win11 --all", "aliquot libvirt detach win11 0000:08:00.4"),
        ),
        _NODEDEV,
    ),
    options=(NODE,),
    examples=("aliquot libvirt check win11", "aliquot libvirt attach win11 --vgpu A2-4Q"),
)
