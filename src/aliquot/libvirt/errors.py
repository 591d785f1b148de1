"""Errors of libvirt in Aliquot's words. Both implementations get the daemon's own sentence, and a row is found by it.
So the binding (which also has error numbers) and ``virsh`` (which prints only the sentence) report the same error.

The sentences were seen with libvirt 9.0 unless a row notes otherwise. libvirt's sentence is always shown beside ours.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from aliquot.errors import BlockedError


class LibvirtError(BlockedError):
    """An error that libvirt, or the VM behind it, returned."""

    code = "LIBVIRT"


class NoLibvirtError(LibvirtError):
    """A failed connection: no libvirt daemon answers, or neither the binding nor ``virsh`` is installed."""

    code = "NO_LIBVIRT"


class NoVmError(LibvirtError):
    """A VM of that name does not exist."""

    code = "NO_VM"


class TimedOutError(LibvirtError):
    """libvirt did not answer within the time limit. The request may still take effect."""

    code = "LIBVIRT_TIMEOUT"


_HostCode = Literal["BAD_XML", "NOT_SUPPORTED", "NO_LIBVIRT", "NO_MDEVCTL", "NO_PERMISSION", "NO_VFIO"]
_MdevCode = Literal["MDEV", "NOT_DEFINED", "NO_MDEV", "NO_PARENT"]
_VmCode = Literal["NO_VM", "VM_NOT_RUNNING", "VM_RUNNING"]
_DeviceCode = Literal["ATTACHED", "DISPLAY", "HELD", "NOT_ATTACHED", "NO_SLOT", "RAMFB"]
LibvirtCode = Literal[_HostCode, _MdevCode, _VmCode, _DeviceCode]
"""The cause of libvirt's refusal, found by its own sentence."""


class _Row(NamedTuple):
    code: LibvirtCode
    words: str
    brief: str
    next_step: str | None


_ROWS = (
    _Row(
        "NO_VFIO",
        r"assignment requires VFIO support|doesn't support (?:passthrough of host PCI devices|VFIO PCI)",
        "this host cannot pass a device through to a VM: VFIO is missing, or the IOMMU is off",
        "modprobe vfio-pci; if that is not enough, enable the IOMMU (intel_iommu=on) and reboot the host",
    ),
    _Row(
        "NO_MDEVCTL",
        r"mdevctl.*(?:No such file|not found|in \$PATH)|(?:find|execute).*mdevctl",
        "libvirt needs mdevctl to keep mdevs, and it is not installed",
        "install mdevctl and restart libvirt, or let the boot service create the mdevs: aliquot restore --boot",
    ),
    _Row(
        "NOT_DEFINED",
        r"cannot set autostart for transient device",
        "libvirt has no definition of the mdev",
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
        "libvirt does not see the parent function of the mdev",
        "aliquot show",
    ),
    _Row("NO_MDEV", r"[Nn]ode device not found|no node device with matching", "libvirt does not know this mdev", None),
    _Row("NO_VM", r"Domain not found|no domain with matching|failed to get domain", "the VM does not exist", None),
    _Row("VM_NOT_RUNNING", r"domain is not running", "the VM is not running", "leave out --live"),
    _Row("VM_RUNNING", r"(?:domain|Domain) is already (?:running|active)", "the VM is already running", None),
    _Row(
        "ATTACHED",
        r"already (?:in|exists in) the domain configuration|Hostdev already exists|in use by (?:driver|domain)",
        "the device is already attached, to this VM or to another one",
        None,
    ),
    _Row(
        "NOT_ATTACHED",
        r"device not (?:present|found): device|not present in domain|host pci device .* not found",
        "the VM does not have this device",
        None,
    ),
    _Row("RAMFB", r"Only one vgpu device can have 'ramfb'", "only one vGPU of a VM can have ramFB", None),
    _Row(
        "DISPLAY",
        r"graphics device is needed for attribute value 'display=on'",
        "a vGPU can show a display only in a VM that has one (<graphics>)",
        "add a display to the VM, or attach without ramFB: --ramfb none",
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
        "the device, or another one of its IOMMU group, is in use",
        "aliquot show",
    ),
    _Row(
        "BAD_XML",
        r"failed to validate against schema|Extra element|XML error",
        "libvirt rejects this XML",
        None,
    ),
    _Row(
        "NOT_SUPPORTED",
        r"not supported by the connection driver|unsupported flags|[Uu]nknown procedure|not supported by this libvirt",
        "this libvirt does not support the call: it is too old, or not the daemon of QEMU",
        "virsh version",
    ),
    _Row(
        "NO_PERMISSION",
        r"[Aa]uthentication (?:failed|unavailable|cancelled)|access denied|Permission denied|operation .* forbidden"
        r"|read.?only access",
        "libvirt denies this user the permission",
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
_CLASSES: dict[LibvirtCode, type[LibvirtError]] = {"NO_VM": NoVmError, "NO_LIBVIRT": NoLibvirtError}


def translate_error(sentence: str, attempt: str = "") -> LibvirtError:
    """Return the error for libvirt's sentence. ``attempt`` is the action that failed: ``attach mdev ... to win11``."""
    words = " ".join(sentence.split())
    row = next((r for r in _ROWS if re.search(r.words, words)), None)
    brief = row.brief if row else "libvirt refused"
    kind = _CLASSES.get(row.code, LibvirtError) if row else LibvirtError
    error = kind(
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
        details=("the request may still take effect: check before the next attempt",),
        next_step="virsh list --all",
    )
