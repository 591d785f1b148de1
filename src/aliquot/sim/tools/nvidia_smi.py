"""``nvidia-smi`` of a simulated node: listings, MIG, vGPU types and modes, in the words of the real one.

Texts and exit codes are those of captures of public hosts; where none exists, of NVIDIA's guides. The exit status of a
refusal is NVML's code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from aliquot.errors import AliquotError
from aliquot.sim import codes
from aliquot.sim import lifecycle as control
from aliquot.sim.codes import Refused
from aliquot.sim.tools.nvidia_smi_cli import changes as acts
from aliquot.sim.tools.nvidia_smi_cli import mig_lists as lists
from aliquot.sim.tools.nvidia_smi_cli import overview, query, vgpus
from aliquot.sim.tools.nvidia_smi_cli import query_report as report
from aliquot.sim.tools.nvidia_smi_cli.arguments import MIG, TOP, VGPU, Wrong, chosen, numbers, parse
from aliquot.sim.tools.nvidia_smi_cli.driver import Device, Driver, NotOpened, words

Send = Callable[[str], str]
Say = Callable[[str], None]

_USAGE = """\
NVIDIA System Management Interface -- a stand-in for a simulated node

    nvidia-smi [-i GPUS] [-L | -q | -mig 0|1 | -r | --query-gpu=FIELDS --format=csv[,noheader][,nounits]]
    nvidia-smi mig [-i GPUS] -lgip | -lgipp | -lgi | -lcip | -lci | -cgi PROFILES [-C] | -cci [PROFILES] [-gi IDS]
                             | -dci [-gi IDS] [-ci IDS] | -dgi [-gi IDS]
    nvidia-smi vgpu [-i GPUS] [-q | -s [-v] | -c [-v] | -shm 0|1]"""


def run(arguments_: Sequence[str], send: Send, say: Say, token: str) -> int:
    """One command; its exit status. ``send`` is a line to the node and its answer, ``say`` prints a line."""
    driver = Driver(send, token)
    first = arguments_[0] if arguments_ else ""
    try:
        if first == "mig":
            return _mig(driver, parse(arguments_[1:], MIG), say)
        if first == "vgpu":
            return _vgpu(driver, parse(arguments_[1:], VGPU), say, send)
        return _top(driver, parse(arguments_, TOP), say)
    except Wrong as complaint:
        say(str(complaint))
        return codes.NOT_FOUND if str(complaint).startswith("No devices") else codes.INVALID_ARGUMENT
    except lists.Nothing as nothing:
        say(str(nothing))
        return codes.NOT_FOUND
    except NotOpened as refusal:
        say(f"Failed to initialize NVML: {words(refusal.code)}")
        return refusal.code
    except Refused as refusal:
        say(words(refusal.code))
        return refusal.code
    finally:
        driver.close()


def _top(driver: Driver, found: dict[str, str], say: Say) -> int:
    if "-h" in found:
        say(_USAGE)
        return 0
    devices = chosen(driver, found.get("-i"))
    if not devices:
        raise Wrong("No devices were found")
    if "-mig" in found:
        return acts.mig_mode(devices, _switch(found["-mig"]), say)
    if "-r" in found:
        return acts.reset(devices, say)
    if "--query-gpu" in found:
        return _query(devices, found, say)
    if "--version" in found:
        lines = [f"NVIDIA-SMI version  : {driver.version}", f"DRIVER version      : {driver.version}"]
    elif "-L" in found:
        lines = overview.gpus(devices)
    elif "-q" in found:
        lines = report.log(devices)
    else:
        lines = overview.table(devices)
    return _print(lines, say)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise Wrong(f"Invalid mode: {text}. Please run 'nvidia-smi -h' for help.")
    return text == "1"


def _print(lines: Sequence[str], say: Say) -> int:
    for line in lines:
        say(line)
    return 0


def _query(devices: Sequence[Device], found: dict[str, str], say: Say) -> int:
    options = [word.strip() for word in found.get("--format", "").split(",")]
    if "csv" not in options:
        raise Wrong("\"--format=\" switch is missing csv. Please run 'nvidia-smi -h' for help.")
    try:
        return _print(query.answer(devices, found["--query-gpu"].split(","), options), say)
    except query.UnknownField as unknown:
        say(f'Field "{unknown}" is not a valid field to query.\n')
        return codes.INVALID_ARGUMENT


def _mig(driver: Driver, found: dict[str, str], say: Say) -> int:
    if "-h" in found:
        say(_USAGE)
        return 0
    capable = [d for d in chosen(driver, found.get("-i")) if d.capable]
    devices = [d for d in capable if d.enabled]
    if not devices:
        say(f"No MIG-{'enabled' if capable else 'supported'} devices found.")
        return codes.NOT_FOUND
    instances, compute = numbers(found.get("-gi")), numbers(found.get("-ci"))
    if "-cgi" in found:
        return acts.create(devices, found["-cgi"].split(","), "-C" in found, say)
    if "-cci" in found:
        requests = found["-cci"].split(",") if found["-cci"] else []
        return acts.create_compute(devices, requests, instances, say)
    if "-dci" in found:
        return acts.destroy_compute(devices, instances, compute, say)
    if "-dgi" in found:
        return acts.destroy(devices, instances, say)
    if "-lgip" in found:
        return _print(lists.gpu_instance_profiles(devices), say)
    if "-lgipp" in found:
        return _print(lists.placements(devices), say)
    if "-lgi" in found:
        return _print(lists.gpu_instances(devices), say)
    if "-lcip" in found:
        return _print(lists.compute_instance_profiles(devices, instances), say)
    if "-lci" in found:
        return _print(lists.compute_instances(devices, instances), say)
    raise Wrong("Option is missing. Please run 'nvidia-smi mig -h' for help.")


def _vgpu(driver: Driver, found: dict[str, str], say: Say, send: Send) -> int:
    if "-h" in found:
        say(_USAGE)
        return 0
    devices = chosen(driver, found.get("-i"))
    if "-shm" in found:
        return acts.mixed_size(devices, _switch(found["-shm"]), say)
    devices = vgpus.hosts(devices)
    if not devices:
        say("No supported devices in vGPU mode")
        return codes.NOT_SUPPORTED
    for option, call in (("-s", "DeviceGetSupportedVgpus"), ("-c", "DeviceGetCreatableVgpus")):
        if option in found:
            return _print(vgpus.listed(devices, call, "-v" in found), say)
    machines = _machines(send)
    return _print(vgpus.report(devices, machines) if "-q" in found else vgpus.overview(devices, machines), say)


def _machines(send: Send) -> list[dict[str, Any]]:
    """The virtual machines of the node, which the driver knows by their open handles."""
    text = send('control|{"do":"show"}').partition("|")[2]
    found: list[dict[str, Any]] = msgspec.json.decode(text, type=dict[str, Any])["vms"]
    return found


def main(words_: list[str]) -> int:
    """``words_``: the node's folder, then what nvidia-smi was called with."""
    directory, *rest = words_
    try:
        if os.path.isdir(directory):  # else nobody shall start a server for it
            control.ensure(os.path.dirname(os.path.dirname(directory)))
        lines = control.connect(directory, "nvml.sock")
    except (OSError, AliquotError):
        print(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            f"NVIDIA driver is installed and running: no simulated node answers in {directory}."
        )
        return codes.DRIVER_NOT_LOADED
    try:
        return run(rest, lines.ask, print, f"{os.getpid()}-smi")
    except BrokenPipeError:
        return 1  # whoever read our words has left
    except ConnectionError:
        print("Unknown Error")  # the node went away meanwhile
        return codes.UNKNOWN % 256
    finally:
        lines.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
