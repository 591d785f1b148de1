"""Choice of a host's record to start, from Slurm's data about pending jobs, and the way to reach a host."""

from __future__ import annotations

import pytest

from aliquot.cli.slurm.power import _why, remote_command
from aliquot.errors import ConfigError
from aliquot.slurm.layouts import power_saving as power
from aliquot.slurm.layouts.cloud_nodes import Sibling

HOSTS = {"h1": ["a", "b"], "h2": ["c", "d"]}
NEW = (
    b'{"jobs":[{"extra":null,"job_id":7,"features":null,"nodes_alloc":"b","nodes_resume":"b","oversubscribe":"OK"},'
    b'{"job_id":3,"nodes_alloc":"a,x","nodes_resume":"a"},{"job_id":9,"nodes_resume":"a"}],"all_nodes_resume":"a,b"}'
)
OLD = b'{"jobs":[{"job_id":1,"nodes":"n[1-2]-a"}],"all_nodes":"n[1-2]-a"}'


def test_the_file_of_each_release_says_which_job_waits_for_what() -> None:
    assert power.first_jobs(NEW) == {"a": 3, "b": 7}
    assert power.first_jobs(OLD) == {"n1-a": 1, "n2-a": 1}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"jobs":[{}]}', b'{"jobs":[1]}', b'{"jobs":[{"job_id":"x"}]}']
)
def test_a_file_that_says_nothing_is_not_an_error(data: bytes) -> None:
    assert power.first_jobs(data) == {}


def test_of_two_records_of_one_host_the_earliest_jobs_starts() -> None:
    found = power.select_starts(["a", "b", "c", "zz"], HOSTS, {"a": 9, "b": 3})
    assert found == power.StartSelection(("b", "c"), (("a", "b"),), ("zz",))


def test_without_word_of_jobs_the_first_named_starts() -> None:
    assert power.select_starts(["b", "a", "b"], HOSTS, {}) == power.StartSelection(("b",), (("a", "b"),))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host":"h","siblings":[],"kind":"Inventory"}', "\ud800"])
def test_what_is_no_file_of_siblings_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"f\.json"):
        power.host_of(text, "f.json")


def test_ssh_is_given_words_that_survive_its_shell() -> None:
    sibling = Sibling("a", "h1", 7000, "mig_2x3g.20gb", ("3g.20gb", "3g.20gb"), ("0000:01:00.0",), ())
    host = power.SiblingHost("h1", (sibling,), "ssh -o BatchMode=yes {host}", ("--slurmd-start", "a b"))
    words = remote_command(host, sibling, "start")
    assert words[:5] == ["ssh", "-o", "BatchMode=yes", "h1", "aliquot"]
    assert "'a b'" in words
    assert words[-2:] == ["--offers", "0000:01:00.0"]
    plain = remote_command(power.SiblingHost("h1", (sibling,), "", ("--slurmd-start", "a b")), sibling, "stop")
    assert "a b" in plain
    assert plain[1:3] == ["-m", "aliquot"]
    behind = remote_command(
        power.SiblingHost("h1", (sibling,), "sudo -u slurm ssh {host}", ("--slurmd-start", "a;b")), sibling, "start"
    )
    assert "'a;b'" in behind


@pytest.mark.parametrize("text", ["{" * 300_000, '{"a":' * 300_000, "", "no\n"])
def test_a_hosts_last_words_are_not_errors_of_ours(text: str) -> None:
    code, sentence = _why(text)
    assert code == "REACH"
    assert len(sentence) <= 400
    assert _why('note\n{"code": "HELD", "message": "\\u001b[2Jgone"}') == ("HELD", "[2Jgone")
