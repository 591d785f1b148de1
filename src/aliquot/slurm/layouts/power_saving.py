"""What power saving asks for, and who of a host's records gets it: read from ResumeProgram's file. Pure.

Slurm gives ResumeProgram a host list, and in SLURM_RESUME_FILE (gone when the program ends) JSON about the jobs that
wait: ``nodes_resume`` since 23.02, ``nodes`` before. Source: slurm.schedmd.com/power_save.html, and what 22.05 and
24.11 wrote in tests/system/slurm/test_cloud.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.errors import ConfigError
from aliquot.slurm.conf.hostlist import expand
from aliquot.slurm.layouts.cloud_nodes import Sibling

KIND = "SlurmSiblings"


class SiblingHost(msgspec.Struct, frozen=True):
    """A host's records as ``aliquot slurm siblings -o json`` prints them. ``reach`` is the command that runs others on
    the host ("" here), ``run`` the options of ``power start`` and ``stop`` there.
    """

    host: str
    siblings: tuple[Sibling, ...]
    reach: str = ""
    run: tuple[str, ...] = ()
    kind: str = KIND


class StartSelection(msgspec.Struct, frozen=True):
    """Who starts, who has to give way to whom (record to record), and which names no file of siblings has."""

    start: tuple[str, ...]
    losers: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()


def host_of(text: str, source: str) -> SiblingHost:
    """A file's host. Raises ConfigError."""
    try:
        host = msgspec.json.decode(text, type=SiblingHost)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigError(
            f"{source}: these are no siblings: {error}", next_step="aliquot slurm siblings -o json > FILE"
        ) from error
    if host.kind != KIND:
        raise ConfigError(f"{source} is a {host.kind}, not {KIND}", next_step="aliquot slurm siblings -o json > FILE")
    return host


def first_jobs(data: bytes) -> dict[str, int]:
    """The earliest job that waits for each record; {} where the file says nothing that can be read."""
    try:
        plain: Any = msgspec.json.decode(data)
        jobs = [(int(job["job_id"]), job.get("nodes_resume") or job.get("nodes") or "") for job in plain["jobs"]]
        found: dict[str, int] = {}
        for number, nodes in sorted(jobs):
            for name in expand(nodes):
                found.setdefault(name, number)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, ConfigError):
        return {}
    return found


def select_starts(
    names: Iterable[str], hosts: Mapping[str, Sequence[str]], waiting: Mapping[str, int]
) -> StartSelection:
    """One record per host: that of the earliest job, else the first that was named. ``hosts`` are all records by
    host.
    """
    requested = list(dict.fromkeys(names))
    host_by_record = {record: host for host, records in hosts.items() for record in records}
    unknown = tuple(name for name in requested if name not in host_by_record)
    chosen: dict[str, str] = {}
    for name in sorted(
        (n for n in requested if n in host_by_record), key=lambda n: (n not in waiting, waiting.get(n, 0))
    ):
        chosen.setdefault(host_by_record[name], name)
    start = tuple(name for name in requested if chosen.get(host_by_record.get(name, "")) == name)
    losers = tuple((n, chosen[host_by_record[n]]) for n in requested if n in host_by_record and n not in start)
    return StartSelection(start, losers, unknown)


__all__ = ["KIND", "SiblingHost", "StartSelection", "first_jobs", "host_of", "select_starts"]
