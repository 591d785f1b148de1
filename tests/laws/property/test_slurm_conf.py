"""Any configuration file: it is read without an internal error, and only the replaced part changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aliquot.slurm.check.api import check
from aliquot.slurm.check.finding import CheckInput
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.conf.statements import Conf, replaced

_WORDS = st.sampled_from(
    [
        *("NodeName=n[1-3]", "NodeName=DEFAULT", "Gres=gpu:a100:2,gpu:1g", "gres=gpu:x:y", "Name=gpu", "Type=1g.5gb"),
        *("File=/dev/nvidia[0-1]", "MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66", "AutoDetect=nvml"),
        *('Feature="a b"', "Count=9k", "Flags=explicit", "State=CLOUD", "NodeHostname=h,h", "Links=-1", "Include x"),
        *("\\", "\\\n", "# no", "\n", "\r\n", " ", "\t", '"', "=", "x", "GresTypes=gpu", "\u00a0", "\udcff"),
    ]
)
_TEXTS = st.lists(_WORDS, max_size=30).map(" ".join) | st.text(max_size=60)


def _conf(text: str, kind: str) -> Conf:
    return parse(f"/etc/slurm/{kind}", lambda path: text if path.endswith(kind) else "A=1\n")


@given(_TEXTS)
def test_every_value_stands_where_documented(text: str) -> None:
    for statement in _conf(text, "slurm.conf").statements:
        if statement.location.file.endswith("x"):
            continue
        for pair in statement.pairs:
            written = text[pair.start : pair.end]
            assert "\\" in written or written in (pair.value, f'"{pair.value}"')
        assert text[statement.start : statement.end].strip()


@given(_TEXTS)
def test_a_replaced_value_is_read_back_and_all_else_stays(text: str) -> None:
    before = _conf(text, "slurm.conf")
    changed = [p for s in before.statements for p in s.pairs if not s.location.file.endswith("x")]
    after = _conf(replaced(text, dict.fromkeys(changed, "new")), "slurm.conf")
    assert [[p.key for p in s.pairs] for s in after.statements] == [[p.key for p in s.pairs] for s in before.statements]
    own = [p for s in after.statements for p in s.pairs if not s.location.file.endswith("x")]
    assert {p.value for p in own} <= {"new"}
    assert len(after.diagnostics) == len(before.diagnostics)


@given(_TEXTS, _TEXTS)
def test_a_check_never_breaks(slurm: str, gres: str) -> None:
    found = check(CheckInput("/etc/slurm", _conf(slurm, "slurm.conf"), _conf(gres, "gres.conf")))
    assert all(f.sentence and f.rule for f in found)
