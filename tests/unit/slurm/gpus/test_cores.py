"""``Cores=`` from sysfs: Slurm's numbers, whole sockets, and no value if nothing is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.slurm.gpus import cores

PCI = "0000:07:00.0"


def machine(root: Path, packages: int, per_package: int, threads: int, near: str, *, spread: bool = True) -> str:
    """Write a sysfs of packages with cores and threads, numbered as kernels do on servers (``spread``). That order is
    the first thread of every core, package by package, then the second. Without ``spread``, the threads of a core are
    adjacent.
    """
    total = packages * per_package
    for number in range(total * threads):
        core = number % total if spread else number // threads
        package = core // per_package
        place = root / f"sys/devices/system/cpu/cpu{number}/topology"
        place.mkdir(parents=True)
        mine = [n for n in range(total * threads) if (n % total if spread else n // threads) == core]
        all_of = [
            n for n in range(total * threads) if (n % total if spread else n // threads) // per_package == package
        ]
        (place / "core_cpus_list").write_text(cores.ranges(mine) + "\n")
        (place / "package_cpus_list").write_text(cores.ranges(all_of) + "\n")
    (root / "sys/devices/system/cpu/online").write_text(f"0-{total * threads - 1}\n")
    device = root / f"sys/bus/pci/devices/{PCI}"
    device.mkdir(parents=True)
    (device / "local_cpulist").write_text(near + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("near", "spread", "expected"),
    [
        ("0-7,16-23", True, "0-7"),
        ("8-15,24-31", True, "8-15"),
        ("0-15", False, "0-7"),
        ("16-31", False, "8-15"),
        ("0-31", True, None),  # close to all cores: no value
        ("", True, None),
        ("nonsense", True, None),
    ],
)
def test_cores_are_slurms_not_the_kernels(tmp_path: Path, near: str, spread: bool, expected: str | None) -> None:
    found = cores.near_cores([PCI], root=machine(tmp_path, 2, 8, 2, near, spread=spread))
    assert found.by_pci.get(PCI) == expected
    assert found.notes == ()


def test_a_part_of_a_socket_is_reported_only_when_asked(tmp_path: Path) -> None:
    root = machine(tmp_path, 2, 8, 2, "0-3,16-19")
    assert cores.near_cores([PCI], root=root).by_pci == {}
    assert "numa_node_as_socket" in cores.near_cores([PCI], root=root).notes[0]
    assert cores.near_cores([PCI], "near", root).by_pci == {PCI: "0-3"}
    assert cores.near_cores([PCI], "none", root) == cores.Cores()


def test_cores_that_share_a_cache_stand_together(tmp_path: Path) -> None:
    # If caches interleave (0,2 and 1,3), hwloc numbers 0,2,1,3.
    root = machine(tmp_path, 1, 4, 1, "1,3")
    for number, shared in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        place = tmp_path / f"sys/devices/system/cpu/cpu{number}/cache/index3"
        place.mkdir(parents=True)
        (place / "shared_cpu_list").write_text(shared)
    assert cores.near_cores([PCI], "near", root).by_pci == {PCI: "2-3"}


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    assert cores.near_cores([PCI], root=str(tmp_path)) == cores.Cores()


def test_offline_processors_are_no_cores(tmp_path: Path) -> None:
    root = machine(tmp_path, 2, 4, 1, "4-7")
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-2,4-7\n")
    assert cores.near_cores([PCI], root=root).by_pci == {PCI: "3-6"}
