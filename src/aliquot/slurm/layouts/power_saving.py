"""Requests of power saving, read from ResumeProgram's file, and the choice among a host's records. Pure.

Slurm passes ResumeProgram a host list, and in SLURM_RESUME_FILE (deleted when the program ends) JSON with the waiting
jobs: ``nodes_resume`` since 23.02, ``nodes`` before. Source: slurm.schedmd.com/power_save.html, and output of 22.05 and
24.11 in tests/system/slurm/test_cloud.py.
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
    """A host's records, as ``aliquot slurm siblings -o json`` prints them."""

    host: str
    siblings: tuple[Sibling, ...]
    reach: str = ""
    """The command that runs commands on the host; "" for this host."""
    run: tuple[str, ...] = ()
    """Options of ``power start`` and ``stop`` on the host."""
    kind: str = KIND


class StartSelection(msgspec.Struct, frozen=True):
    """The records to start."""

    start: tuple[str, ...]
    losers: tuple[tuple[str, str], ...] = ()
    """Requested records that do not start, each with the record that starts instead."""
    unknown: tuple[str, ...] = ()
    """Names that no file of siblings has."""


def host_of(text: str, source: str) -> SiblingHost:
    """Parse the file of a host. Raises ConfigError."""
    try:
        host = msgspec.json.decode(text, type=SiblingHost)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ConfigError(
            f"{source} is not a file of siblings: {error}", next_step="aliquot slurm siblings -o json > FILE"
        ) from error
    if host.kind != KIND:
        raise ConfigError(f"{source} is a {host.kind}, not {KIND}", next_step="aliquot slurm siblings -o json > FILE")
    return host


def first_jobs(data: bytes) -> dict[str, int]:
    """Return the earliest job that waits for each record; {} if the data is invalid."""
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
    """Select one record per host: that of the earliest job, else the first in ``names``.

    ``hosts`` has all records of each host.
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
