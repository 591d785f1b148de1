"""The changes of nvidia-smi: MIG mode, instances, a GPU reset, mixed-size mode. A list of requests stops at the first
refusal and keeps what was created before; the exit status is NVML's code.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.foundation.callbacks import Report
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.tools.nvidia_smi_cli.driver import (
    SmiComputeProfile,
    SmiDevice,
    SmiInstance,
    SmiProfile,
    default,
    words,
)

_PERSISTENCE = (
    "\nWarning: persistence mode is disabled on device {bus}. See the Known Issues section of the nvidia-smi(1) man "
    "page for more information. Run with [--help | -h] switch to get more information on how to enable persistence "
    "mode."
)
_SCHEDULER_IN_USE = "vGPU scheduler state cannot be configured, if vGPU instance is currently active on the device."
_BUSY = (
    "{bus} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application "
    "such as another instance of nvidia-smi). Please first kill all processes using the device and retry the command "
    "or reboot the system to make MIG mode effective."
)
_HELD = (
    "{count} device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
    "graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi). "
    "Please first kill all processes using this device and all compute applications running in the system."
)


def mig_mode(devices: Sequence[SmiDevice], on: bool, print_line: Report) -> int:
    """Set MIG mode (``-mig 0|1``). A pending request is only a warning, as is a GPU without MIG."""
    word, pending = ("Enabled", "enable") if on else ("Disabled", "disable")
    for device in devices:
        try:
            activation = device.request("DeviceSetMigMode", int(on))[0]
        except NvmlRefusalError as refusal:
            print_line(f"Unable to {pending} MIG Mode for GPU {device.bus_id}: {words(refusal.code)}")
            if refusal.code != codes.NOT_SUPPORTED:
                print_line("Terminating early due to previous errors.")
                return refusal.code
            print_line("Treating as warning and moving on.")
            continue
        if activation == codes.SUCCESS:
            print_line(f"{word} MIG Mode for GPU {device.bus_id}")
        else:
            print_line(f"Warning: MIG mode is in pending {pending} state for GPU {device.bus_id}:{words(activation)}")
            print_line(_BUSY.format(bus=device.bus_id) if activation == codes.IN_USE else _REBOOT)
        if device.number("DeviceGetPersistenceMode") == 0:
            print_line(_PERSISTENCE.format(bus=device.bus_id))
    print_line("All done.")
    return 0


_REBOOT = "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective."


def reset(devices: Sequence[SmiDevice], print_line: Report) -> int:
    """Reset GPUs (``-r``). The session is closed first, because it would be a client itself."""
    chosen = [(d.handle, d.bus_id, d.driver) for d in devices]
    for _, _, driver in chosen:
        driver.close()
    refused: list[tuple[str, int]] = []
    for handle, bus, driver in chosen:
        try:
            driver.without_session("DeviceReset", handle, -1, -1)
            print_line(f"GPU {bus} was successfully reset.")
        except NvmlRefusalError as refusal:
            refused.append((bus, refusal.code))
    if refused:
        print_line("The following GPUs could not be reset:")
        for bus, code in refused:
            print_line(f"  GPU {bus}: {words(code)}")
        if any(code == codes.IN_USE for _, code in refused):
            print_line("\n" + _HELD.format(count=len(refused)))
        return refused[0][1]
    print_line("All done.")
    return 0


def mixed_size(devices: Sequence[SmiDevice], on: bool, print_line: Report) -> int:
    """Set mixed-size mode (``vgpu -shm 0|1``)."""
    for device in devices:
        try:
            device.request("DeviceSetVgpuHeterogeneousMode", int(on))
        except NvmlRefusalError as refusal:
            verb = "enable" if on else "disable"
            print_line(f"Unable to {verb} vGPU heterogeneous mode for GPU {device.bus_id}: {words(refusal.code)}")
            return refusal.code
        print_line(f"{'Enabled' if on else 'Disabled'} vGPU heterogeneous mode for GPU {device.bus_id}")
    print_line("All done.")
    return 0


def scheduler(devices: Sequence[SmiDevice], state: Sequence[int], print_line: Report) -> int:
    """Set the vGPU scheduler (``vgpu set-scheduler-state``): policy, strictness, time slice, frequency."""
    for device in devices:
        try:
            device.request("DeviceSetVgpuSchedulerState", *state)
        except NvmlRefusalError as refusal:
            print_line(f'Unable to set the vGPU scheduler state on GPU "{device.bus_id}". {words(refusal.code)}')
            if device.facts["vgpus"]:
                print_line(_SCHEDULER_IN_USE)
            return refusal.code
        print_line(f"Successfully set the vGPU scheduler state on GPU {device.bus_id}")
    return 0


# -- GPU instances


def create(devices: Sequence[SmiDevice], requests: Sequence[str], compute: bool, print_line: Report) -> int:
    """Create GPU instances (``mig -cgi``): ids, names or full names, each with an optional ``:start``."""
    for device in devices:
        for request in requests:
            word, _, start = request.strip().partition(":")
            profile = _named(device.profiles, word)
            shown = profile.id if profile else word
            try:
                made = _create(device, profile, start)
            except NvmlRefusalError as refusal:
                reason = words(refusal.code)
                print_line(f"Unable to create a GPU instance on GPU {device.index:>2} using profile {shown}: {reason}")
                print_line(f"Failed to create GPU instances: {reason}")
                return refusal.code
            assert profile is not None
            print_line(
                f"Successfully created GPU instance ID {made:>2} on GPU {device.index:>2} using profile {profile.name} "
                f"(ID {profile.id:>2})"
            )
            if compute and (code := _whole(device, profile, made, print_line)):
                return code
    return 0


def _named(
    profiles: Sequence[SmiProfile] | Sequence[SmiComputeProfile], word: str
) -> SmiProfile | SmiComputeProfile | None:
    plain = word.strip().removeprefix("MIG ")
    return next((p for p in profiles if plain == str(p.id) or p.name == f"MIG {plain}"), None)


def _create(device: SmiDevice, profile: SmiProfile | SmiComputeProfile | None, start: str) -> int:
    if profile is None or (start and not start.isdigit()):
        raise NvmlRefusalError(codes.INVALID_ARGUMENT)
    if not start:
        return device.request("DeviceCreateGpuInstance", profile.id)[0]
    size = device.request("DeviceGetGpuInstancePossiblePlacements", profile.id)[1]
    return device.request("DeviceCreateGpuInstanceWithPlacement", profile.id, int(start), size)[0]


def _whole(device: SmiDevice, owner: SmiProfile | SmiComputeProfile, gi: int, print_line: Report) -> int:
    """Create the compute instance that covers a GPU instance."""
    return _create_compute(device, gi, default(device.compute_profiles(gi), owner.name), "", print_line)


def destroy(devices: Sequence[SmiDevice], wanted: Sequence[int] | None, print_line: Report) -> int:
    """Destroy GPU instances (``mig -dgi``): all, or those named."""
    found = [(d, i.id) for d in devices for i in _chosen(d, wanted)]
    if not found:
        print_line("No GPU instances found: Not Found")
        return codes.NOT_FOUND
    for device, number in found:
        try:
            device.request("GpuInstanceDestroy", gi=number)
        except NvmlRefusalError as refusal:
            reason = words(refusal.code)
            print_line(f"Unable to destroy GPU instance ID {number:>2} from GPU {device.index:>2}: {reason}")
            print_line(f"Failed to destroy GPU instances: {reason}")
            return refusal.code
        print_line(f"Successfully destroyed GPU instance ID {number:>2} from GPU {device.index:>2}")
    return 0


def _chosen(device: SmiDevice, wanted: Sequence[int] | None) -> list[SmiInstance]:
    return [i for _, i in device.instances() if wanted is None or i.id in wanted]


# -- compute instances


def create_compute(
    devices: Sequence[SmiDevice], requests: Sequence[str], wanted: Sequence[int] | None, print_line: Report
) -> int:
    """Create compute instances (``mig -cci``): profiles by id or name; without one, the profile that covers the GPU
    instance.
    """
    found = [(d, p, i.id) for d in devices for p, i in d.instances() if wanted is None or i.id in wanted]
    if not found:
        print_line("No GPU instances found: Not Found")
        return codes.NOT_FOUND
    for device, owner, gi in found:
        if not requests and (code := _whole(device, owner, gi, print_line)):
            return code
        for request in requests:
            word, _, start = request.strip().partition(":")
            profile = _named(device.compute_profiles(gi), word.rstrip("*"))
            if code := _create_compute(device, gi, profile, start, print_line, word):
                return code
    return 0


def _create_compute(
    device: SmiDevice,
    gi: int,
    profile: SmiProfile | SmiComputeProfile | None,
    start: str,
    print_line: Report,
    word: str = "",
) -> int:
    where = f"on GPU {device.index:>2} GPU instance ID {gi:>2}"
    try:
        if profile is None or (start and not start.isdigit()):
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        if start:
            size = device.request("GpuInstanceGetComputeInstancePossiblePlacements", profile.id, gi=gi)[1]
            place = ("GpuInstanceCreateComputeInstanceWithPlacement", profile.id, int(start), size)
            made = device.request(*place, gi=gi)[0]
        else:
            made = device.request("GpuInstanceCreateComputeInstance", profile.id, gi=gi)[0]
    except NvmlRefusalError as refusal:
        reason = words(refusal.code)
        print_line(
            f"Unable to create a compute instance {where} using profile {profile.id if profile else word}: {reason}"
        )
        print_line(f"Failed to create compute instances: {reason}")
        return refusal.code
    print_line(
        f"Successfully created compute instance ID {made:>2} {where} using profile {profile.name} (ID {profile.id:>2})"
    )
    return 0


def destroy_compute(
    devices: Sequence[SmiDevice], instances: Sequence[int] | None, wanted: Sequence[int] | None, print_line: Report
) -> int:
    """Destroy compute instances (``mig -dci``): all, those in the GPU instances ``instances``, or those with the ids
    ``wanted``.
    """
    found = [
        (device, gi.id, ci.id)
        for device in devices
        for gi in _chosen(device, instances)
        for _, ci in device.compute_instances(gi.id)
        if wanted is None or ci.id in wanted
    ]
    if not found:
        print_line("No compute instances found: Not Found")
        return codes.NOT_FOUND
    for device, gi, ci in found:
        tail = f"from GPU {device.index:>2} GPU instance ID {gi:>2}"
        try:
            device.request("ComputeInstanceDestroy", gi=gi, ci=ci)
        except NvmlRefusalError as refusal:
            reason = words(refusal.code)
            print_line(f"Unable to destroy compute instance ID {ci:>2} {tail}: {reason}")
            print_line(f"Failed to destroy compute instances: {reason}")
            return refusal.code
        print_line(f"Successfully destroyed compute instance ID {ci:>2} {tail}")
    return 0
