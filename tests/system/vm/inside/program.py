"""The whole program on this guest: requests planned, applied, verified and restored after a reboot.

NVML is the simulator's library (no GPU is here); everything else that it reads and writes is the kernel's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from aliquot.cli.main import main
from system.vm.inside.checks import check, until
from system.vm.inside.machine import A2, FILES, PLAN, T4, device, driver, qemu, sh, stand_in

STATE, ROOT = "/var/tmp/simulated", "/var/tmp/driver"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
FOUR = ("--gpu", A2, "--vgpu", "A2-4Q*4")


def surroundings() -> dict[str, str]:
    place = {"ALIQUOT_STATE_DIR": STATE, "ALIQUOT_CACHE_DIR": PLAN["libraries"], "ALIQUOT_DRIVER_ROOT": ROOT}
    return place | {"NO_COLOR": "1"}


def aliquot(*words: str, status: int = 0) -> str:
    """Return the command line's output on both streams. It must end with that status. It runs in this process: an
    interpreter takes seconds to start in an emulated machine.
    """
    os.environ.update(surroundings())
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
        code = main(list(words))
    assert code == status, f"aliquot {' '.join(words)} ended with {code}, not {status}:\n{heard.getvalue()}"
    return heard.getvalue()


def process(*words: str) -> str:
    """Run the same as a program of its own, which must succeed."""
    os.environ.update(surroundings())
    return sh(sys.executable, "-m", "aliquot", *words)


def make_gpu(pci: str) -> dict[str, Any]:
    """Return a GPU as ``aliquot show -o json`` reports it."""
    shown = json.loads(aliquot("show", "-o", "json"))
    found: dict[str, Any] = next(each for each in shown["gpus"] if each["pci"] == pci)
    return found


def uuids() -> list[tuple[str, str]]:
    """Return function and UUID of every mediated device, read directly from sysfs."""
    root = "/sys/bus/mdev/devices"
    paths = [os.path.realpath(f"{root}/{each}") for each in os.listdir(root)]
    return sorted((os.path.basename(os.path.dirname(path)), os.path.basename(path)) for path in paths)


def reboot() -> None:
    """Simulate a reboot of the host: the driver starts again, created devices are gone, the boot id changes."""
    sh("rmmod", "nvidia_vgpu_vfio")
    new = Path("/run/boot_id")
    new.write_text(f"{uuid4()}\n")
    sh("mount", "--bind", str(new), BOOT_ID)
    stand_in("mdev")
    assert FILES.read(device(A2, "sriov_numvfs")) == "0"


@check(100)
def it_sees_the_machine() -> None:
    Path("/etc/aliquot").mkdir(exist_ok=True)
    Path("/etc/aliquot/directories").write_text("run=/run/aliquot-in-the-guest\nlib=/var/lib/aliquot-program\n")
    aliquot("sim", "start", "a2,tesla-t4", "--name", "guest")
    folder = Path(ROOT, "usr/lib/x86_64-linux-gnu")
    folder.mkdir(parents=True)
    aliquot("show", "--sim", "guest")  # which creates the node's library
    (folder / "libnvidia-ml.so.1").symlink_to(f"{STATE}/sim/guest/libnvidia-ml.so.1")
    reboot()
    shown = json.loads(aliquot("show", "-o", "json"))
    assert [each["pci"] for each in shown["gpus"]] == [A2, T4]
    assert shown["host"]["iommu"]
    assert shown["host"]["vgpu_manager"]
    assert make_gpu(A2)["virtual"]["total"] == 16
    assert make_gpu(T4)["virtual"]["world"] == "mdev"


@check(100)
def a_request_is_applied() -> str:
    """Apply virtual functions and four vGPUs, verified by another read, in one command. A second run does nothing."""
    aliquot("plan", *FOUR, status=10)  # changes are due
    assert uuids() == []
    answer = process("apply", *FOUR)
    made = uuids()
    assert [function for function, _ in made] == [f"0000:01:00.{number}" for number in (1, 2, 3, 4)], made
    assert len(make_gpu(A2)["virtual"]["functions"]) == 16
    assert {each["type"] for each in make_gpu(A2)["vgpus"]} == {"NVIDIA A2-4Q"}
    aliquot("apply", *FOUR)
    assert uuids() == made
    return answer.strip().splitlines()[-1]


@check(100)
def bad_requests_change_nothing() -> None:
    before = uuids()
    for types, rule in (("A2-4Q*5", "MAX_VGPUS"), ("A2-4Q,A2-8Q", "EQUAL_SIZE")):
        assert rule in aliquot("apply", "--gpu", A2, "--vgpu", types, status=20)
    assert uuids() == before


@check(150)
def a_running_machine_is_in_the_way() -> str:
    """Refuse a change with the VM's name while it runs, and apply it after the VM is gone."""
    before = uuids()
    function, uuid = before[0]
    with qemu("busy", f"sysfsdev=/sys/bus/mdev/devices/{uuid}"):
        until(lambda: any(each["holders"] for each in make_gpu(A2)["vgpus"]), 60)
        (row,) = (each for each in make_gpu(A2)["vgpus"] if each["holders"])
        assert (row["function"], row["holders"][0]["kind"], row["holders"][0]["name"]) == (function, "vm", "busy")
        answer = aliquot("apply", "--gpu", A2, "--vgpu", "none", status=20)
        assert "busy" in answer
        assert uuids() == before
    until(lambda: not any(each["holders"] for each in make_gpu(A2)["vgpus"]))
    aliquot("apply", "--gpu", A2, "--vgpu", "none")
    assert uuids() == []
    aliquot("apply", *FOUR)
    assert uuids() == before
    return answer.strip().splitlines()[0]


@check(100)
def another_request_destroys_only_what_is_over() -> None:
    before = uuids()
    aliquot("apply", "--gpu", A2, "--vgpu", "A2-4Q*2,A2-4C")
    now = uuids()
    assert len(now) == 3
    assert len(set(now) & set(before)) >= 2
    aliquot("apply", *FOUR)


@check(100)
def a_reboot_ends_with_the_same() -> str:
    """Restore the same functions, types and UUIDs with one ``aliquot restore --boot``."""
    before = uuids()
    aliquot("apply", "--gpu", T4, "--vgpu", "T4-8Q*2")
    both = uuids()
    reboot()
    assert uuids() == []
    process("restore", "--boot")
    assert uuids() == both
    assert len(both) == len(before) + 2
    return f"{len(both)} vGPUs"


@check(100)
def a_function_is_handed_out() -> None:
    """Pass a function through, and remove all vGPUs and functions in the end."""
    last = make_gpu(A2)["virtual"]["functions"][-1]["pci"]
    aliquot("passthrough", "enable", last)
    assert driver(last) == "vfio-pci"
    aliquot("passthrough", "disable", last)
    assert driver(last) == "nvidia"
    for pci in (A2, T4):
        aliquot("apply", "--gpu", pci, "--vgpu", "none")
    assert uuids() == []
    aliquot("vgpu", "disable", A2)
    assert FILES.read(device(A2, "sriov_numvfs")) == "0"
