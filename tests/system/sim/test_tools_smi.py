"""The stand-in for nvidia-smi prints what real ones printed, byte for byte if the recorded state can be produced."""

from __future__ import annotations

import re

import pytest

from system.sim.captures import answer, sessions
from system.sim.smi import Smi


def replay(node: Smi, file: str, *commands: str) -> None:
    """Run recorded commands and compare each output with the recording."""
    seen: dict[str, int] = {}
    for command in commands:
        nth = seen[command] = seen.get(command, -1) + 1
        assert node(command)[1] == answer(file, command, nth), command


def test_an_a100_from_listing_to_removal() -> None:
    node = Smi("a100-80gb-pcie:swapped", "515.86.01")
    replay(
        node,
        "a100-pcie-80gb-515.86.01.txt",
        "nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb",
        "nvidia-smi mig -i 0 -lgi",
        "nvidia-smi mig -i 0 -gi 1 -cci 1c.3g.40gb,1c.3g.40gb",
        "nvidia-smi mig -i 0 -gi 1 -lci",
        "nvidia-smi mig -i 0 -gi 1 -ci 0,1 -dci",
        "nvidia-smi mig -i 0 -gi 1 -dgi",
    )


def test_listed_memory_is_all_that_moves_with_the_driver() -> None:
    # Catalog, disagreement 3: 7g.80gb has 79.00 GiB there and 78.75 elsewhere.
    recorded = answer("a100-pcie-80gb-515.86.01.txt", "nvidia-smi mig -i 0 -lgip")
    listed = Smi("a100-80gb-pcie:swapped", "515.86.01").ok("mig -i 0 -lgip")
    assert listed == recorded.replace("79.00", "78.75")


def test_instances_of_two_gpus_and_the_parts_of_instances() -> None:
    node = Smi("a100-sxm4-80gb:swapped*2", "550.54.14")
    replay(
        node,
        "a100-sxm4-80gb-550.54.14.txt",
        "nvidia-smi mig -cgi 3g.40gb,4g.40gb -i 0",
        "nvidia-smi mig -i 0 -lgip",
        "nvidia-smi mig -lgi",
        "nvidia-smi mig -i 0 -lcip",
        "nvidia-smi mig -i 0 -cci 0,1 -gi 1",
        "nvidia-smi mig -i 0 -cci 0,1 -gi 2",
        "nvidia-smi mig -i 1 -cgi 2g.20gb,2g.20gb,1g.10gb -C",
    )
    shown = node.ok("-i 0 -L")
    assert _no_uuids(shown) == _no_uuids(answer("a100-sxm4-80gb-550.54.14.txt", "nvidia-smi -L"))


def _no_uuids(text: str) -> str:
    return re.sub(r"(GPU|MIG)-[0-9a-f-]{36}", r"\1", text)


def test_an_a30_grows() -> None:
    node = Smi("a30", "535.183.01")
    replay(
        node,
        "a30-535.183.01.txt",
        "nvidia-smi mig -lgipp",
        "nvidia-smi mig -lgip",
        "nvidia-smi mig -lgi",
        "nvidia-smi mig -cgi 14 -C",
        "nvidia-smi mig -lgi",
        "nvidia-smi mig -cgi 14 -C",
        "nvidia-smi mig -cgi 5 -C",
        "nvidia-smi mig -lgi",
        "nvidia-smi mig -lcip -gi 2",
        "nvidia-smi mig -lcip -gi 3",
    )
    assert _no_uuids(node.ok("-L")) == _no_uuids(answer("a30-535.183.01.txt", "nvidia-smi -L", 1))


def test_a_busy_gpu_makes_no_instances() -> None:
    node = Smi("gh200-480gb", "550.54.14")
    recorded = "gh200-96gb.txt"
    assert node.ok("mig -lgip") == answer(recorded, "nvidia-smi mig -lgip")
    node.memory.control("hold", gpu=0, name="nsys")
    eight = "nvidia-smi mig -cgi 20,20,20,20,20,20,20,20 -C"
    assert node(eight) == (19, answer(recorded, eight))
    node.memory.control("release", gpu=0)
    node.ok("mig -cgi 20 -C")  # one existed: there is a single set of media engines, and the fourth placement is taken
    three = "nvidia-smi mig -cgi 20,20,20 -C"
    assert node(three) == (23, answer(recorded, three))
    replay(node, recorded, "nvidia-smi mig -cgi 15,15,15 -C")


def test_an_nvl_board() -> None:
    node = Smi("h100-nvl", "550.54.14")
    node.ok("mig -cgi 9,9")
    replay(node, "h100-nvl-lgip-lgi.txt", "nvidia-smi mig -lgi", "nvidia-smi mig -lgip")


def test_a_walk_through_on_r570() -> None:
    node = Smi("h100-pcie:swapped", "570.169", mig=False)
    node.node.gpus[0].state.persistence = False
    file = "h100-pcie-80gb-570.169.txt"
    replay(
        node,
        file,
        "nvidia-smi -i 0 -mig 1",
        "nvidia-smi -i 0 --query-gpu=pci.bus_id,mig.mode.current --format=csv",
        "nvidia-smi mig -lgip",
        "nvidia-smi mig -cgi 19,19,19,19,19,19,19 -C",
    )
    ours, theirs = node.ok(""), answer(file, "nvidia-smi")
    recorded = _idle(theirs).splitlines()
    assert _idle(ours).splitlines()[1 : len(recorded) + 1] == recorded, "equal after the date, as far as recorded"


def _idle(text: str) -> str:
    """Remove what differs from one minute to the next: temperature, power, memory in use."""
    text = re.sub(r"\d+C( +P0 +)\d+W / +\d+W", r"..C\1..W", text)
    text = re.sub(r"\d+(MiB / +\d+MiB)", lambda m: "n".rjust(len(m[0]) - len(m[1])) + m[1], text)
    return re.sub(r" +n", " n", re.sub(r" +\.\.W", " ..W", text))


def test_a_blackwell_workstation_board() -> None:
    node = Smi("rtx-pro-6000-blackwell-server-edition*2", mig=False)
    for gpu in node.node.gpus:
        gpu.state.persistence = False
    file = "rtx-pro-6000-se.txt"
    replay(
        node,
        file,
        "nvidia-smi -i 0 --query-gpu=index,name,mig.mode.current --format=csv",
        "nvidia-smi -i 0 -mig 1",
        "nvidia-smi mig -i 0 -lgip",
        "nvidia-smi mig -i 0 -lgipp",
        "nvidia-smi mig -i 0 -cgi 1g.24gb,1g.24gb,1g.24gb,1g.24gb -C",
    )
    recorded = answer(file, "nvidia-smi mig -i 0 -lci").splitlines()
    assert node.ok("mig -i 0 -lci").splitlines() == [line for line in recorded if not line.startswith("(")]
    assert node("mig -i 0 -dgi") == (19, answer(file, "nvidia-smi mig -i 0 -dgi"))
    replay(node, file, "nvidia-smi mig -i 0 -dci")
    assert node("mig -i 0 -dgi") == (0, answer(file, "nvidia-smi mig -i 0 -dgi", 1))
    replay(node, file, "nvidia-smi -i 0 -mig 0", "nvidia-smi -i 0 -mig 1")
    replay(node, file, "nvidia-smi mig -i 0 -cgi 2g.48gb,1g.24gb,1g.24gb -C", "nvidia-smi mig -i 0 -lgi")


def test_a_mode_change_under_another_client_stays_pending() -> None:
    node = Smi("a100-80gb-pcie", "515.86.01", mig=False)
    node.memory.open(101)
    status, text = node("-i 0 -mig 1")
    recorded = answer("a100-pcie-80gb-515.86.01.txt", "nvidia-smi -i 0 -mig 1")
    assert (status, text) == (0, recorded.replace("00000001:00:00.0", "00000000:01:00.0"))
    assert node.ok("--query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader") == "Disabled, Enabled\n"
    status, text = node("-r -i 0")
    assert status == 19
    assert "In use by another client" in text
    assert "being used by" in text


def test_a_gpu_is_reset_by_a_program_that_holds_no_session() -> None:
    node = Smi("a100-80gb-pcie")
    node.ok("mig -cgi 9 -C")
    assert node.ok("-i 00000000:01:00.0 -r") == "GPU 00000000:01:00.0 was successfully reset.\nAll done.\n"
    assert node("mig -lgi") == (6, "No GPU instances found: Not Found\n")


def test_a_gpu_without_mig_is_a_warning() -> None:
    node = Smi("a100-pcie-40gb,a2")
    status, text = node("-mig 1")
    assert status == 0
    assert "Unable to enable MIG Mode for GPU 00000000:02:00.0: Not Supported\nTreating as warning" in text
    query = "--query-gpu=name,pci.bus_id,mig.mode.current,mig.mode.pending --format=csv,noheader"
    recorded = answer("a100-pcie-40gb-lgip.txt", f"nvidia-smi {query}")
    addresses = {"00000000:04:00.0": "00000000:01:00.0", "00000000:08:00.0": "00000000:02:00.0"}
    for there, here in addresses.items():
        recorded = recorded.replace(there, here)
    assert node.ok(query) == recorded
    assert node("mig -i 1 -lgip") == (6, "No MIG-supported devices found.\n")


@pytest.mark.parametrize("word", ["1", "00000000:02:00.0", "0000:02:00.0", "02:00.0", "0000:02:00"])
def test_gpus_are_named_as_people_do(word: str) -> None:
    node = Smi("a100-pcie-40gb*2")
    assert node.ok(f"-i {word} --query-gpu=gpu_bus_id --format=csv,noheader") == "00000000:02:00.0\n"
    unique = node.ok(f"-i {word} --query-gpu=uuid --format=csv,noheader").strip()
    assert node.ok(f"--id={unique} --query-gpu=index --format=csv,noheader") == "1\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("-i 7 -L", 6),
        ("mig -i 0 -lgi", 6),
        ("mig -lci", 6),
        ("mig -dgi", 6),
        ("mig -dgi -gi 5", 6),
        ("mig -cgi 99", 2),
        ("mig -cgi 9:3", 2),
        ("mig -cgi 0,19", 23),
        ("mig", 2),
        ("-mig 2", 2),
        ("--query-gpu=name", 2),
        ("--query-gpu=colour --format=csv", 2),
        ("--frobnicate", 2),
        ("mig -gi x -lci", 2),
    ],
)
def test_exit_codes(command: str, status: int) -> None:
    node = Smi("a100-pcie-40gb")
    assert node(command)[0] == status
    assert not node.node.sessions, "a program that has ended has no session"


def test_units_and_headers() -> None:
    node = Smi("a100-pcie-40gb")
    query = "--query-gpu=name,memory.total --format="
    assert node.ok(query + "csv") == "name, memory.total [MiB]\nNVIDIA A100-PCIE-40GB, 40960 MiB\n"
    assert node.ok(query + "csv,noheader,nounits") == "NVIDIA A100-PCIE-40GB, 40960\n"


def test_the_parser_of_harvester_reads_our_listings() -> None:
    # Harvester (pcidevices, gpuhelper) keeps lines with MIG, drops bars, collapses blanks and splits.

    def words(text: str) -> list[list[str]]:
        return [line.replace("|", " ").split() for line in text.splitlines() if "MIG" in line]

    node = Smi("h100-nvl")
    node.ok("mig -i 0 -cgi 9,14 -C")
    profiles = {row[2]: (row[3], row[4]) for row in words(node.ok("mig -i 0 -lgip"))}
    assert profiles["3g.47gb"] == ("9", "0/2")
    assert profiles["1g.12gb"] == ("19", "2/7")
    assert profiles["1g.12gb+me"] == ("20", "1/1")
    assert [row[2:] for row in words(node.ok("mig -i 0 -lgi"))] == [
        ["2g.24gb", "14", "3", "0:2"],
        ["3g.47gb", "9", "2", "4:4"],
    ]
    assert [(row[1], row[3], row[5]) for row in words(node.ok("mig -i 0 -lci"))] == [
        ("3", "2g.24gb", "0"),
        ("2", "3g.47gb", "0"),
    ]


def test_every_recorded_listing_of_profiles_has_our_shape() -> None:
    # The heads and rules of each recorded table are among the printed ones.
    narrow = Smi("a100-pcie-40gb", "550.54.14").ok("mig -lgip").splitlines()
    wide = Smi("h100-80gb-hbm3", "570.169").ok("mig -lgip").splitlines()
    for file in ("a100-pcie-40gb-lgip.txt", "h100-sxm-80gb.txt", "rtx-pro-6000-vgpu-host.txt"):
        for command, text in sessions(file):
            if "-lgip" in command and "-lgipp" not in command:
                assert text.splitlines()[:5] in (narrow[:5], wide[:5]), file
