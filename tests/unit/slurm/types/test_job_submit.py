"""``deploy/slurm/job_submit.lua`` in the interpreter that Slurm's plug-in uses; the real plug-in is a system test."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from aliquot.core.model import catalog
from aliquot.slurm.gpus.gres_types import FILLER
from aliquot.slurm.types.near import near_types
from support import lua

SCRIPT = Path(__file__).parents[4] / "deploy/slurm/job_submit.lua"
LISTED = """# Written by Aliquot.
type main a100_1g.5gb
type main a100_3g.20gb
type whole a100
type whole h100
layout thirds
"""
REFUSED = "2072"

pytestmark = pytest.mark.skipif(lua.library() is None, reason="apt-get install liblua5.1-0")

STUB = """
shown = {}
slurm = {SUCCESS = 0, log_user = function(format, ...) table.insert(shown, string.format(format, ...)) end}
parts = {main = {flag_default = 1}, whole = {flag_default = 0}, other = {flag_default = 0}}
"""


def submit(folder: Path, job: str, *, listed: str = LISTED, before: str = "", call: str = "") -> tuple[str, str]:
    """Submit a job (a Lua table) and return the code of the plug-in and its messages to the user."""
    (folder / "aliquot-types").write_text(listed)
    shutil.copy(SCRIPT, folder / "job_submit.lua")
    script = f"""{STUB}{before}
    dofile("{folder}/job_submit.lua")
    local code = {call or "slurm_job_submit(" + job + ", parts, 1000)"}
    return code .. "\\n" .. table.concat(shown, "\\n")
    """
    code, _, messages = lua.run(script).partition("\n")
    return code, messages


TYPED = "gres/gpu:a100_1g.5gb"


@pytest.mark.parametrize(
    "job",
    [
        "{}",
        "{partition = 'main'}",
        f"{{tres_per_node = '{TYPED}:1'}}",
        "{tres_per_node = 'gres:gpu:a100_1g.5gb:2,gres:gpu:a100_3g.20gb'}",
        f"{{tres_per_task = 'cpu=2,{TYPED}=1'}}",
        f"{{tres_per_job = '{TYPED}'}}",
        "{tres_per_node = 'gres/gpu:0'}",
        "{tres_per_node = 'gres/gpu=0'}",
        "{tres_per_node = 'gres/gpumem:1,gres/shard:2,license/gpu:1'}",
        "{tres_per_node = 'gres/gpu:1', partition = 'whole'}",  # its GPUs are not partitioned
        "{tres_per_node = 'gres/gpu:1', partition = 'other'}",
        "{tres_per_node = 'gres/gpu:1', features = 'ib&thirds'}",  # a layout says what the GPU is
        "{tres_per_node = 'gres/gpu:1', features = 'mig_2x3g.20gb'}",
        "{tres_per_node = 'gres/gpu:1', partition = 'no-such-one'}",
    ],
)
def test_a_clear_request_passes_without_a_word(tmp_path: Path, job: str) -> None:
    assert submit(tmp_path, job) == ("0", "")


@pytest.mark.parametrize(
    ("job", "option"),
    [
        ("{tres_per_node = 'gres/gpu:1'}", "--gres"),
        ("{tres_per_node = 'gres:gpu:1'}", "--gres"),
        ("{tres_per_node = 'gres/gpu'}", "--gres"),
        ("{tres_per_job = 'gres/gpu:2', partition = 'whole,main'}", "--gpus"),
        ("{tres_per_task = 'cpu=1,gres/gpu=1'}", "--gpus-per-task"),
        ("{tres_per_socket = 'gres/gpu:1', features = 'ib'}", "--gpus-per-socket"),
    ],
)
def test_a_gpu_without_a_type_is_refused_where_gpus_are_partitioned(tmp_path: Path, job: str, option: str) -> None:
    code, message = submit(tmp_path, job)
    assert code == REFUSED
    assert message.count("\n") == 0
    assert message.startswith(f"aliquot: {option} needs a type in partition main")
    assert message.endswith("one of a100_1g.5gb, a100_3g.20gb")


@pytest.mark.parametrize("partition", ["main", "whole", "other"])
def test_the_filler_is_refused_everywhere(tmp_path: Path, partition: str) -> None:
    code, message = submit(tmp_path, f"{{tres_per_node = 'gres/gpu:{FILLER}:1', partition = '{partition}'}}")
    assert code == REFUSED
    assert f"the type {FILLER} stands for no device" in message


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a100_3g.40gb", "partition main has no type a100_3g.40gb; nearest: a100_3g.20gb, a100_1g.5gb"),
        ("3g.20gb", "partition main has no type 3g.20gb; nearest: a100_3g.20gb, a100_1g.5gb"),
        ("a100", "partition main has no type a100; nearest: a100_1g.5gb, a100_3g.20gb"),
        ("tesla", "partition main has no type tesla; see 'aliquot slurm types'"),
        ("%d%s", "partition main has no type %d%s; see 'aliquot slurm types'"),
    ],
)
def test_a_near_miss_is_named_and_left_to_slurm(tmp_path: Path, kind: str, words: str) -> None:
    assert submit(tmp_path, f"{{tres_per_node = 'gres/gpu:{kind}:1'}}") == ("0", f"aliquot: {words}")


def test_without_a_list_only_the_filler_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for job, code in (("gres/gpu:1", "0"), ("gres/gpu:a100_9g.5gb:1", "0"), (f"gres/gpu:{FILLER}:1", REFUSED)):
        assert submit(tmp_path, f"{{tres_per_node = '{job}'}}", listed="")[0] == code


def test_a_changed_job_is_held_to_the_same(tmp_path: Path) -> None:
    record = "{partition = 'main', features = 'ib', tres_per_node = 'gres/gpu:1'}"

    def modify(job: str) -> str:
        return submit(tmp_path, "", call=f"slurm_job_modify({job}, {record}, parts, 0)")[0]

    assert modify("{tres_per_node = 'gres/gpu:1'}") == REFUSED
    assert modify("{tres_per_node = 'gres/gpu:1', features = 'thirds'}") == "0"
    assert modify("{tres_per_node = 'gres/gpu:a100_1g.5gb:1'}") == "0"
    assert modify("{time_limit = 5}") == "0", "another change of a job that was accepted before"


SITE = """
function slurm_job_submit(job, parts, uid) table.insert(shown, "site " .. uid) return 7 end
function slurm_job_modify(job, record, parts, uid) return 8 end
"""


def test_a_sites_own_rules_run_after_these(tmp_path: Path) -> None:
    assert submit(tmp_path, f"{{tres_per_node = '{TYPED}:1'}}", before=SITE) == ("7", "site 1000")
    code, message = submit(tmp_path, "{tres_per_node = 'gres/gpu:1'}", before=SITE)
    assert code == REFUSED
    assert "site" not in message
    call = "slurm_job_modify({}, {partition = 'main'}, parts, 0)"
    assert submit(tmp_path, "", before=SITE, call=call)[0] == "8"


def test_near_misses_are_those_of_aliquot(tmp_path: Path) -> None:
    names = [f"a100_{p.name}" for p in catalog.family("a100-40gb").profiles]
    listed = "".join(f"type main {name}\n" for name in names)
    missing = [f"a100_{g}g.{gb}gb" for g, gb in itertools.product((1, 2, 3, 4, 6, 7), (5, 20, 40, 80))]
    for kind in missing:
        if kind not in names:
            _, message = submit(tmp_path, f"{{tres_per_node = 'gres/gpu:{kind}:1'}}", listed=listed)
            assert message.rpartition("nearest: ")[2].split(", ") == list(near_types(kind, names)), kind
