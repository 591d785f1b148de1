"""The ``nvidia-smi`` of a simulated node: listings, MIG, vGPU types and modes, in the words of the real program.

Texts and exit codes are those of captures of public hosts, or of NVIDIA's guides if none exists. The exit status of a
refusal is NVML's code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report
from aliquot.sim import codes
from aliquot.sim import lifecycle as control
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.tools.nvidia_smi_cli import changes as smi_changes
from aliquot.sim.tools.nvidia_smi_cli import mig_lists as lists
from aliquot.sim.tools.nvidia_smi_cli import overview, query, vgpus
from aliquot.sim.tools.nvidia_smi_cli import query_report as report
from aliquot.sim.tools.nvidia_smi_cli.arguments import (
    MIG,
    SCHEDULER,
    TOP,
    VGPU,
    InvalidArgumentsError,
    chosen,
    numbers,
    parse,
)
from aliquot.sim.tools.nvidia_smi_cli.driver import InitRefusalError, SmiDevice, SmiDriver, words

Send = Callable[[str], str]

_USAGE = """\
NVIDIA System Management Interface -- a stand-in for a simulated node

    nvidia-smi [-i GPUS] [-L | -q | -mig 0|1 | -r | --query-gpu=FIELDS --format=csv[,noheader][,nounits]]
    nvidia-smi mig [-i GPUS] -lgip | -lgipp | -lgi | -lcip | -lci | -cgi PROFILES [-C] | -cci [PROFILES] [-gi IDS]
                             | -dci [-gi IDS] [-ci IDS] | -dgi [-gi IDS]
    nvidia-smi vgpu [-i GPUS] [-q | -s [-v] | -c [-v] | -ss | -shm 0|1]
    nvidia-smi vgpu set-scheduler-state [-i GPUS] -p 1|2|3 [-a 0 [-ts NANOSECONDS] | -a 1 [-asf HERTZ]]"""


def run(arguments_: Sequence[str], send: Send, print_line: Report, token: str) -> int:
    """Run one command and return its exit status. ``send`` sends a line to the node and returns its answer,
    ``print_line`` prints a line.
    """
    driver = SmiDriver(send, token)
    first = arguments_[0] if arguments_ else ""
    try:
        if first == "mig":
            return _mig(driver, parse(arguments_[1:], MIG), print_line)
        if tuple(arguments_[:2]) == ("vgpu", "set-scheduler-state"):
            return _set_scheduler(driver, parse(arguments_[2:], SCHEDULER), print_line)
        if first == "vgpu":
            return _vgpu(driver, parse(arguments_[1:], VGPU), print_line, send)
        return _top(driver, parse(arguments_, TOP), print_line)
    except InvalidArgumentsError as complaint:
        print_line(str(complaint))
        return codes.NOT_FOUND if str(complaint).startswith("No devices") else codes.INVALID_ARGUMENT
    except lists.NothingListedError as nothing:
        print_line(str(nothing))
        return codes.NOT_FOUND
    except InitRefusalError as refusal:
        print_line(f"Failed to initialize NVML: {words(refusal.code)}")
        return refusal.code
    except NvmlRefusalError as refusal:
        print_line(words(refusal.code))
        return refusal.code
    finally:
        driver.close()


def _top(driver: SmiDriver, found: dict[str, str], print_line: Report) -> int:
    if "-h" in found:
        print_line(_USAGE)
        return 0
    devices = chosen(driver, found.get("-i"))
    if not devices:
        raise InvalidArgumentsError("No devices were found")
    if "-mig" in found:
        return smi_changes.mig_mode(devices, _switch(found["-mig"]), print_line)
    if "-r" in found:
        return smi_changes.reset(devices, print_line)
    if "--query-gpu" in found:
        return _query(devices, found, print_line)
    if "--version" in found:
        lines = [f"NVIDIA-SMI version  : {driver.version}", f"DRIVER version      : {driver.version}"]
    elif "-L" in found:
        lines = overview.gpus(devices)
    elif "-q" in found:
        lines = report.log(devices)
    else:
        lines = overview.table(devices)
    return _print(lines, print_line)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise InvalidArgumentsError(f"Invalid mode: {text}. Please run 'nvidia-smi -h' for help.")
    return text == "1"


def _print(lines: Sequence[str], print_line: Report) -> int:
    for line in lines:
        print_line(line)
    return 0


def _query(devices: Sequence[SmiDevice], found: dict[str, str], print_line: Report) -> int:
    options = [word.strip() for word in found.get("--format", "").split(",")]
    if "csv" not in options:
        raise InvalidArgumentsError("\"--format=\" switch is missing csv. Please run 'nvidia-smi -h' for help.")
    try:
        return _print(query.answer(devices, found["--query-gpu"].split(","), options), print_line)
    except query.UnknownFieldError as unknown:
        print_line(f'Field "{unknown}" is not a valid field to query.\n')
        return codes.INVALID_ARGUMENT


_MIG_LISTS: dict[str, Callable[[list[SmiDevice], list[int] | None], list[str]]] = {
    "-lgip": lambda devices, _: lists.gpu_instance_profiles(devices),
    "-lgipp": lambda devices, _: lists.placements(devices),
    "-lgi": lambda devices, _: lists.gpu_instances(devices),
    "-lcip": lists.compute_instance_profiles,
    "-lci": lists.compute_instances,
}


def _mig(driver: SmiDriver, found: dict[str, str], print_line: Report) -> int:
    if "-h" in found:
        print_line(_USAGE)
        return 0
    capable = [d for d in chosen(driver, found.get("-i")) if d.capable]
    devices = [d for d in capable if d.enabled]
    if not devices:
        print_line(f"No MIG-{'enabled' if capable else 'supported'} devices found.")
        return codes.NOT_FOUND
    instances, compute = numbers(found.get("-gi")), numbers(found.get("-ci"))
    if "-cgi" in found:
        return smi_changes.create(devices, found["-cgi"].split(","), "-C" in found, print_line)
    if "-cci" in found:
        requests = found["-cci"].split(",") if found["-cci"] else []
        return smi_changes.create_compute(devices, requests, instances, print_line)
    if "-dci" in found:
        return smi_changes.destroy_compute(devices, instances, compute, print_line)
    if "-dgi" in found:
        return smi_changes.destroy(devices, instances, print_line)
    for option, listing in _MIG_LISTS.items():
        if option in found:
            return _print(listing(devices, instances), print_line)
    raise InvalidArgumentsError("Option is missing. Please run 'nvidia-smi mig -h' for help.")


def _vgpu(driver: SmiDriver, found: dict[str, str], print_line: Report, send: Send) -> int:
    if "-h" in found:
        print_line(_USAGE)
        return 0
    devices = chosen(driver, found.get("-i"))
    if "-shm" in found:
        return smi_changes.mixed_size(devices, _switch(found["-shm"]), print_line)
    devices = vgpus.hosts(devices)
    if not devices:
        print_line("No supported devices in vGPU mode")
        return codes.NOT_SUPPORTED
    for option, call in (("-s", "DeviceGetSupportedVgpus"), ("-c", "DeviceGetCreatableVgpus")):
        if option in found:
            return _print(vgpus.listed(devices, call, "-v" in found), print_line)
    vms = _vms(send)
    if "-ss" in found:
        return _print(vgpus.schedulers(devices, vms), print_line)
    return _print(vgpus.report(devices, vms) if "-q" in found else vgpus.overview(devices, vms), print_line)


def _set_scheduler(driver: SmiDriver, found: dict[str, str], print_line: Report) -> int:
    """Set the scheduler. Strict round robin is on unless ``-a 0`` turns it off."""
    if "-h" in found:
        print_line(_USAGE)
        return 0
    values = [numbers(found.get(option, "0").replace(",", "")) for option in ("-p", "-ts", "-asf")]
    policy, time_slice, frequency = (value[0] for value in values if value)
    if found.get("-a", "1") not in ("0", "1"):
        raise InvalidArgumentsError("Option passed to set Adaptive Round Robin scheduler is invalid.")
    strict = 1 if found.get("-a") == "0" else 2
    state = policy, strict, time_slice, frequency
    return smi_changes.scheduler(chosen(driver, found.get("-i")), state, print_line)


def _vms(send: Send) -> list[dict[str, Any]]:
    """Return the VMs of the node, which the driver knows by their open handles."""
    text = send('control|{"do":"show"}').partition("|")[2]
    found: list[dict[str, Any]] = msgspec.json.decode(text, type=dict[str, Any])["vms"]
    return found


def main(words_: list[str]) -> int:
    """Run nvidia-smi. ``words_`` is the node's directory, then the program's arguments."""
    directory, *rest = words_
    try:
        if os.path.isdir(directory):  # otherwise no server must be started for it
            control.ensure_server(os.path.dirname(os.path.dirname(directory)))
        lines = control.connect(directory, "nvml.sock")
    except (OSError, AliquotError):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            f"NVIDIA driver is installed and running: no simulated node answers in {directory}."
        )
        return codes.DRIVER_NOT_LOADED
    try:
        return run(rest, lines.request, print, f"{os.getpid()}-smi")
    except BrokenPipeError:
        return 1  # the reader of our output has exited
    except ConnectionError:
        print("Unknown Error")  # the node disappeared meanwhile
        return codes.UNKNOWN % 256
    finally:
        lines.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
