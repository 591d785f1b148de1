"""What ``scontrol show`` prints, one field per line or several, as values. Read with SLURM_TIME_FORMAT=%s.

Free text (reasons, comments, job names) stands at the end of its line in this form; in ``-o`` form it does not, and a
comment could pose as a field. Of a key that comes twice the first counts: free text comes last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.errors import RefusedError
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.client.states import job_state, node_states, reason_word
from aliquot.slurm.conf import hostlist

Fields = dict[str, str]

_FREE = ("OS", "Reason", "Comment", "Extra", "JobName", "AdminComment", "SystemComment", "Command", "WorkDir")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9/_:]*)=")
_WHO = re.compile(r" \[[^\[\]@]*@[^\[\]]*\]$")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_REQUEST_KEYS = {"TresPerNode": "node", "TresPerJob": "job", "TresPerTask": "task", "TresPerSocket": "socket"}


def nodes(text: str) -> tuple[SlurmNode, ...]:
    """``scontrol show nodes -d``. Raises RefusedError for what scontrol never says, in every function here."""
    return tuple(_node(fields) for fields, _ in _records(text, "NodeName="))


def jobs(text: str) -> tuple[SlurmJob, ...]:
    """``scontrol show jobs -d``, those that have ended with the others."""
    return tuple(_job(fields, allocated) for fields, allocated in _records(text, "JobId="))


SUMMARY_FORMAT = "%A|%T|%u|%P|%D|%Q|%N"
"""squeue's format for ``job_summaries``: nothing in it is a user's own words."""
_REPORTED_ONCE = ("UserId", "JobState", "Partition", "NodeList", "Priority")


def job_summaries(text: str) -> dict[int, SlurmJob]:
    """``squeue --format=SUMMARY_FORMAT``: the jobs that there are, and what nobody can have written there."""
    found = {}
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == 7 and words[0].isdecimal():
            number, state, user, partition, count, priority, names = words
            found[int(number)] = SlurmJob(
                id=int(number),
                state=job_state([state]),
                user=user,
                partitions=_words(partition),
                node_count=max(_int(count), 1),
                priority=_int(priority),
                nodes=tuple(sorted(hostlist.expand(_plain(names)))),
            )
    return found


def verified_jobs(text: str, summaries: dict[int, SlurmJob]) -> tuple[SlurmJob, ...]:
    """Jobs as ``jobs`` reads them, held against ``job_summaries``: names and comments are printed with their line
    breaks, so that a user can have a record printed of a job that there is not, or that says another state of her own.
    Of a job whose record contradicts itself, or is there twice, only what is sure is told.
    """
    records = [(_int(parsed["JobId"]), parsed, allocated, whole) for parsed, allocated, whole in _whole_records(text)]
    times = Counter(number for number, *_ in records)
    found: dict[int, SlurmJob] = {}
    for number, fields, allocated, whole in records:
        if number in summaries:
            plain = times[number] == 1 and not _contradicts(whole)
            found[number] = _job(fields, allocated) if plain else summaries[number]
    return tuple(found.values())


def _whole_records(text: str) -> Iterator[tuple[Fields, tuple[tuple[str, Gres], ...], list[str]]]:
    for lines in _split(text, "JobId="):
        yield _fields(lines), _allocated(lines), lines


def _contradicts(lines: list[str]) -> bool:
    """Whether a record does not say once what Slurm says once: another began within it, or its user wrote it again."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines):
        counts.update(key for key, _ in _line(number, line) if key in _REPORTED_ONCE)
    return any(counts[key] != 1 for key in _REPORTED_ONCE)


def partitions(text: str) -> tuple[SlurmPartition, ...]:
    """``scontrol show partitions``."""
    return tuple(
        SlurmPartition(
            name=fields.get("PartitionName", ""),
            nodes=hostlist.expand(_plain(fields.get("Nodes", ""))),
            spec=_plain(fields.get("NodeSets", "")) or _plain(fields.get("Nodes", "")),
            up=fields.get("State", "UP") == "UP",
        )
        for fields, _ in _records(text, "PartitionName=")
    )


def reservations(text: str) -> tuple[SlurmReservation, ...]:
    """``scontrol show reservations``."""
    found = _records(text, "ReservationName=")
    return tuple(
        SlurmReservation(fields["ReservationName"], hostlist.expand(_plain(fields.get("Nodes", ""))))
        for fields, _ in found
    )


def settings(text: str) -> dict[str, str]:
    """``scontrol show config``: ``Key   = value`` lines; ``(null)`` is empty."""
    pairs = (line.partition("=") for line in text.splitlines() if re.match(r"\w+ *= ?", line))
    return {key.strip(): _plain(value.strip()) for key, _, value in pairs}


def version(text: str) -> Version | None:
    """``22.05.8``, ``slurm-wlm 24.11.5-1``, ``25.05.0-0rc1``."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return Version(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _records(text: str, opening: str) -> Iterator[tuple[Fields, tuple[tuple[str, Gres], ...]]]:
    """Fields of each record, and what its ``Nodes=... GRES=...`` lines say."""
    return ((_fields(lines), _allocated(lines)) for lines in _split(text, opening))


def _split(text: str, opening: str) -> Iterator[list[str]]:
    if text.strip() and not text.lstrip().startswith((opening, "No ")):  # "No nodes in the system"
        raise RefusedError("what scontrol prints cannot be read", details=tuple(text.split("\n", 3)[:3]))
    lines: list[str] = []
    for line in [*text.splitlines(), opening]:
        if line.startswith(opening):
            if lines and lines[0].startswith(opening):
                yield lines
            lines = []
        lines.append(line)


def _fields(lines: list[str]) -> Fields:
    found: Fields = {}
    for number, line in enumerate(lines):
        for key, value in _line(number, line):
            found.setdefault(key, value)
    return found


def _line(number: int, line: str) -> Iterator[tuple[str, str]]:
    if line.startswith("     "):
        return  # what it has on a node
    rest = line.strip()
    # A state's line holds a reason in one word; a reason's own line holds free text.
    yield from _pairs(rest, _FREE if number == 0 or not rest.startswith("JobState=") else ())


def _pairs(line: str, free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    while line:
        match = _KEY.match(line)
        if match is None:
            line = line.partition(" ")[2].lstrip()
        elif match[1] in free:
            yield match[1], line[match.end() :]
            return
        else:
            value, _, line = line[match.end() :].partition(" ")
            line = line.lstrip()
            yield match[1], value


def _allocated(lines: list[str]) -> tuple[tuple[str, Gres], ...]:
    found: list[tuple[str, Gres]] = []
    for line in lines:
        if line.startswith("     Nodes="):
            has = dict(_pairs(line.strip(), ()))
            entries = grestext.parse_listed(has.get("GRES", ""))
            found += [(name, each) for name in hostlist.expand(has["Nodes"]) for each in entries]
    return tuple(sorted(found, key=lambda pair: pair[0]))


def _node(fields: Fields) -> SlurmNode:
    return SlurmNode(
        name=fields["NodeName"],
        states=node_states(re.split(r"\+", fields.get("State", ""))),
        hostname=_plain(fields.get("NodeHostName", "")),
        address=_plain(fields.get("NodeAddr", "")),
        port=_int(fields.get("Port", "")),
        reason=_WHO.sub("", _plain(fields.get("Reason", ""))),
        comment=_plain(fields.get("Comment", "")),
        extra=_plain(fields.get("Extra", "")),
        features=_words(fields.get("AvailableFeatures", "")),
        active_features=_words(fields.get("ActiveFeatures", "")),
        gres=grestext.parse_listed(fields.get("Gres")),
        gres_used=grestext.parse_listed(fields.get("GresUsed")),
        partitions=_words(fields.get("Partitions", "")),
        cpus=_int(fields.get("CPUTot", "")),
        cpus_allocated=_int(fields.get("CPUAlloc", "")),
        sockets=_int(fields.get("Sockets", "")),
        cores=_int(fields.get("CoresPerSocket", "")),
        threads=_int(fields.get("ThreadsPerCore", "")),
        memory_mib=_int(fields.get("RealMemory", "")),
        version=_plain(fields.get("Version", "")),
        slurmd_start=_int(fields.get("SlurmdStartTime", "")),
        last_busy=_int(fields.get("LastBusyTime", "")),
        weight=_int(fields.get("Weight", "")),
    )


def _job(fields: Fields, allocated: tuple[tuple[str, Gres], ...]) -> SlurmJob:
    nodes_at_least, cpus = max(_int(fields.get("NumNodes", "")), 1), max(_int(fields.get("NumCPUs", "")), 1)
    per_cpu = _mib(fields.get("MinMemoryCPU", ""))
    return SlurmJob(
        id=_int(fields["JobId"]),
        state=job_state([fields.get("JobState", "")]),
        user=fields.get("UserId", "").partition("(")[0],
        name=fields.get("JobName", ""),
        reason=reason_word(_plain(fields.get("Reason", ""))),
        partitions=_words(fields.get("Partition", "")),
        nodes=tuple(sorted(hostlist.expand(_plain(fields.get("NodeList", ""))))),
        requested=tuple(
            (how, each) for key, how in _REQUEST_KEYS.items() for each in grestext.requested_gpus(fields.get(key))
        ),
        allocated=allocated,
        features=_plain(fields.get("Features", "")),
        node_count=nodes_at_least,
        tasks=max(_int(fields.get("NumTasks", "")), 1),
        cpus=cpus,
        memory_mib=per_cpu * -(-cpus // nodes_at_least) if per_cpu else _mib(fields.get("MinMemoryNode", "")),
        priority=_int(fields.get("Priority", "")),
        submitted=_int(fields.get("SubmitTime", "")),
        eligible=_int(fields.get("EligibleTime", "")),
        required_nodes=hostlist.expand(_plain(fields.get("ReqNodeList", ""))),
        excluded_nodes=hostlist.expand(_plain(fields.get("ExcNodeList", ""))),
        reservation=_plain(fields.get("Reservation", "")),
        exclusive=fields.get("OverSubscribe", "") in ("NO", "EXCLUSIVE"),
        requeue=fields.get("Requeue", "1") == "1",
    )


def _plain(value: str) -> str:
    return "" if value in ("(null)", "N/A", "None") else value


def _words(value: str) -> tuple[str, ...]:
    return tuple(w for w in _plain(value).split(",") if w)


def _int(value: str) -> int:
    """The number a field begins with (``1-4`` nodes, ``4@2.1GHz``); 0 for Unknown and N/A."""
    found = re.match(r"\d+", value)
    return int(found[0]) if found else 0


def _mib(value: str) -> int:
    found = re.fullmatch(r"([\d.]+)([KMGTP]?)", value)
    return round(float(found[1]) * _MIB[found[2] or "M"]) if found else 0
