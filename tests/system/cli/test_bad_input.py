"""Bad input, typed and in files: a clear error, the right exit code and no change on the node."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.sim import lifecycle as control

from .conftest import Run, Sim


def native(*entries: str) -> str:
    return "version: aliquot/v1\nconfigs:\n  c:\n" + "".join(f"    - {entry}\n" for entry in entries)


def mig_parted(entry: str) -> str:
    return f"version: v1\nmig-configs:\n  c:\n    - {entry}\n"


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)
)

FILES: dict[str, tuple[str | bytes, int, tuple[str, ...]]] = {
    "unknown profile": (native("{gpus: all, mig: {3g.21gb: 1}}"), 2, ("3g.21gb", "3g.20gb", ":4:")),
    "not a profile": (native("{gpus: all, mig: {big: 1}}"), 2, ("'big'", ":4:")),
    "profile of another GPU": (native("{gpus: all, mig: {1g.6gb: 1}}"), 20, ("1g.6gb", "A100")),
    "infeasible multiset": (native("{gpus: all, mig: {4g.20gb: 1, 3g.20gb: 2}}"), 20, ("cannot hold", "next")),
    "too many": (native("{gpus: all, mig: {1g.5gb: 8}}"), 20, ("1g.5gb", "next")),
    "two media engines": (native("{gpus: all, mig: {1g.5gb+me: 2}}"), 20, ("1g.5gb+me",)),
    "overlapping entries": (
        native("{gpus: all, mig: {1g.5gb: 1}}", "{gpus: {index: 0}, mig: {7g.40gb: 1}}"),
        2,
        ("line 4", ":5:", "different states"),
    ),
    "unquoted PCI address": (native("{gpus: {pci: 0000:08:00.0}, mig: {1g.5gb: 1}}"), 20, ("0000:08:00.0",)),
    "PCI address that became a number": (native("{gpus: {pci: 480.0}, mig: {1g.5gb: 1}}"), 2, ("480.0", "quotes")),
    "index that is not there": (native("{gpus: {index: [9]}, mig: {1g.5gb: 1}}"), 20, ("9",)),
    "PCI address that is not there": (native('{gpus: {pci: "0000:99:00.0"}, mig: {1g.5gb: 1}}'), 20, ("0000:99:00.0",)),
    "UUID that is not there": (native("{gpus: {uuid: GPU-00000000-0000-0000-0000-000000000000}, mig: {}}"), 20, ()),
    "no entry matches": (
        mig_parted('{devices: all, device-filter: "0x20B710DE", mig-enabled: true, mig-devices: {}}'),
        20,
        ("c",),
    ),
    "empty file": ("", 2, ("empty",)),
    "only a comment": ("# nothing\n", 2, ("empty",)),
    "binary file": (b"\x7fELF\x00\x01\xff\xfe" * 100, 2, ("UTF-8",)),
    "control characters": ("a: \x00\x01\n", 2, ()),
    "50 MB file": (b"# " + b"x" * (50 << 20), 2, ("16 MiB",)),
    "YAML bomb": (BOMB, 2, ()),
    "deep nesting": ("[" * 100_000, 2, ()),
    "duplicate keys": (native("{gpus: all, mig: {1g.5gb: 1, 1g.5gb: 2}}"), 2, ("1g.5gb", "twice")),
    "negative count": (native("{gpus: all, mig: {1g.5gb: -1}}"), 2, ("-1", ":4:")),
    "zero count": (native("{gpus: all, mig: {1g.5gb: 0}}"), 2, ("0", ":4:")),
    "fractional count": (native("{gpus: all, mig: {1g.5gb: 1.5}}"), 2, ("1.5", ":4:")),
    "text as count": (native("{gpus: all, mig: {1g.5gb: many}}"), 2, ("many", ":4:")),
    "unknown key": (native("{gpus: all, mgi: {1g.5gb: 1}}"), 2, ("mgi", "mig")),
    "unknown version": ("version: v7\nmig-configs: {}\n", 2, ("v7",)),
    "no version": ("mig-configs: {}\n", 2, ("version",)),
    "a list": ("[1, 2]", 2, ()),
    "not YAML": ("a: [1, 2", 2, ()),
    "mig-parted: zero count": (mig_parted("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}"), 2, ("zero",)),
    "mig-parted: no such index": (
        mig_parted("{devices: [7], mig-enabled: true, mig-devices: {1g.5gb: 1}}"),
        20,
        ("7",),
    ),
    "mig-parted: number as filter": (
        mig_parted("{devices: all, device-filter: 0x20B010DE, mig-enabled: true, mig-devices: {}}"),
        2,
        ("device-filter",),
    ),
}


@pytest.mark.parametrize("verb", ["plan", "apply"])
@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_changes_nothing(case: str, verb: str, a100: Sim, run: Run, tmp_path: Path) -> None:
    body, code, words = FILES[case]
    path = tmp_path / "bad.yaml"
    path.write_bytes(body if isinstance(body, bytes) else body.encode())
    before = a100.node.show()["gpus"]
    result = run(verb, "-f", str(path))
    assert result.code == code, result.err
    assert result.out == ""
    for word in words:
        assert word in result.err
    assert "Traceback" not in result.err
    assert result.err.startswith(("error[", "blocked[", "note: "))
    assert a100.writes() == []
    assert a100.node.show()["gpus"] == before


@pytest.mark.parametrize("verb", ["plan", "apply", "verify"])
def test_what_is_wrong_everywhere_is_reported_without_a_machine(verb: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(native("{gpus: all, mig: {1g.5gb: -1}}"))
    (tmp_path / "good.yaml").write_text(native("{gpus: all, mig: {1g.5gb: 1}}"))
    assert run(verb, "-f", "bad.yaml", "--sim", "nowhere").code == 2
    assert run(verb, "-f", "good.yaml", "-c", "nope", "--sim", "nowhere").code == 2
    assert run(verb, "-f", "good.yaml", "--sim", "nowhere").code == 20


def test_all_faults_of_a_file_are_reported_at_once(a100: Sim, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(native("{gpus: all, mig: {1g.5gb: -1}}", "{gpus: 7, mig: {2g.10gb: x}}", "{mgi: 3}"))
    result = run("plan", "-f", str(path))
    assert result.code == 2
    assert [f":{line}:" in result.err for line in (4, 5, 6)] == [True, True, True]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--gpu", "0", "--mig", "3g.21gb"], 2, "3g.20gb"),
        (["--gpu", "0", "--mig", "1g.5gb*0"], 2, "count"),
        (["--gpu", "0", "--mig", "1g.5gb*-1"], 2, "count"),
        (["--gpu", "0", "--mig", "1g.5gb*1.5"], 2, "count"),
        (["--gpu", "0", "--mig", "id:999"], 2, "999"),
        (["--gpu", "0", "--mig", "3g.20gb@1"], 20, "0:4, 4:4"),
        (["--gpu", "0", "--mig", "1g.5gb@99"], 20, "6:1"),
        (["--gpu", "0", "--mig", "1g.5gb@0,3g.20gb@0"], 20, "overlap"),
        (["--gpu", "0", "--mig", "1g.5gb*8"], 20, "1g.5gb"),
        (["--gpu", "0", "--mig", "1c.7g.40gb*8"], 20, ""),
        (["--gpu", "0", "--mig", ""], 2, ""),
        (["--gpu", "0", "--mig", ",,"], 2, ""),
        (["--gpu", "7", "--mig", "1g.5gb"], 20, "7"),
        (["--gpu", "zebra", "--mig", "1g.5gb"], 2, "zebra"),
        (["--gpu", "0000:99:00.0", "--mig", "1g.5gb"], 20, "0000:99:00.0"),
        (["--gpu", "0", "--gpu", "0", "--mig", "1g.5gb", "--mig", "2g.10gb"], 20, "overlap"),
        (["--gpu", "0", "--mig", "1g.5gb", "--mig", "2g.10gb"], 2, "--mig"),
        (["--gpu", "0"], 2, "--mig"),
        ([], 2, "-f"),
        (["-c", "x"], 2, "-f"),
        (["-f", "/no/such/file"], 2, "No such file"),
        (["-f", "/"], 2, "directory"),
        (["-f", "x", "--mig", "1g.5gb"], 2, "not both"),
        (["--gpu", "0", "--mig", "1g.5gb", "--timeout", "-1"], 2, "--timeout"),
        (["--gpu", "0", "--mig", "1g.5gb", "--timeout", "nan"], 2, "--timeout"),
        (["--gpu", "0", "--mig", "1g.5gb", "--timeout", "2h"], 2, "invalid value '2h': use a number of seconds"),
        (["--gpu", "0", "--mig", "1g.5gb", "--sim", "nowhere"], 20, "nowhere"),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_a_bad_request_changes_nothing(
    words: list[str], code: int, message: str, verb: str, a100: Sim, run: Run
) -> None:
    result = run(verb, *words)
    assert (result.code, result.out) == (code, ""), result.err
    assert message in result.err
    assert a100.writes() == []


def test_an_order_that_fails_by_hand_works_by_placement(a100: Sim, run: Run) -> None:
    # If the driver chooses the placements, the 3g does not fit any more in this order (MIG User Guide).
    assert run("apply", "--gpu", "0", "--mig", "1g.5gb,1g.5gb,2g.10gb,3g.20gb").code == 0
    assert run("verify", "--gpu", "0", "--mig", "3g.20gb,2g.10gb,1g.5gb*2").code == 0


def test_mig_of_a_gpu_that_has_none_by_name(mixed: Sim, run: Run, tmp_path: Path) -> None:
    result = run("plan", "--gpu", "3", "--mig", "1g.5gb")
    assert result.code == 20
    assert "T4" in result.err
    (tmp_path / "all.yaml").write_text(mig_parted("{devices: all, mig-enabled: true, mig-devices: {}}"))
    ready = run("plan", "-f", "all.yaml")
    assert ready.code == 10, ready.err
    assert "note: " in ready.err
    assert "T4" in ready.err
    assert mixed.writes() == []


def test_a_blocked_plan_in_json_is_the_plan_document(a100: Sim, run: Run) -> None:
    for verb in ("plan", "apply"):
        result = run(verb, "--gpu", "0", "--mig", "4g.20gb,3g.20gb*2", "-o", "json")
        assert (result.code, result.err) == (20, "")
        document = result.document
        assert (document["kind"], document["actions"], document["changes"]) == ("Plan", [], False)
        (blocker,) = document["blockers"]
        assert blocker["rule"]
        assert blocker["suggestion"]
        assert blocker["next"].startswith("aliquot plan ")


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "{}", "null", '"x"', "\x00", '{"kind": "Plan"}', "[" * 100_000, '{"node": 1}', "version: v1"],
)
def test_a_plan_file_that_is_none(body: str, a100: Sim, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(body)
    result = run("apply", str(path))
    assert (result.code, result.out) == (2, "")
    assert "is not a plan" in result.err
    assert a100.writes() == []


def test_a_plan_of_another_kind(a100: Sim, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert run("plan", "--gpu", "0", "--mig", "3g.20gb", "--out", str(path)).code == 10
    document = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    path.write_bytes(msgspec.json.encode(document | {"apiVersion": "aliquot/v9"}))
    result = run("apply", str(path))
    assert result.code == 2
    assert "aliquot/v9" in result.err


def test_a_saved_plan_stands_alone(a100: Sim, run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    assert run("plan", "--gpu", "0", "--mig", "3g.20gb", "--out", path).code == 10
    for words in (["--mig", "1g.5gb"], ["-c", "x"], ["--policy", "force"], ["--mode-only"]):
        assert run("apply", path, *words).code == 2
    assert a100.writes() == []


@pytest.mark.parametrize("verb", ["show", "profiles"])
def test_a_gpu_that_is_not_there(verb: str, a100: Sim, run: Run) -> None:
    result = run(verb, "9")
    assert (result.code, result.out) == (20, "")
    assert a100.node.show()["gpus"][0]["uuid"] in result.err


def test_a_gpu_by_every_name(a100: Sim, run: Run) -> None:
    facts = a100.node.show()["gpus"][0]
    names = ("0", facts["pci"], facts["pci"].upper(), facts["pci"][5:], f"0000{facts['pci']}", facts["uuid"])
    for name in (*names, facts["product"], "a100-sxm4-40gb"):
        assert run("show", name, "-o", "json").document["gpus"][0]["uuid"] == facts["uuid"], name


def test_a_product_that_several_gpus_have(dgx: Sim, run: Run) -> None:
    assert len(run("show", "a100-sxm4-40gb", "-o", "json").document["gpus"]) == 8
    result = run("passthrough", "check", "a100-sxm4-40gb")
    assert result.code == 2
    assert "names 8 GPUs" in result.err


@pytest.mark.parametrize(
    ("profile", "code", "message"),
    [("5g.1gb", 2, "close"), ("1g.6gb", 0, "has no profile"), ("id:77", 0, "has no profile"), ("1g.5gb", 0, "")],
)
def test_explaining_a_profile_that_is_not_there(profile: str, code: int, message: str, a100: Sim, run: Run) -> None:
    result = run("explain", profile)
    assert result.code == code
    assert message in result.out + result.err


@pytest.mark.parametrize(
    ("template", "message"),
    [("dgx-a1000", "dgx-a100"), ("", "template"), ("a30*0", "a30"), ("a30*99", "32"), ("a,,b", "")],
)
def test_a_bad_template(template: str, message: str, run: Run) -> None:
    result = run("sim", "start", template)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


HUGE = "9" * 5000
"""Python refuses to convert it."""
LONE = "\udced\udca0\udc80x"
"""Python's decoding of bytes that are not UTF-8."""
SQUARE = "\N{SUPERSCRIPT TWO}"
"""``str.isdigit`` accepts it as a digit, but it is not a number."""
TYPED = (
    "plan --gpu {} --mig 1g.5gb",
    "plan --gpu 0-{} --mig 1g.5gb",
    "plan --gpu 0 --mig 1g.5gb*{}",
    "plan --gpu 0 --mig 1g.5gb@{}",
    "plan --gpu 0 --mig id:{}",
    "plan --gpu 0 --mig 1g.5gb --timeout {}",
    "show {}",
    "show --sim {}",
    "explain {}",
    "explain id:{}",
    "explain id:{} --gpu 0",
    "history --limit {}",
    "restore --boot --wait {}",
    "sim start a100-sxm4-40gb*{} --name q",
    "sim start {}",
    "sim hold 0 {}",
    "sim hold {} 7",
    "sim fault fail code={}",
    "sim fault fail code=1.{}",
    "metrics --listen {}",
    "dashboard --listen {}",
    "docker run-args 0:{} --no-reserve",
    "docker run-args 1g.5gb*{} --no-reserve",
    "libvirt xml --vgpu A2-4Q:{}",
    "slurm render --node-name n[1-{}]",
    "catalog show {}",
    "plan -f {}",
)


@pytest.mark.parametrize("line", TYPED)
def test_numbers_without_end_and_text_that_is_none_are_refused(line: str, a100: Sim, run: Run) -> None:
    for word in (HUGE, LONE, SQUARE):
        result = run(*(part.replace("{}", word) for part in line.split()))
        assert result.code in (2, 20), result.err[:300]
        assert "digits (sys" not in result.err
        assert "4300 digits" not in result.err


@pytest.mark.parametrize("columns", [HUGE, SQUARE, "-1", "0", ""])
def test_a_width_that_is_none_is_passed_over(columns: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run("show", "--help").code == 0


def test_a_slurm_configuration_with_numbers_without_end_is_judged(run: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        f"GresTypes=gpu\nNodeName=n1 Gres=gpu:a100:{HUGE}\nNodeName=n2 Gres=gpu:{HUGE} Feature=mig_{HUGE}x3g.20gb\n"
    )
    (tmp_path / "gres.conf").write_text(
        f"NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia{HUGE} Cores={HUGE}\nNodeName=n2 Name=gpu Count={HUGE}\n"
        f"NodeName=n3 Name=gpu File=/dev/nvidia-caps/nvidia-cap{HUGE}\n"
    )
    (tmp_path / "helpers.conf").write_text(f"Feature=mig_{HUGE}x3g.20gb Helper=/bin/true\nExecTime={HUGE}\n")
    result = run("slurm", "check", "--conf-dir", str(tmp_path), "--files-only", "-o", "json")
    assert result.code == 30, result.err[:300]
    assert {"BAD_COUNT"} <= {found["rule"] for found in result.document["findings"]}


def test_a_misspelt_key_is_one_fault_and_hides_no_other(a100: Sim, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(native("{gpu: {index: 0}, mig: {9g.20gb: 1}}"))
    lines = run("plan", "-f", "bad.yaml").err.splitlines()
    assert lines[0] == "error[CONFIG]: bad.yaml has 1 error"
    assert "unknown key 'gpu' in an entry (did you mean gpus?)" in lines[1]
    (tmp_path / "bad.yaml").write_text(native("{gpu: {index: zero}, mig: {big: 1}}"))
    assert run("plan", "-f", "bad.yaml").err.startswith("error[CONFIG]: bad.yaml has 3 errors")
    (tmp_path / "bad.yaml").write_text(mig_parted("{device: all, mig-enabled: true, mig-devices: {big: 1}}"))
    assert run("plan", "-f", "bad.yaml").err.startswith("error[CONFIG]: bad.yaml has 2 errors")


@pytest.mark.parametrize(("text", "why"), [("{}", "is not a checkpoint"), ("nonsense", "is not JSON")])
def test_a_checkpoint_that_is_none_is_named(text: str, why: str, a100: Sim, run: Run, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text)
    assert f"the checkpoint c.json {why}" in run("restore", "c.json").err


def test_what_is_true_of_eight_gpus_is_reported_once(dgx: Sim, run: Run) -> None:
    refused = run("plan", "--gpu", "0-7", "--mig", "4g.20gb*2").err
    assert refused.count("blocked[") == 1
    assert len(refused.partition("  GPUs     ")[2].splitlines()[0].split()) == 8
    assert refused.count("--gpu ") == 8
    assert run("plan", "--gpu", "0", "--mig", "4g.20gb*2").err.count("GPUs") == 0


def test_a_profile_of_other_gpus_is_reported_in_whole_words(a100: Sim, run: Run) -> None:
    assert "it is a profile of A30 and A30X (did" in run("plan", "--gpu", "0", "--mig", "1g.6gb").err


def test_an_alias_takes_flags(run: Run) -> None:
    assert run("sim", "start", "hgx-h200:vfio", "--name", "flags").code == 0
    assert run("sim", "stop", "flags").code == 0


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("plan --vgpu A2-4Q:99 --gpu 0", "aliquot plan --help"),
        ("restore config.yaml", "aliquot restore --help"),
        ("sim start a100-sxm4-40gb*99", "aliquot sim start --help"),
        ("dashboard --listen 0.0.0.0:99999", "aliquot dashboard --help"),
        ("apply config.yaml", "aliquot plan -f config.yaml"),
        ("plan -f folder", "ls -l folder"),
        ("mig-parted assert -f config.yaml", "aliquot mig-parted assert -f config.yaml -c a"),
    ],
)
def test_every_error_ends_with_the_next_command(line: str, step: str, a100: Sim, run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "config.yaml").write_text(
        mig_parted("{devices: all, mig-enabled: false}").replace(" c:", " a: &a") + "  b: *a\n"
    )
    refused = run(*line.split())
    assert refused.code in (1, 2)
    assert refused.err.splitlines()[-1] == f"  next     {step}"


def test_a_next_command_names_the_node_once(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIQUOT_SIM")
    assert run("sim", "hold", "--sim", "one", "0", "99").err.endswith("  next     aliquot sim show one\n")


def test_indexes_that_are_not_there_are_the_only_thing_reported(a100: Sim, run: Run) -> None:
    assert "note" not in run("plan", "--gpu", "0-2", "--mig", "empty").err


def test_a_node_without_mig_has_no_gpu_to_name(run: Run, state: str) -> None:
    control.start(state, "a2:mdev", "a2")
    refused = run("plan", "--add", "1g.5gb", "--sim", "a2")
    control.stop(state, "a2")
    assert refused.err.startswith("error[CONFIG]: this node has no GPU that can be partitioned\n")


def test_a_plan_of_another_node_names_both(a100: Sim, run: Run, state: str) -> None:
    assert run("plan", "--gpu", "0", "--mig", "3g.20gb", "--out", "plan.json").code == 10
    control.start(state, "a2:mdev", "other")
    refused = run("apply", "plan.json", "--sim", "other")
    control.stop(state, "other")
    assert refused.code == 20
    assert "this plan was made for node one, and this is other; nothing was touched" in refused.err
