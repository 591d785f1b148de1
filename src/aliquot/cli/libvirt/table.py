"""The rows of ``aliquot libvirt``: VMs and their vGPUs and GPUs."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, GPU, NODE, WAIT_FOR_LOCK, CliCommand, CommandOption

_CONNECT = CommandOption(
    "--connect",
    help="the URI of libvirt",
    metavar="URI",
    default="qemu:///system",
    env="LIBVIRT_DEFAULT_URI",
)
_VM = CommandOption("vm", help="the name or UUID of a VM", metavar="VM", required=True)
_DEVICES = CommandOption(
    "devices",
    help="devices by name: the UUID of a vGPU, a virtual function, or a GPU to pass through whole (index, PCI "
    "address, UUID, product)",
    kind="many",
    metavar="DEVICE",
    complete="gpus",
)
_VGPU = CommandOption(
    "--vgpu",
    help="free vGPUs of a type: A2-4Q, 'NVIDIA A2-4Q*2', A2-4Q:2; repeatable",
    kind="repeat",
    metavar="TYPE",
    complete="types",
)
_COUNT = CommandOption("--count", help="the number of vGPUs of each --vgpu", metavar="N", number="int")
_RAMFB = CommandOption(
    "--ramfb",
    help="auto: a boot display (ramFB) on exactly one vGPU of the VM; none: on no vGPU",
    choices=("auto", "none"),
    default="auto",
)
_MULTI = CommandOption(
    "--multi",
    help="which types allow several vGPUs in one VM: those that NVIDIA supports, or all that the driver accepts",
    choices=("nvidia", "driver"),
    default="nvidia",
)
_CONFIG = CommandOption(
    "--config", help="change the definition of the VM, from its next start on (the default)", kind="flag"
)
_LIVE = CommandOption("--live", help="attach to, or detach from, the running VM", kind="flag")
_DRY_RUN = CommandOption("--dry-run", help="show what would be done, with the XML, and touch nothing", kind="flag")
_WHICH = CommandOption(
    "mdevs",
    help="mdevs by UUID or virtual function; by default all of the node",
    kind="many",
    metavar="MDEV",
)

_NODEDEV = CliCommand(
    "nodedev",
    "define vGPUs that libvirt starts again after a reboot (mdevs; needs mdevctl)",
    text="A definition survives a reboot. With autostart, libvirt creates the vGPU with the same UUID as soon as its "
    "virtual function appears. MIG-backed vGPUs need their GPU instance first, which only 'aliquot restore --boot' "
    "creates. Vendor-specific VFIO has no mdevs: there, only 'aliquot restore --boot' restores vGPUs.",
    children=(
        CliCommand(
            "list",
            "list the mdevs of the node, also those lost in a reboot, and their libvirt definitions",
            "libvirt.nodedev",
            options=(_CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev list",),
        ),
        CliCommand(
            "define",
            "define mdevs, so that they survive a reboot",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev define",),
        ),
        CliCommand(
            "start",
            "create defined mdevs that do not exist",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev start",),
        ),
        CliCommand(
            "autostart",
            "define mdevs, and create them whenever their virtual function appears",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev autostart",),
        ),
        CliCommand(
            "undefine",
            "remove definitions; existing mdevs stay",
            "libvirt.nodedev",
            options=(_WHICH, _CONNECT, *EVERYWHERE),
            examples=("aliquot libvirt nodedev undefine",),
        ),
    ),
)

LIBVIRT = CliCommand(
    "libvirt",
    "attach GPUs and vGPUs to VMs of libvirt, detach and check them",
    text="Uses libvirt-python if it is installed (pip install 'aliquot[libvirt]'), else virsh.",
    children=(
        CliCommand(
            "xml",
            "print the <hostdev> XML of free vGPUs, or of devices by name",
            "libvirt.commands",
            options=(_DEVICES, _VGPU, _COUNT, GPU, _RAMFB, _MULTI, _CONNECT, *EVERYWHERE),
            text="Leaves out vGPUs in the definition of a VM, if libvirt answers.",
            examples=(
                "aliquot libvirt xml --vgpu 'NVIDIA A2-4Q' --count 2 --gpu 0",
                "aliquot libvirt xml 0000:08:00.4",
            ),
        ),
        CliCommand(
            "check",
            "check the GPUs and vGPUs of a VM",
            "libvirt.commands",
            options=(_VM, _MULTI, _CONNECT, *EVERYWHERE),
            text="Checks the definition and, if the VM runs, the running VM.",
            examples=("aliquot libvirt check win11",),
            exits="0 no problems, 20 problems",
        ),
        CliCommand(
            "attach",
            "attach free vGPUs, or devices by name, to a VM",
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
                    "--autostart", help="have libvirt create the mdevs again at boot (see nodedev)", kind="flag"
                ),
                CommandOption("--start", help="then start the VM", kind="flag"),
                _DRY_RUN,
                WAIT_FOR_LOCK,
                _CONNECT,
                *EVERYWHERE,
            ),
            text="Checks every rule first, then attaches all devices or none. A running VM gets them at its next "
            "start, or at once with --live. QEMU cannot hotplug ramFB, so a vGPU that is hotplugged has none.",
            examples=(
                "aliquot libvirt attach win11 --vgpu 'NVIDIA A2-4Q' --count 2",
                "aliquot libvirt attach win11 0000:08:00.4 --dry-run",
            ),
            exits="0 done, 20 blocked, and nothing was changed",
        ),
        CliCommand(
            "detach",
            "detach vGPUs or GPUs from a VM",
            "libvirt.commands",
            options=(
                _VM,
                _DEVICES,
                _VGPU,
                _COUNT,
                CommandOption("--all", help="every vGPU and GPU of the VM", kind="flag"),
                _CONFIG,
                _LIVE,
                _DRY_RUN,
                WAIT_FOR_LOCK,
                _CONNECT,
                *EVERYWHERE,
            ),
            text="Does not destroy the vGPU: another VM can use it. With --live, the device leaves the VM when its "
            "guest releases it.",
            examples=("aliquot libvirt detach win11 --all", "aliquot libvirt detach win11 0000:08:00.4"),
        ),
        _NODEDEV,
    ),
    options=(NODE,),
    examples=("aliquot libvirt check win11", "aliquot libvirt attach win11 --vgpu A2-4Q"),
)
