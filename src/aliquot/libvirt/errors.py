"""What libvirt refuses, in our words. Both implementations get the daemon's own sentence; rows are found by it, so that
the binding (which has error numbers as well) and ``virsh`` (which prints only the sentence) say the same.

The sentences were met with libvirt 9.0 unless a row says otherwise. libvirt's sentence is always shown beside ours.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from aliquot.errors import BlockedError


class LibvirtError(BlockedError):
    """libvirt, or the virtual machine behind it, said no."""

    code = "LIBVIRT"


class NoLibvirtError(LibvirtError):
    """No libvirt daemon answers, or nothing to speak to one with is installed."""

    code = "NO_LIBVIRT"


class NoVmError(LibvirtError):
    """There is no virtual machine of that name."""

    code = "NO_VM"


class TimedOutError(LibvirtError):
    """libvirt did not answer within the bound. What was asked may still happen."""

    code = "LIBVIRT_TIMEOUT"


class _Row(NamedTuple):
    code: str
    words: str
    brief: str
    next_step: str | None


_ROWS = (
    _Row(
        "NO_VFIO",
        r"assignment requires VFIO support|doesn't support (?:passthrough of host PCI devices|VFIO PCI)",
        "this host cannot hand a device to a virtual machine: VFIO is missing, or the IOMMU is off",
        "modprobe vfio-pci; if that is not enough, switch the IOMMU on (intel_iommu=on) and reboot the host",
    ),
    _Row(
        "NO_MDEVCTL",
        r"mdevctl.*(?:No such file|not found|in \$PATH)|(?:find|execute).*mdevctl",
        "libvirt keeps mdevs with mdevctl, which this host lacks",
        "install mdevctl and restart libvirt, or let the boot service make them: aliquot restore --boot",
    ),
    _Row(
        "NOT_DEFINED",
        r"cannot set autostart for transient device",
        "libvirt has no definition of it",
        "aliquot libvirt nodedev list",
    ),
    _Row(
        "MDEV",
        r"Unable to (?:create|start|define|destroy|undefine|set autostart).*mediated device",
        "mdevctl refused",
        "aliquot show",
    ),
    _Row(
        "NO_PARENT",
        r"invalid parent device|no such parent device|[Cc]ould not find parent",
        "libvirt does not see the function that would carry the mdev",
        "aliquot show",
    ),
    _Row("NO_MDEV", r"[Nn]ode device not found|no node device with matching", "libvirt has no such mdev", None),
    _Row("NO_VM", r"Domain not found|no domain with matching|failed to get domain", "there is no such VM", None),
    _Row("VM_NOT_RUNNING", r"domain is not running", "the VM does not run", "leave out --live"),
    _Row("VM_RUNNING", r"(?:domain|Domain) is already (?:running|active)", "the VM runs already", None),
    _Row(
        "ATTACHED",
        r"already (?:in|exists in) the domain configuration|Hostdev already exists|in use by (?:driver|domain)",
        "the device is attached already, to this VM or to another one",
        None,
    ),
    _Row(
        "NOT_ATTACHED",
        r"device not (?:present|found): device|not present in domain|host pci device .* not found",
        "the VM has no such device",
        None,
    ),
    _Row("RAMFB", r"Only one vgpu device can have 'ramfb'", "only one vGPU of a VM can have ramFB", None),
    _Row(
        "DISPLAY",
        r"graphics device is needed for attribute value 'display=on'",
        "a vGPU can only show a display in a VM that has one (<graphics>)",
        "add a display to the VM, or leave it without: --ramfb none",
    ),
    _Row(
        "NO_SLOT",
        r"[Nn]o more available PCI (?:slots|addresses)",
        "the running VM has no free PCIe port to plug a device into",
        "shut the VM down and attach without --live, or add a pcie-root-port controller to it",
    ),
    _Row(
        "HELD",
        r"Device or resource busy|is in use by|group is not viable|error getting device from group",
        "something else has the device, or another device of its IOMMU group",
        "aliquot show",
    ),
    _Row(
        "BAD_XML",
        r"failed to validate against schema|Extra element|XML error",
        "libvirt does not take this XML",
        None,
    ),
    _Row(
        "NOT_SUPPORTED",
        r"not supported by the connection driver|unsupported flags|[Uu]nknown procedure|not supported by this libvirt",
        "this libvirt cannot do that: it is too old, or not the daemon of QEMU",
        "virsh version",
    ),
    _Row(
        "NO_PERMISSION",
        r"[Aa]uthentication (?:failed|unavailable|cancelled)|access denied|Permission denied|operation .* forbidden"
        r"|read.?only access",
        "libvirt does not let this user do that",
        "run it as root, or as a member of the group libvirt",
    ),
    _Row(
        "NO_LIBVIRT",
        r"[Ff]ailed to connect socket|Cannot recv data|unable to connect to server|Connection re(?:fused|set)"
        r"|End of file while reading|client socket is closed|no connection driver available|[Cc]annot write data"
        r"|[Nn]o such file or directory.*libvirt",
        "no libvirt daemon answers",
        "systemctl start libvirtd (or virtqemud)",
    ),
)
_CLASSES: dict[str, type[LibvirtError]] = {"NO_VM": NoVmError, "NO_LIBVIRT": NoLibvirtError}


def translate_error(sentence: str, attempt: str = "") -> LibvirtError:
    """The error for what libvirt said. ``attempt`` is what was being done: ``attach mdev ... to win11``."""
    words = " ".join(sentence.split())
    row = next((r for r in _ROWS if re.search(r.words, words)), None)
    brief = row.brief if row else "libvirt refused"
    error = _CLASSES.get(row.code if row else "", LibvirtError)(
        f"cannot {attempt}: {brief}" if attempt else brief,
        details=(f"libvirt: {words}",),
        next_step=row.next_step if row else None,
    )
    if row is not None:
        error.code = row.code
    return error


def timeout_error(attempt: str, seconds: float) -> TimedOutError:
    return TimedOutError(
        f"cannot {attempt}: libvirt did not answer within {seconds:.0f} s",
        details=("what was asked may still happen: look again before the next attempt",),
        next_step="virsh list --all",
    )
