"""``aliquot slurm apply --slots`` on real clusters of both releases: a node becomes a slot board, and one no longer."""

from __future__ import annotations

from .applying import ended, idle
from .bed import Bed, until
from .slotted import adopted, runs, slot_host


def test_an_empty_node_becomes_a_slot_board_once(bed: Bed) -> None:
    host = slot_host(bed)
    outcome = host.slots("--gpu", "0", "--mig", "3g.20gb@4,1g.5gb@0")
    assert outcome["status"] == "done"
    assert host.types() == {0: "1g.5gb", 4: "3g.20gb", 7: "a100"}
    assert sorted(host.gres().split(",")) == ["gpu:a100:1", "gpu:a100_1g.5gb:1", "gpu:a100_3g.20gb:1", "gpu:pad:12"]
    assert (bed.etc / "fake_gpus.conf").read_text() == ""
    jobs = [runs(bed, kind) for kind in ("3g.20gb", "1g.5gb")]
    assert host.used() == {0, 4}
    ended(bed, bed.submit("true", "-w", "n1", "--gres=gpu:a100:1").out)
    bed.ok("scancel", *jobs)


def test_a_node_with_jobs_does_not_become_a_slot_board(bed: Bed) -> None:
    host = slot_host(bed)
    host.applied("--gpu", "0-1", "--mig", "7g.40gb")
    job = runs(bed, "7g.40gb")
    refused = host.tried()
    assert refused.code == 20, refused
    assert f"job {job} (" in refused.err
    assert "pad" not in host.gres()
    assert not (bed.etc / "fake_gpus.conf").exists()


def test_a_board_that_is_as_requested_is_left_alone(bed: Bed) -> None:
    host = adopted(bed)
    began = bed.field("n1", "SlurmdStartTime")
    assert host.slots("--gpu", "0-1", "--mig", "7g.40gb")["status"] == "nothing"
    assert bed.field("n1", "SlurmdStartTime") == began


def test_without_slots_the_node_has_a_record_for_each_device_again(bed: Bed) -> None:
    host = adopted(bed)
    outcome = host.applied("--gpu", "0", "--mig", "3g.20gb*2")
    assert outcome["status"] == "done"
    assert sorted(host.gres().split(",")) == ["gpu:a100_3g.20gb:2", "gpu:a100_7g.40gb:1"]
    assert not (bed.etc / "fake_gpus.conf").exists()
    assert len(host.lines()) == 3
    ended(bed, bed.submit("true", "-w", "n1", "--gres=gpu:a100_3g.20gb:1").out)


def test_a_slot_board_that_cannot_be_made_leaves_the_node_as_it_was(bed: Bed) -> None:
    host = slot_host(bed)
    host.applied("--gpu", "0-1", "--mig", "7g.40gb")
    files = [(bed.etc / name).read_text() for name in ("slurm.conf", "gres.conf")]
    host.ok("sim", "fault", "fail", "call=DeviceCreateGpuInstanceWithPlacement", "code=999", "calls=1")
    undone = host.tried("--gpu", "0", "--mig", "3g.20gb*2")
    host.ok("sim", "fault", "none")
    assert undone.code == 40, undone
    assert host.gres() == "gpu:a100_7g.40gb:2"
    assert [(bed.etc / name).read_text() for name in ("slurm.conf", "gres.conf")] == files
    assert not (bed.etc / "fake_gpus.conf").exists()
    assert "INVAL" not in bed.state("n1")


def test_after_a_reboot_the_markers_and_the_numbers_are_there_before_slurmd_starts(bed: Bed) -> None:
    host = adopted(bed, "--gpu", "0", "--mig", "3g.20gb*2")
    before = host.lines()
    numbers = (bed.folder / "numbers/n1.json").read_text()
    bed.ok("sh", "-c", host.stop)
    bed.ok("sh", "-c", "rm -r /dev/aliquot /dev/nvidia*")
    (bed.folder / "numbers/n1.json").unlink()
    host.ok("sim", "reboot")
    host.ok("restore", "--boot", "--wait", "0")
    words = ("--number", "--make-devices", "--part", "gres", "--node-name", "n1", "--dev-root", "/")
    assert host.ok("slurm", "render", *words).splitlines() == before
    assert (bed.folder / "numbers/n1.json").read_text() == numbers
    bed.ok("sh", "-c", host.start)
    until(lambda: idle(bed, "n1"), lambda: bed.state("n1"))
    ended(bed, bed.submit("true", "-w", "n1", "--gres=gpu:a100_3g.20gb:1").out)
