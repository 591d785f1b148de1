"""Files of a Slurm node: only Aliquot's part changes, byte for byte, completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.errors import ConfigError, StorageError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node.config_files import DesiredFile
from aliquot.slurm.node.request import NodeKind, SlurmNodeSettings

LINES = ("NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0",)


def settings(folder: Path, *, kind: NodeKind | Literal[""] = "", options_file: str = "") -> SlurmNodeSettings:
    return SlurmNodeSettings("n1", conf_dir=str(folder), kind=kind, options_file=options_file)


TEXT = st.text(st.characters(codec="ascii", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e"), max_size=60)


@given(before=TEXT, after=TEXT)
def test_what_is_around_a_block_stays_byte_for_byte(before: str, after: str) -> None:
    if "aliquot:" in before + after:
        return
    head = before if not before or before.endswith("\n") else f"{before}\n"
    text = head + block.render_block("n1", ("old",)) + after
    made = block.replace_block(text, "n1", LINES)
    assert made == head + block.render_block("n1", LINES) + after
    assert block.replace_block(made, "n1", ()) == head + after
    (found,) = block.blocks(made)
    assert found.lines == LINES
    assert not found.edited


def test_a_block_is_found_edited_unended_and_doubled() -> None:
    text = block.render_block("n1", LINES)
    assert block.blocks(text.replace("nvidia0", "nvidia1"))[0].edited
    assert block.blocks(text.replace("# aliquot: end n1\n", "more\n"))[0].edited
    twice = text + block.render_block("n2", ("x",)) + text
    assert block.replace_block(twice, "n1", ("new",)).count("begin n1") == 1
    assert block.block_of(twice, "n2") is not None
    assert block.block_of(twice, "n3") is None


def test_only_the_values_on_the_nodes_line_change_wherever_it_stands(tmp_path: Path) -> None:
    nodes = '# nodes\nnodename=n1 CPUs=4 \\\n  gres=gpu:a100:2  feature="a,b" # keep\nNodeName=n2 Gres=gpu:a100:2\n'
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nInclude nodes.conf\n")
    (tmp_path / "nodes.conf").write_text(nodes)
    chosen = settings(tmp_path)
    found = files.conf_of(chosen)
    assert files.kind_of(chosen, found) == "static"
    made = files.node_file(chosen, found, "gpu:a100_1g.5gb:7", ("a", "mig"))
    assert made.path == str(tmp_path / "nodes.conf")
    assert made.text == nodes.replace("gres=gpu:a100:2", "gres=gpu:a100_1g.5gb:7").replace('"a,b"', "a,mig")
    assert files.node_file(chosen, found, "gpu:a100:2", None).text == nodes


def test_a_line_without_gres_gets_it_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=DEFAULT Gres=gpu:a100:8\nNodeName=n1 CPUs=4 # four\n")
    chosen = settings(tmp_path)
    made = files.node_file(chosen, files.conf_of(chosen), "gpu:a100:2", None)
    assert "NodeName=n1 CPUs=4 Gres=gpu:a100:2" in made.text
    assert made.text.endswith(" # four\n")


def test_a_line_for_several_nodes_is_split_into_lines_that_slurm_accepts(tmp_path: Path) -> None:
    line = "NodeName=n[1-3] NodeAddr=10.0.0.[1-3] Port=7001,7002,7003 CPUs=4 Gres=gpu:a100:2 Feature=mig"
    (tmp_path / "slurm.conf").write_text(f"{line}\n")
    chosen = replace(settings(tmp_path), name="n2")
    with pytest.raises(ConfigError, match="covers 3 nodes") as caught:
        files.node_file(chosen, files.conf_of(chosen), "gpu:0", None)
    assert caught.value.details[1:] == (
        "NodeName=n1,n3 NodeAddr=10.0.0.1,10.0.0.3 Port=7001,7003 CPUs=4 Gres=gpu:a100:2 Feature=mig",
        "NodeName=n2 NodeAddr=10.0.0.2 Port=7002 CPUs=4 Gres=gpu:a100:2 Feature=mig",
    )


def test_a_node_that_slurm_conf_does_not_name_is_dynamic(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=n[2-9] CPUs=4\n")
    assert files.kind_of(settings(tmp_path), files.conf_of(settings(tmp_path))) == "dynamic"
    with pytest.raises(ConfigError, match="does not name it"):
        files.kind_of(settings(tmp_path, kind="static"), files.conf_of(settings(tmp_path)))


def test_what_slurm_could_not_read_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        files.conf_of(settings(tmp_path))
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n1 CPUs\n")
    with pytest.raises(ConfigError, match=r"slurm.conf:2"):
        files.conf_of(settings(tmp_path))


def test_mode_and_links_are_kept_and_nothing_half_is_left(tmp_path: Path) -> None:
    real = tmp_path / "real.conf"
    real.write_text("a\n")
    real.chmod(0o600)
    link = tmp_path / "gres.conf"
    link.symlink_to(real)
    assert files.write(DesiredFile(str(link), "b\n"))
    assert not files.write(DesiredFile(str(link), "b\n"))
    assert link.is_symlink()
    assert real.read_text() == "b\n"
    assert real.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StorageError):
        files.write(DesiredFile("/proc/no/gres.conf", "c\n"))
    assert sorted(os.listdir(tmp_path)) == ["gres.conf", "real.conf"]


def test_the_options_of_slurmd_keep_what_is_not_ours(tmp_path: Path) -> None:
    place = tmp_path / "slurmd"
    place.write_text("# mine\nOTHER=1\nSLURMD_OPTIONS=\"-M -Z --conf 'CPUs=4 Gres=gpu:1' -L /l\"\n")
    chosen = settings(tmp_path, options_file=str(place))
    assert nodeconf.conf_in_options(files.options_of(chosen)) == "CPUs=4 Gres=gpu:1"
    made = files.options_file(chosen, "CPUs=4 Gres=gpu:a100:2")
    assert made.text == "# mine\nOTHER=1\nSLURMD_OPTIONS=\"-M -L /l -Z --conf 'CPUs=4 Gres=gpu:a100:2'\"\n"
    place.write_text(made.text)
    assert nodeconf.conf_in_options(files.options_of(chosen)) == "CPUs=4 Gres=gpu:a100:2"
    place.write_text("OTHER=1")
    assert files.options_file(chosen, "CPUs=1").text == 'OTHER=1\nSLURMD_OPTIONS="-Z --conf CPUs=1"\n'
    place.write_text('SLURMD_OPTIONS="-Z\n')
    with pytest.raises(ConfigError):
        files.options_of(chosen)


def test_a_dynamic_nodes_words_are_kept_but_for_what_is_ours() -> None:
    base = "NodeName=n1 CPUs=4 RealMemory=100 gres=gpu:1 Feature=mig,a State=IDLE Port=7"
    assert nodeconf.conf(base, "gpu:a100:2") == "CPUs=4 RealMemory=100 Feature=mig,a Gres=gpu:a100:2"
    drained = nodeconf.conf(base, "gpu:a100:2", ("mig",), drained=True)
    assert drained == "CPUs=4 RealMemory=100 Feature=mig Gres=gpu:a100:2 State=DRAIN"
    shaped = SlurmNode("n1", frozenset(), cpus=8, sockets=2, cores=2, threads=2, memory_mib=64, features=("mig",))
    message = "CPUs=8 RealMemory=64 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 Feature=mig"
    assert nodeconf.from_node(shaped) == message
    assert nodeconf.invalid_words("CPUs=4 what") == ("'what' is not KEY=VALUE",)
