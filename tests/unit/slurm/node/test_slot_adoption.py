"""A node becomes a slot board while it is empty, and only if its slurmd will number the slots in their order."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.errors import BlockedError, ConfigError
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.slot_board import is_board
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import order_file as orderfile
from aliquot.slurm.node.request import SlurmNodeSettings
from aliquot.slurm.node.slot_preparation import refuse_unsuitable
from support.slurmfake import Host, sorted_by_file

HALVES = "3g.20gb*2"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a static node with two whole GPUs."""
    made = Host(tmp_path, monkeypatch)
    made.static("gpu:a100:2")
    made.read_files()
    return made


def slots(host: Host) -> SlurmNodeSettings:
    return replace(host.settings, slots=True)


def etc(host: Host, name: str) -> Path:
    return host.folder / "etc" / name


def test_the_files_of_a_board_are_written_with_the_order_file(host: Host) -> None:
    assert host.apply("0", HALVES, slots(host)).status == "done"
    mine = block.block_of(etc(host, "gres.conf").read_text(), "n1")
    assert mine is not None
    assert is_board(mine.lines)
    assert etc(host, "fake_gpus.conf").read_text() == ""
    assert sorted(map(str, host.now.gres)) == ["gpu:a100:1", "gpu:a100_3g.20gb:2", "gpu:pad:12"]
    assert len(host.context.file.read().expected.devices) == 15  # type: ignore[union-attr]


def test_a_failed_adoption_removes_the_order_file_again(host: Host) -> None:
    def fails() -> None:
        raise BlockedError("no")

    host.at("verify", fails)
    outcome = host.apply("0", HALVES, slots(host))
    assert outcome.status == "undone"
    assert not etc(host, "fake_gpus.conf").exists()
    assert "pad" not in etc(host, "gres.conf").read_text()
    assert "pad" not in etc(host, "slurm.conf").read_text()


def test_a_slurmd_that_sorts_otherwise_is_found_before_the_files_are_written(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "parse", lambda texts, name: sorted_by_file({"gres.conf": texts["gres.conf"]}))
    outcome = host.apply("0", HALVES, slots(host))
    assert outcome.status == "undone"
    assert "slurmd reads the new gres.conf differently: slurmd reads" in outcome.why
    assert "at index" in outcome.why
    assert not etc(host, "fake_gpus.conf").exists()


def test_without_slurmd_nothing_proves_the_order(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise NoSlurmError("slurmd is not installed on this host, so the files cannot be validated")

    monkeypatch.setattr(validate, "parse", absent)
    assert host.apply("0", HALVES, slots(host)).status == "undone"
    assert not etc(host, "fake_gpus.conf").exists()


def test_a_dynamic_node_is_refused_with_the_command_that_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, monkeypatch)
    with pytest.raises(BlockedError, match="no slot board: n1 is a dynamic node") as refused:
        host.apply("0", HALVES, slots(host))
    assert refused.value.next_step == "aliquot slurm apply --node-name n1 --jobs wait"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("State=FUTURE", "n1 has State=FUTURE in slurm.conf"),
        ("State=CLOUD", "n1 has State=CLOUD in slurm.conf"),
    ],
)
def test_a_node_that_slurm_brings_up_itself_is_refused(host: Host, line: str, why: str) -> None:
    conf = etc(host, "slurm.conf")
    conf.write_text(conf.read_text().replace("RealMemory=1000", f"RealMemory=1000 {line}"))
    with pytest.raises(BlockedError, match=why):
        host.apply("0", HALVES, slots(host))


def test_detection_by_slurmd_is_refused(host: Host) -> None:
    with pytest.raises(BlockedError, match="--autodetect nvml has none"):
        host.apply("0", HALVES, replace(slots(host), form="nvml"))
    etc(host, "gres.conf").write_text("AutoDetect=nvml\n")
    with pytest.raises(BlockedError, match=r"gres\.conf:1: AutoDetect=nvml applies to all nodes") as refused:
        host.apply("0", HALVES, slots(host))
    assert refused.value.next_step == "aliquot slurm apply --slots --autodetect off --node-name n1"
    assert host.apply("0", HALVES, replace(slots(host), form="off")).status == "done"


def test_a_slurmd_without_files_of_its_own_is_refused(host: Host) -> None:
    with pytest.raises(BlockedError, match=r"without files of its own \(--conf-server\)"):
        host.apply("0", HALVES, replace(slots(host), start="slurmd --conf-server ctl"))
    cache = host.folder / "spool/n1/conf-cache"
    cache.mkdir(parents=True)
    (cache / "slurm.conf").write_text("")
    conf = etc(host, "slurm.conf")
    conf.write_text(f"SlurmdSpoolDir={host.folder}/spool/%n\n{conf.read_text()}")
    with pytest.raises(BlockedError, match="conf-cache"):
        host.apply("0", HALVES, slots(host))


@pytest.mark.parametrize(("constrain", "groups", "refused"), [("yes", 2, True), ("no", 2, False), ("yes", 1, False)])
def test_an_old_release_cannot_deny_so_many_devices_by_a_program(
    host: Host, constrain: str, groups: int, refused: bool
) -> None:
    settings = replace(slots(host), root=str(host.folder))
    etc(host, "cgroup.conf").write_text(f"ConstrainDevices={constrain}\n")
    if groups == 2:
        (host.folder / "sys/fs/cgroup").mkdir(parents=True)
        (host.folder / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset memory\n")
    found = files.conf_of(settings)
    refuse_unsuitable(settings, "static", found, Version(23, 2, 4))
    if refused:
        with pytest.raises(BlockedError, match=r"Slurm 22\.05\.8 cannot deny jobs so many devices"):
            refuse_unsuitable(settings, "static", found, Version(22, 5, 8))
        with pytest.raises(BlockedError, match=r"Slurm 23\.02\.3 cannot"):
            refuse_unsuitable(settings, "static", found, Version(23, 2, 3))
    else:
        refuse_unsuitable(settings, "static", found, Version(22, 5, 8))


def test_an_order_file_with_content_is_not_ours(host: Host) -> None:
    etc(host, "fake_gpus.conf").write_text("a100|2|0-1|(null)|/dev/nvidia0\n")
    with pytest.raises(ConfigError, match="is not empty"):
        host.apply("0", HALVES, slots(host))
    assert host.apply("0", HALVES).status == "done"
    assert etc(host, "fake_gpus.conf").exists()


OTHER = block.render_block("n9", ("NodeName=n9 Name=gpu Type=a100 File=/dev/nvidia0",))


def test_another_node_in_gres_conf_must_not_share_the_order_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    etc(host, "gres.conf").write_text(OTHER)
    monkeypatch.setattr(orderfile, "is_shared", lambda folder: True)
    with pytest.raises(BlockedError, match="n1 would be a slot board, and n9 is not, but both read"):
        host.apply("0", HALVES, slots(host))
    monkeypatch.setattr(orderfile, "is_shared", lambda folder: False)
    assert host.apply("0", HALVES, slots(host)).status == "done"
    assert any("n9 must not share it" in line for line in host.messages)


def test_a_board_becomes_a_plain_node_only_if_no_other_board_needs_the_order_file(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.apply("0", HALVES, slots(host)).status == "done"
    gres = etc(host, "gres.conf")
    mine = block.block_of(gres.read_text(), "n1")
    assert mine is not None
    other = tuple(line.replace("NodeName=n1", "NodeName=n9") for line in mine.lines)
    gres.write_text(gres.read_text() + block.render_block("n9", other))
    monkeypatch.setattr(orderfile, "is_shared", lambda folder: True)
    with pytest.raises(BlockedError, match="n1 would be not a slot board, and n9 is"):
        host.apply("0", HALVES)
    monkeypatch.setattr(orderfile, "is_shared", lambda folder: False)
    host.cluster.change("n1", slurmd_start=1000)
    assert host.apply("0", HALVES).status == "done"
    assert not etc(host, "fake_gpus.conf").exists()


@pytest.mark.parametrize(
    ("kind", "shared"), [("ext4", False), ("nfs4", True), ("fuse.glusterfs", True), ("overlay", False)]
)
def test_a_network_file_system_is_shared(tmp_path: Path, kind: str, shared: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"30 22 0:50 /etc {tmp_path} rw shared:1 - {kind} server:/etc rw\n"
        "31 22 0:51 / /else rw - nfs4 server:/x rw\n"
    )
    assert orderfile.is_shared(str(tmp_path / "slurm"), str(mounts)) is shared
    assert not orderfile.is_shared(str(tmp_path), str(tmp_path / "none"))
