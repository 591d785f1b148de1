"""Parser of ``scontrol show`` output, with one or more fields per line. Needs SLURM_TIME_FORMAT=%s.

In this format, free text (reasons, comments, job names) is at the end of its line. With ``-o`` it is not, and a comment
could pose as a field. If a key occurs twice, the first one counts, because free text comes last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator

from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.array_tasks import task_count
from aliquot.slurm.client.errors import RefusedError
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.client.states import job_state, node_states, reason_word
from aliquot.slurm.conf import hostlist

Fields = dict[str, str]

_FREE = ("OS", "Reason", "Comment", "Extra", "JobName", "AdminComment", "SystemComment", "Command", "WorkDir")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9/_:]*)=")
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,4}):)?(\d{1,2}):(\d{2})")
_WHO = re.compile(r" \[[^\[\]@]*@[^\[\]]*\]$")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_REQUEST_KEYS = {"TresPerNode": "node", "TresPerJob": "job", "TresPerTask": "task", "TresPerSocket": "socket"}


def nodes(text: str) -> tuple[SlurmNode, ...]:
    """Parse ``scontrol show nodes -d``. Like every function here, raises RefusedError for other text."""
    return tuple(_node(fields) for fields, _ in _records(text, "NodeName="))


def jobs(text: str) -> tuple[SlurmJob, ...]:
    """Parse ``scontrol show jobs -d``, including jobs that have ended."""
    return tuple(_job(fields, allocated) for fields, allocated in _records(text, "JobId="))


SUMMARY_FORMAT = "%A|%T|%u|%P|%D|%Q|%N"
"""Format of squeue for ``job_summaries``; none of its fields is free text of a user."""
_REPORTED_ONCE = ("UserId", "JobState", "Partition", "NodeList", "Priority")


def job_summaries(text: str) -> dict[int, SlurmJob]:
    """Parse ``squeue --format=SUMMARY_FORMAT``: the existing jobs, without fields that users can write."""
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
    """Parse the jobs of ``summaries`` as ``jobs`` does, and verify them against ``job_summaries``.

    scontrol prints names and comments with their line breaks, so a user can forge the record of a job that does not
    exist, or a false state of a job. If a job's record contradicts itself or occurs twice, its summary is returned.
    """
    records = [(number, lines) for number, lines in _job_records(text, summaries) if number in summaries]
    times = Counter(number for number, _ in records)
    found: dict[int, SlurmJob] = {}
    for number, lines in records:
        plain = times[number] == 1 and not _contradicts(lines)
        found[number] = _job(_fields(lines), _allocated(lines)) if plain else summaries[number]
    return tuple(found.values())


def _job_records(text: str, wanted: Container[int]) -> Iterator[tuple[int, list[str]]]:
    """Return the number and the lines of each job's record, at least of the ``wanted`` ones.

    Most of a long queue is not wanted, and only its numbers are read.
    """
    head, *others = text.split("\nJobId=")
    for record in (head, *("JobId=" + each for each in others)):
        forged = record.find("JobId=", 1) >= 0  # it may begin a line for splitlines, as after \r
        if forged or not record.startswith("JobId=") or _int(record[6:20]) in wanted:
            yield from ((_int(lines[0][6:20]), lines) for lines in _split(record, "JobId="))


def _contradicts(lines: list[str]) -> bool:
    """Report whether a field that Slurm prints once is missing or repeated: a user forged it, or records are mixed."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines):
        counts.update(key for key, _ in _line(number, line) if key in _REPORTED_ONCE)
    return any(counts[key] != 1 for key in _REPORTED_ONCE)


def partitions(text: str) -> tuple[SlurmPartition, ...]:
    """Parse ``scontrol show partitions``."""
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
    """Parse ``scontrol show reservations``."""
    found = _records(text, "ReservationName=")
    return tuple(
        SlurmReservation(
            fields["ReservationName"],
            hostlist.expand(_plain(fields.get("Nodes", ""))),
            _words(fields.get("Flags", "")),
            _int(fields.get("StartTime", "")),
            _int(fields.get("EndTime", "")),
        )
        for fields, _ in found
    )


def settings(text: str) -> dict[str, str]:
    """Parse ``scontrol show config``: ``Key   = value`` lines; ``(null)`` becomes empty."""
    pairs = (line.partition("=") for line in text.splitlines() if re.match(r"\w+ *= ?", line))
    return {key.strip(): _plain(value.strip()) for key, _, value in pairs}


def version(text: str) -> Version | None:
    """Parse a version: ``22.05.8``, ``slurm-wlm 24.11.5-1``, ``25.05.0-0rc1``. Returns None for other text."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return Version(int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _records(text: str, opening: str) -> Iterator[tuple[Fields, tuple[tuple[str, Gres], ...]]]:
    """Return the fields of each record, and the GRES of its ``Nodes=... GRES=...`` lines."""
    return ((_fields(lines), _allocated(lines)) for lines in _split(text, opening))


def _split(text: str, opening: str) -> Iterator[list[str]]:
    if text.strip() and not text.lstrip().startswith((opening, "No ")):  # "No nodes in the system"
        raise RefusedError("cannot parse the output of scontrol", details=tuple(text.split("\n", 3)[:3]))
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
        return  # the allocation on a node
    rest = line.strip()
    # After JobState= the reason is one word; on its own line it is free text.
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
    per_cpu = mib(fields.get("MinMemoryCPU", ""))
    state = job_state([fields.get("JobState", "")])
    return SlurmJob(
        id=_int(fields["JobId"]),
        state=state,
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
        node_limit=_int(fields.get("NumNodes", "").partition("-")[2]),
        tasks=max(_int(fields.get("NumTasks", "")), 1),
        cpus=cpus,
        memory_mib=per_cpu * -(-cpus // nodes_at_least) if per_cpu else mib(fields.get("MinMemoryNode", "")),
        priority=_int(fields.get("Priority", "")),
        submitted=_int(fields.get("SubmitTime", "")),
        eligible=_int(fields.get("EligibleTime", "")),
        time_limit_s=duration_s(fields.get("TimeLimit", "")),
        latest_end=_int(fields.get("EndTime", "")) if state != "PENDING" else 0,
        required_nodes=hostlist.expand(_plain(fields.get("ReqNodeList", ""))),
        excluded_nodes=hostlist.expand(_plain(fields.get("ExcNodeList", ""))),
        reservation=_plain(fields.get("Reservation", "")),
        exclusive=fields.get("OverSubscribe", "") in ("NO", "EXCLUSIVE"),
        requeue=fields.get("Requeue", "1") == "1",
        array_job=_int(fields.get("ArrayJobId", "")),
        array_tasks=task_count(fields.get("ArrayTaskId", "")) or 1,
        array_limit=_int(fields.get("ArrayTaskThrottle", "")),
    )


def duration_s(text: str) -> int:
    """Parse a time limit: ``30:00``, ``1:30:00``, ``2-00:00:00``; 0 for UNLIMITED and other text."""
    match = _DURATION.fullmatch(text)
    if not match:
        return 0
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _plain(value: str) -> str:
    return "" if value in ("(null)", "N/A", "None") else value


def _words(value: str) -> tuple[str, ...]:
    return tuple(w for w in _plain(value).split(",") if w)


def _int(value: str) -> int:
    """Return the number that a field begins with (``1-4`` nodes, ``4@2.1GHz``); 0 for Unknown and N/A."""
    found = re.match(r"\d+", value)
    return int(found[0]) if found else 0


def mib(value: str) -> int:
    found = re.fullmatch(r"([\d.]+)([KMGTP]?)", value)
    return round(float(found[1]) * _MIB[found[2] or "M"]) if found else 0
