"""Mistakes of a newcomer: the error names what failed, the rule, and a next command that works when it is pasted."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.cli.framework.next_command import addressed

from .conftest import Run, Sim

FILE = (
    "version: aliquot/v1\nconfigs:\n  day:\n    - {gpus: all, mig: {1g.5gb: 7}}\n  night:\n    - {gpus: all, mig: {}}\n"
)

REFUSED = [
    # wrong node
    ("show --sim nowhere", 20, "blocked[NO_SUCH_NODE]: no simulated node 'nowhere'", "aliquot sim list"),
    ("slurm apply --sim nowhere", 20, "blocked[NO_SUCH_NODE]: no simulated node", "aliquot sim list"),
    ("sim stop nowhere", 20, "blocked[NO_SUCH_NODE]: no simulated node 'nowhere'", "aliquot sim list"),
    # files
    ("plan config.yaml", 2, "unrecognized arguments: config.yaml", "aliquot plan -f config.yaml"),
    ("verify -f config.yaml -c dya", 2, "did you mean day", "aliquot verify -f config.yaml -c day"),
    ("apply -f config.yaml -c dya", 2, "did you mean day", "aliquot plan -f config.yaml -c day"),
    (
        "slurm apply -f config.yaml -c dya",
        2,
        "did you mean day",
        "aliquot slurm apply --dry-run -f config.yaml -c day",
    ),
    ("dashboard -f gone", 2, "cannot read the config file gone: No such file or directory", "ls -l gone"),
    ("dashboard --token-file gone", 2, "cannot read the token file gone: No such file or directory", "ls -l gone"),
    ("dashboard --tls-cert gone --tls-key gone", 2, "gone: No such file or directory", "ls -l gone gone"),
    ("cdi list --spec-dir gone", 2, "--spec-dir: gone is not a directory", "aliquot cdi list --help"),
    ("docker check --spec-dir gone", 2, "--spec-dir: gone is not a directory", "aliquot docker check --help"),
    ("dashboard --fleet", 2, "only one of --fleet and ALIQUOT_SIM can be given", "unset ALIQUOT_SIM"),
    ("cdi list --vendor a,b", 2, "'a,b' is not a CDI vendor", "aliquot cdi list --help"),
    (
        "cdi generate --driver-root here",
        2,
        "--driver-root: here is not an absolute path",
        "aliquot cdi generate --help",
    ),
    ("slurm render a.json", 2, "inventory files exclude ALIQUOT_SIM, which is set to one", "unset ALIQUOT_SIM"),
    # values
    ("apply --dry-run --gpu 0 --mig 1g.5gb", 2, "unrecognized arguments: --dry-run", "aliquot plan --help"),
    ("plan --polcy wait --gpu 0 --mig 1g.5gb", 2, "did you mean --policy?", "aliquot plan --help"),
    ("export --label=", 2, "--label is empty", "aliquot export --help"),
    ("slurm node --node-name a/b", 2, "'a/b': use letters, digits, '.', '_' or '-'", "aliquot slurm node --help"),
    ("slurm controller -f settings.yaml --listen x", 2, "invalid listen address", "aliquot slurm controller --help"),
    ("sim fault x", 2, "no fault 'x'; there are: busy", "aliquot sim fault --help"),
    ("sim fault fail call=X", 2, "the simulator has no call 'X'", "aliquot sim show one --calls"),
    ("sim hold 9", 2, "no GPU '9' on one: it has only GPU 0", "aliquot sim show one"),
]


@pytest.mark.parametrize(("line", "code", "message", "step"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_mistake_is_answered_with_a_command(
    line: str, code: int, message: str, step: str, a100: Sim, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    (tmp_path / "settings.yaml").write_text("version: aliquot-slurm/v1\nrecords:\n- nodes: n1\n")
    result = run(*line.split())
    assert (result.code, result.out) == (code, ""), result.err
    assert message in result.err
    assert [each for each in result.err.splitlines() if "next  " in each] == [f"  next     {step}"]


def test_a_redirection_in_a_next_command_is_not_quoted() -> None:
    assert addressed("aliquot show -o json > n1.json") == "aliquot show -o json > n1.json"
    assert addressed("aliquot show -o json > n1.json", "one") == "aliquot show -o json --sim one > n1.json"
