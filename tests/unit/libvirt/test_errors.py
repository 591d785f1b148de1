"""Aliquot's errors for libvirt's messages, which come from libvirt 9.0 (the daemon or mdevctl)."""

from __future__ import annotations

import pytest

from aliquot.libvirt.errors import LibvirtError, NoLibvirtError, NoVmError, translate_error

MESSAGES = {
    "unsupported configuration: Mediated host device assignment requires VFIO support": "NO_VFIO",
    "unsupported configuration: host doesn't support passthrough of host PCI devices": "NO_VFIO",
    "Domain not found: no domain with matching name 'nope'": "NO_VM",
    "failed to get domain 'nope'": "NO_VM",
    "Requested operation is not valid: domain is not running": "VM_NOT_RUNNING",
    "Requested operation is not valid: domain is already running": "VM_RUNNING",
    "Domain is already active": "VM_RUNNING",
    "Requested operation is not valid: device is already in the domain configuration": "ATTACHED",
    "XML error: Hostdev already exists in the domain configuration": "ATTACHED",
    "Requested operation is not valid: PCI device 0000:3b:00.4 is in use by driver QEMU, domain b": "ATTACHED",
    "device not found: device not present in domain configuration": "NOT_ATTACHED",
    "device not found: host pci device 0000:3b:00.4 not found": "NOT_ATTACHED",
    "unsupported configuration: Only one vgpu device can have 'ramfb' enabled": "RAMFB",
    "unsupported configuration: graphics device is needed for attribute value 'display=on' in <hostdev>": "DISPLAY",
    "internal error: No more available PCI slots": "NO_SLOT",
    "this function is not supported by the connection driver: virDomainAttachDeviceFlags": "NOT_SUPPORTED",
    "Failed to connect socket to '/var/run/libvirt/libvirt-sock': No such file or directory": "NO_LIBVIRT",
    "Cannot recv data: Connection reset by peer": "NO_LIBVIRT",
    "End of file while reading data: Input/output error": "NO_LIBVIRT",
    "authentication unavailable: no polkit agent available to authenticate action 'org.libvirt.unix.manage'": (
        "NO_PERMISSION"
    ),
    "Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied": "NO_PERMISSION",
    "operation failed: Unable to find 'mdevctl' binary in $PATH: No such file or directory": "NO_MDEVCTL",
    "unsupported configuration: invalid parent device 'pci_0000_3b_00_4'": "NO_PARENT",
    "Node device not found: no node device with matching name 'mdev_x'": "NO_MDEV",
    "XML document failed to validate against schema: Unable to validate doc against domain.rng": "BAD_XML",
}


@pytest.mark.parametrize(("sentence", "code"), MESSAGES.items())
def test_a_sentence_has_its_kind(sentence: str, code: str) -> None:
    error = translate_error(sentence, "attach it to win11")
    assert error.code == code
    assert error.exit_code == 20
    assert error.brief.startswith("cannot attach it to win11: ")
    assert error.details == (f"libvirt: {sentence}",)


def test_kinds_that_are_classes() -> None:
    assert isinstance(translate_error("Domain not found: x"), NoVmError)
    assert isinstance(translate_error("Cannot recv data: Connection reset by peer"), NoLibvirtError)


def test_an_unknown_sentence_is_shown_as_it_is() -> None:
    error = translate_error("internal error:\n  something new", "start the VM")
    assert type(error) is LibvirtError
    assert (error.code, error.brief) == ("LIBVIRT", "cannot start the VM: libvirt refused")
    assert error.details == ("libvirt: internal error: something new",)
