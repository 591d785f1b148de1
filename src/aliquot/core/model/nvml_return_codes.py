"""NVML return codes as errors, each with a cause and a next step. Pure, for every backend.

Sources of codes and causes: nvml.h and the constants of nvidia-ml-py. A contract test checks that none is missing.
"""

from __future__ import annotations

from aliquot.core.model.driver_branches import FIRST_WITH, FLOOR, lacks, older
from aliquot.errors import (
    AliquotError,
    BlockedError,
    GpuLostError,
    HardwareError,
    InUseError,
    NoDriverError,
    PermissionDeniedError,
)

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
IN_USE = 19
INSUFFICIENT_RESOURCES = 23
ARGUMENT_VERSION_MISMATCH = 25
RESET_TYPE_NOT_SUPPORTED = 30
UNKNOWN = 999
REFUSALS = (INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, IN_USE, INSUFFICIENT_RESOURCES)
"""Codes after which nothing has changed. After any other error the driver may have applied the request."""

_NEWER = "update the NVIDIA driver, then run: aliquot show"
_RELOAD = "reboot, or reload the NVIDIA kernel modules, then run: aliquot show"
_LOGS = "look for Xid messages in the kernel log (dmesg | grep -i xid), then run: aliquot show"
_SPACE = "aliquot show"

_Row = tuple[type[AliquotError], str, str, str]

TABLE: dict[int, _Row] = {
    1: (
        HardwareError,
        "UNINITIALIZED",
        "the NVML session is closed",
        "run the command again; if it repeats, report it",
    ),
    2: (
        HardwareError,
        "INVALID_ARGUMENT",
        "the driver does not accept these arguments (stale instance or placement)",
        _SPACE,
    ),
    3: (HardwareError, "NOT_SUPPORTED", "the GPU does not support this in its current mode", _SPACE),
    4: (
        PermissionDeniedError,
        "NO_PERMISSION",
        "the caller may not do this",
        "run it as root, or give this user access to the mig/config capability "
        "(MIG mode itself always needs root or CAP_SYS_ADMIN)",
    ),
    5: (HardwareError, "ALREADY_INITIALIZED", "the NVML session is already open", "run the command again"),
    6: (HardwareError, "NOT_FOUND", "it does not exist (any more)", _SPACE),
    7: (HardwareError, "INSUFFICIENT_SIZE", "the answer is larger than its buffer", "run the command again"),
    8: (
        HardwareError,
        "INSUFFICIENT_POWER",
        "the GPU's power cables are not properly attached",
        "check the power cables",
    ),
    9: (NoDriverError, "DRIVER_NOT_LOADED", "the NVIDIA kernel driver is not loaded", "modprobe nvidia"),
    10: (HardwareError, "TIMEOUT", "the driver did not answer in time", _LOGS),
    11: (HardwareError, "IRQ_ISSUE", "the kernel reports an interrupt problem with the GPU", _LOGS),
    12: (
        NoDriverError,
        "LIBRARY_NOT_FOUND",
        "libnvidia-ml.so.1 is not installed on this host",
        "install the NVIDIA driver, or try a simulated node: aliquot sim start dgx-a100",
    ),
    13: (NoDriverError, "FUNCTION_NOT_FOUND", "the installed driver does not have this call", _NEWER),
    14: (HardwareError, "CORRUPTED_INFOROM", "the GPU's InfoROM is corrupted", "have the GPU serviced"),
    15: (GpuLostError, "GPU_IS_LOST", "the GPU has fallen off the bus", _LOGS),
    16: (
        HardwareError,
        "RESET_REQUIRED",
        "the GPU must be reset before it can be used again",
        "nvidia-smi -r -i {gpu}",
    ),
    17: (HardwareError, "OPERATING_SYSTEM", "the operating system refused a driver request", _LOGS),
    18: (
        NoDriverError,
        "LIB_RM_VERSION_MISMATCH",
        "the NVML library and the loaded kernel driver have different versions (driver updated without reboot)",
        _RELOAD,
    ),
    19: (
        InUseError,
        "IN_USE",
        "another client uses it",
        "see who holds it with aliquot show, end that work, then run the command again",
    ),
    20: (
        HardwareError,
        "MEMORY",
        "the driver is out of memory",
        "free memory on this host, then run the command again",
    ),
    21: (HardwareError, "NO_DATA", "the driver has no data for this", _SPACE),
    22: (HardwareError, "VGPU_ECC_NOT_SUPPORTED", "vGPU is not possible with ECC on", "nvidia-smi -i {gpu} -e 0"),
    23: (
        HardwareError,
        "INSUFFICIENT_RESOURCES",
        "memory slices, compute slices or engines for it are taken",
        _SPACE,
    ),
    24: (HardwareError, "FREQ_NOT_SUPPORTED", "the GPU has no such clock", _SPACE),
    25: (HardwareError, "ARGUMENT_VERSION_MISMATCH", "the driver does not know this version of the call", _NEWER),
    26: (HardwareError, "DEPRECATED", "the driver has dropped this call", "update Aliquot, then run: aliquot show"),
    27: (BlockedError, "NOT_READY", "the GPU or driver is not ready yet", "wait a moment, then run the command again"),
    28: (HardwareError, "GPU_NOT_FOUND", "no GPU was found", _SPACE),
    29: (HardwareError, "INVALID_STATE", "the current state of the GPU does not allow this", _SPACE),
    30: (
        HardwareError,
        "RESET_TYPE_NOT_SUPPORTED",
        "this kind of reset is not possible on this GPU",
        "reboot the host",
    ),
    999: (HardwareError, "UNKNOWN", "the driver failed without giving a reason", _LOGS),
}


def name(code: int) -> str:
    """Return the name of a code as nvml.h spells it, without ``NVML_ERROR_``. Returns an unknown code as a number."""
    return TABLE[code][1] if code in TABLE else str(code)


def error(code: int, attempt: str, *, gpu: str = "") -> AliquotError:
    """Return the error for an NVML return code.

    ``attempt`` is a noun phrase that starts the sentence (``creating 3g.20gb at 4:4 on 0000:07:00.0``). ``gpu`` is the
    PCI address for the next step.
    """
    kind, label, meaning, step = TABLE.get(code, TABLE[UNKNOWN])
    if code == SUCCESS:
        label, meaning = "SUCCESS", "the driver reported success, but nothing changed"
    elif code not in TABLE:
        label, meaning = str(code), "the driver returned a code that no published NVML has"
    brief = f"{attempt} failed: {meaning}"
    details = (f"NVML return code {code} ({label})",)
    next_step = step.replace("{gpu}", gpu or "<PCI address>")
    if issubclass(kind, HardwareError):
        return kind(brief, details=details, next_step=next_step, nvml_code=code)
    return kind(brief, details=details, next_step=next_step)


def missing(function: str, version: str, attempt: str) -> HardwareError:
    """Return the error for an NVML function that the driver library of this version does not export."""
    details: tuple[str, ...] = (f"driver {version} has no {function}",)
    step = _NEWER
    if lacks(version, function):
        first = FIRST_WITH[function]
        details += (f"R{first} is the first branch that has it",)
        step = f"update the NVIDIA driver to R{first} or later, then run: aliquot show"
    brief = f"{attempt} failed: the installed driver does not have this call"
    return HardwareError(brief, details=details, next_step=step, nvml_code=FUNCTION_NOT_FOUND)


def driver_too_old(version: str) -> NoDriverError | None:
    """Return an error if the driver is older than the floor. None if it is new enough or its version is unknown."""
    if not older(version, str(FLOOR)):
        return None
    return NoDriverError(
        f"NVIDIA driver {version} is too old: Aliquot needs R{FLOOR} or later",
        next_step=f"update the NVIDIA driver to R{FLOOR} or later, then run: aliquot show",
    )
