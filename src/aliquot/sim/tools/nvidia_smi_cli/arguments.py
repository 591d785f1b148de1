"""The command line of nvidia-smi: options in any order, one or two dashes, values after a space or an equals sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aliquot.foundation.decimals import decimal
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice, SmiDriver

LONG = {
    "--id": "-i",
    "--list-gpus": "-L",
    "--query": "-q",
    "--multi-instance-gpu": "-mig",
    "--gpu-reset": "-r",
    "--help": "-h",
    "--version": "--version",
    "--list-gpu-instance-profiles": "-lgip",
    "--list-gpu-instance-possible-placements": "-lgipp",
    "--list-gpu-instances": "-lgi",
    "--list-compute-instance-profiles": "-lcip",
    "--list-compute-instances": "-lci",
    "--create-gpu-instance": "-cgi",
    "--create-compute-instance": "-cci",
    "--destroy-gpu-instance": "-dgi",
    "--destroy-compute-instance": "-dci",
    "--gpu-instance-id": "-gi",
    "--compute-instance-id": "-ci",
    "--default-compute-instance": "-C",
    "--supported": "-s",
    "--creatable": "-c",
    "--verbose": "-v",
    "--set-heterogeneous-mode": "-shm",
    "--set-vgpu-heterogeneous-mode": "-shm",
    "--schedulerstate": "-ss",
    "--policy": "-p",
    "--arr-mode": "-a",
    "--arr-sched-frequency": "-asf",
    "--arr-avg-factor": "-aavg",
    "--time-slice": "-ts",
}

MIG = {
    **dict.fromkeys(("-i", "-gi", "-ci", "-cgi"), 1),
    **dict.fromkeys(("-lgip", "-lgipp", "-lgi", "-lcip", "-lci", "-dgi", "-dci", "-C", "-h"), 0),
    "-cci": 2,
}
VGPU = {**dict.fromkeys(("-i", "-shm"), 1), **dict.fromkeys(("-q", "-s", "-c", "-v", "-ss", "-h"), 0)}
SCHEDULER = {**dict.fromkeys(("-i", "-p", "-a", "-asf", "-aavg", "-ts"), 1), "-h": 0}
TOP = {
    **dict.fromkeys(("-i", "-mig", "--query-gpu", "--format", "-pm", "-d"), 1),
    **dict.fromkeys(("-L", "-q", "-r", "-h", "--version"), 0),
}
"""Options, and what follows them: 1 a value, 2 an optional value."""


class InvalidArgumentsError(Exception):
    """A command line that nvidia-smi rejects; the text is its error message."""


def parse(words: Sequence[str], known: Mapping[str, int]) -> dict[str, str]:
    """Parse a command line into options and values ("" without a value). Raises InvalidArgumentsError."""
    found: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word, equals, value = waiting.pop(0).partition("=")
        option = LONG.get(word, word)
        if option not in known:
            raise InvalidArgumentsError(
                f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n{word}"
            )
        takes = known[option]
        if takes and not equals:
            follows = bool(waiting) and not waiting[0].startswith("-")
            if takes == 1 and not waiting:
                raise InvalidArgumentsError(f"Option {word} needs a value. Please run 'nvidia-smi -h' for help.")
            value = waiting.pop(0) if takes == 1 or follows else ""
        found[option] = value
    return found


def numbers(text: str | None) -> list[int] | None:
    """Parse ``1,2`` into numbers; None stays None. Raises InvalidArgumentsError."""
    if text is None:
        return None
    found = [number for part in text.split(",") if (number := decimal(part.strip())) is not None]
    if len(found) != text.count(",") + 1:
        raise InvalidArgumentsError(f"Invalid instance id: {text}")
    return found


def chosen(driver: SmiDriver, text: str | None) -> list[SmiDevice]:
    """Return the GPUs of ``-i``: by index, UUID or PCI address; all without it. Raises InvalidArgumentsError."""
    if text is None:
        return driver.devices
    found = []
    for word in text.split(","):
        device = next((d for d in driver.devices if _matches(d, word.strip())), None)
        if device is None:
            raise InvalidArgumentsError("No devices were found")
        found.append(device)
    return found


def _matches(device: SmiDevice, word: str) -> bool:
    if word in (str(device.index), device.facts["uuid"]):
        return True
    parts = word.lower().split(":")
    if len(parts) not in (2, 3) or not all(parts):
        return False
    own = device.pci.lower().split(":")
    try:
        same = len(parts) == 2 or int(parts[0], 16) == int(own[0], 16)
    except ValueError:
        return False
    place = parts[-1] if "." in parts[-1] else parts[-1] + ".0"
    return same and [parts[-2], place] == own[1:]
