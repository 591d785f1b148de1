"""Configuration files as Slurm's own parser reads them: effective lines, their position, and syntax errors."""

from __future__ import annotations

import pytest

from aliquot.slurm.conf.nodes import node_line
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.conf.statements import Conf, replaced

SLURM = """\
ClusterName=Bed   # its name
GresTypes=gpu,\\
shard
grestypes = "gpu"
NodeName=DEFAULT CPUs=8 Gres=gpu:1
nodename=n[1-4,07],login Gres=gpu:a100:2 \\   # two
   Feature="mig,ib" State=UNKNOWN
NodeName=m1
"""


def conf(text: str, kind: str = "slurm.conf", **files: str) -> Conf:
    every = {f"/etc/slurm/{kind}": text} | {f"/etc/slurm/{name}": body for name, body in files.items()}

    def read(path: str) -> str:
        if path not in every:
            raise FileNotFoundError(2, "No such file or directory", path)
        return every[path]

    return parse(f"/etc/slurm/{kind}", read)


def faults(text: str, kind: str = "slurm.conf", **files: str) -> list[str]:
    return [f"{f.location.line}: {f.sentence}" for f in conf(text, kind, **files).diagnostics]


def test_the_last_of_several_lines_counts_and_keys_have_no_case() -> None:
    found = conf(SLURM)
    assert found.diagnostics == ()
    assert found.get("gresTYPES") == "gpu"
    assert [str(s.location) for s in found.headed("GresTypes")] == [
        "/etc/slurm/slurm.conf:2",
        "/etc/slurm/slurm.conf:4",
    ]
    assert next(found.headed("GresTypes")).head.value == "gpu,shard"
    assert found.get("Nothing", default="x") == "x"


def test_a_node_has_its_line_and_what_it_inherits() -> None:
    line = node_line(conf(SLURM), "n07")
    assert line is not None
    assert line.names == ("n1", "n2", "n3", "n4", "n07", "login")
    assert (line.statement.location.line, line.statement.last) == (6, 7)
    assert (line.get("gres"), line.get("CPUs"), line.features) == ("gpu:a100:2", "8", ("mig", "ib"))
    other = node_line(conf(SLURM), "m1")
    assert other is not None
    assert other.get("Gres") == "gpu:1"
    assert node_line(conf(SLURM), "n7") is None


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_value_is_replaced_and_all_else_stays_as_it_is(ends: str) -> None:
    text = SLURM.replace("\n", ends) + f"# caf\udce9 \u2028 x{ends}"
    found = conf(text)
    line = node_line(found, "n1")
    assert line is not None
    pairs = {line.pair("Gres"): "gpu:a100_1g.5gb:7", line.pair("Feature"): '"a,b"'}
    changed = replaced(text, {p: v for p, v in pairs.items() if p})
    assert changed == text.replace("gpu:a100:2", "gpu:a100_1g.5gb:7").replace('"mig,ib"', '"a,b"')
    assert text[line.statement.start : line.statement.end].endswith("State=UNKNOWN")


def test_escapes_and_comments() -> None:
    found = conf("A=x\\#y # no\\\nB=c:\\\\d\n# A=never \\\nC=1\n")
    assert {p.head.key: p.head.value for p in found.statements} == {"A": "x#y", "B": "c:\\d", "C": "1"}
    pair = found.last("B")
    assert pair is not None
    assert found.sources[0].text[pair.start : pair.end] == "c:\\\\d"


def test_includes_are_read_where_they_stand() -> None:
    nested = {"bed.conf": "GresTypes=gpu\nInclude more.conf\n", "more.conf": "NodeName=n1 Gres=gpu:1\n"}
    found = conf("ClusterName=BED\nInclude %c.conf\nGresTypes=x\n", **nested)
    assert [str(s.location) for s in found.statements] == [
        "/etc/slurm/slurm.conf:1",
        "/etc/slurm/bed.conf:1",
        "/etc/slurm/more.conf:1",
        "/etc/slurm/slurm.conf:3",
    ]
    assert [s.path[11:] for s in found.sources] == ["slurm.conf", "bed.conf", "more.conf"]
    assert found.source("/etc/slurm/more.conf").text.startswith("NodeName")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "GresTypes=gpu NodeName=n1\n",
            "1: Slurm cannot read 'NodeName=n1': a line that begins with GresTypes must have no other key",
        ),
        ("\nNodeName=n1 Gres=\n", "2: Slurm cannot read 'Gres=': the value after = is missing"),
        ('NodeName=n1 Feature="a b\n', "1: Slurm cannot read 'b': it is not a Key=value pair"),
        ("NodeName=n1 drained\n", "1: Slurm cannot read 'drained': it is not a Key=value pair"),
        ("NodeName=n1\u00a0Gres=gpu:1 \u00a0\n", "1: Slurm cannot read '\\xa0': it is not a Key=value pair"),
        ("Include\tgone.conf\n", "1: Include gone.conf: No such file or directory"),
        ("Include *.conf\n", "1: Include *.conf: Slurm does not support patterns here"),
        ("Include slurm.conf\n", "1: Include slurm.conf: it includes itself"),
        (" Include x.conf\n", "1: Slurm cannot read 'Include x.conf'"),
        ("Include a b\n", "1: Include takes one file"),
    ],
)
def test_what_slurm_cannot_read_is_reported_with_its_line(text: str, message: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith(message)


def test_files_with_few_keys_know_them() -> None:
    assert faults("Name=gpu Typ=a100 File=/dev/nvidia0\n", "gres.conf") == ["1: gres.conf has no key Typ"]
    assert faults("NodeName=n1 Name=gpu CPUs=0 Files=/dev/nvidia[0-1] Links=-1,4\nAutoDetect=off\n", "gres.conf") == []
    assert faults("Feature=a Helper=/x\nNode=n1\n", "helpers.conf") == ["2: helpers.conf has no key Node"]
