"""A client that uses Slurm's own programs. Every call has a time limit; no connection stays open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from aliquot.slurm.client import error_messages as error_texts
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client import queue_listing
from aliquot.slurm.client import scontrol_output as text
from aliquot.slurm.client.bounded_program import SlurmPrograms
from aliquot.slurm.client.errors import NoNodeError, OldSlurmError, RefusedError
from aliquot.slurm.client.json_versions.reader import SlurmDocument
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.client.port import BOUND_S
from aliquot.slurm.client.states import has_ended
from aliquot.slurm.conf import hostlist

DYNAMIC = Version(22, 5)
"""The first release with ``scontrol create`` and ``delete``."""
ADD_SYNTAX = Version(23, 2)
"""``nodes=+NAME`` of a partition works on 24.11. 22.05 reads ``+`` as part of the name, so it gets the whole list."""
FILTERED_JSON = Version(23, 2)
"""From this release, ``squeue --json`` honors its filters; that of 22.05 always lists every job."""
_FORGOTTEN = re.compile(r"Invalid job id specified|^Job \d+ not found", re.MULTILINE)
"""Output of scontrol for a job that slurmctld does not have, or no longer has."""
_NO_RESERVATION = "Requested reservation is invalid"
_HOLDING = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"
_ONE_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class ScontrolClient:
    """A cluster that is read and changed with ``scontrol`` and ``squeue``.

    ``conf`` is a slurm.conf that replaces SLURM_CONF. Without ``json``, everything is read from text, as with programs
    that cannot write JSON.
    """

    through = "scontrol"

    def __init__(self, conf: str = "", bound_s: float = BOUND_S, *, json: bool = True) -> None:
        self._programs = SlurmPrograms(conf, bound_s)
        self._speaks_json = {"scontrol": json, "squeue": json}
        self._lists_excluded = True
        self._filters: bool | None = None

    def version(self) -> Version:
        output = self.settings().get("SLURM_VERSION", "")
        found = text.version(output)
        if found is None:
            raise RefusedError(f"cannot read slurmctld's version from {output!r}", next_step="scontrol show config")
        return found

    def settings(self) -> dict[str, str]:
        return text.settings(self._ok("read Slurm's settings", "show", "config"))

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self._nodes("read Slurm's nodes", "nodes")

    def node(self, name: str) -> SlurmNode:
        purpose = f"read node {name}"
        check_name(name, purpose)
        found = self._nodes(purpose, "node", name)
        if not found:
            raise error_texts.slurm_error(f"Node {name} not found", purpose)
        return found[0]

    def jobs(self, node: str = "", *, holding: bool = False) -> tuple[SlurmJob, ...]:
        if node:
            return tuple(j for j in self._jobs_on(node) if on_node(j, node))
        purpose = "read Slurm's jobs"
        states = (f"--states={_HOLDING}",) if holding and self.version() >= FILTERED_JSON else ()
        found = self._document(purpose, "squeue", "--all", *states, "--json")
        every = found.jobs() if found else self._jobs_by_text(purpose)
        return tuple(j for j in every if not has_ended(j.state) and not (holding and j.pending))

    def queue(self, *, details: bool = True) -> tuple[SlurmJob, ...]:
        purpose = "read Slurm's queue"
        listed = {job.id: job for job in self._listed_queue(purpose, excluded=details)}
        wanted = queue_listing.with_details(listed.values()) if details else ()
        return tuple((listed | {job.id: job for job in self._full_records(purpose, wanted)}).values())

    def _listed_queue(self, purpose: str, *, excluded: bool) -> tuple[SlurmJob, ...]:
        """Return the jobs of a listing. ``squeue`` of 22.05 cannot list excluded nodes along with the other fields."""
        ran = self._programs.run(purpose, "squeue", *queue_listing.format_words(excluded=self._lists_excluded))
        if ran.code:
            raise error_texts.slurm_error(ran.err.strip() or ran.out.strip(), purpose)
        listed = queue_listing.jobs(ran.out)
        self._lists_excluded = self._lists_excluded and queue_listing.EXCLUDED not in ran.err
        if self._lists_excluded or not excluded or not any(job.pending for job in listed):
            return listed
        words = ("squeue", "--all", "--noheader", f"--format={queue_listing.EXCLUDED_FORMAT}")
        nodes = queue_listing.excluded_nodes(self._programs.ok(purpose, *words))
        return tuple(msgspec.structs.replace(j, excluded_nodes=nodes[j.id]) if j.id in nodes else j for j in listed)

    def _full_records(self, purpose: str, jobs: Iterable[SlurmJob]) -> tuple[SlurmJob, ...]:
        """Read the full records of jobs; a job that has ended meanwhile is omitted."""
        wanted = {job.id: job for job in jobs}
        if not wanted:
            return ()
        found = None
        if self._filters_json():
            # With a single number, a job that has ended meanwhile would be an error.
            numbers = ",".join(map(str, (*wanted, min(wanted))))
            found = self._document(purpose, "squeue", "--all", f"--jobs={numbers}", "--json")
        every = found.jobs() if found else self._verified_by_text(purpose, wanted)
        return tuple(job for job in every if job.id in wanted and not has_ended(job.state))

    def _filters_json(self) -> bool:
        """Report whether ``squeue --json`` honors its filters; Slurm's version is read once for it."""
        if self._filters is None:
            self._filters = self.version() >= FILTERED_JSON
        return self._filters

    def _verified_by_text(self, purpose: str, summaries: dict[int, SlurmJob]) -> tuple[SlurmJob, ...]:
        return text.verified_jobs(self._ok(purpose, "--all", "--detail", "show", "jobs"), summaries)

    def _jobs_on(self, node: str) -> tuple[SlurmJob, ...]:
        """Return the jobs on a node.

        A first query for their numbers costs half as much as the full records, and is mostly empty.
        """
        purpose = f"read the jobs on {node}"
        check_name(node, purpose)
        words = ("squeue", "--all", f"--nodelist={node}")
        summaries = text.job_summaries(
            self._programs.ok(purpose, *words, "--noheader", f"--format={text.SUMMARY_FORMAT}")
        )
        if not summaries:
            return ()
        found = self._document(purpose, *words, "--json") if self.version() >= FILTERED_JSON else None
        return found.jobs() if found else text.verified_jobs("".join(self._job_texts(purpose, summaries)), summaries)

    def _job_texts(self, purpose: str, job_ids: Iterable[int]) -> Iterator[str]:
        for number in job_ids:
            ran = self._programs.run(purpose, "scontrol", "--all", "--detail", "show", "job", str(number))
            if ran.code == 0:
                yield ran.out
                continue
            output = ran.err.strip() or ran.out.strip()
            # A job that slurmctld has dropped meanwhile is not an error. Any other job may hold GPUs.
            if not _FORGOTTEN.search(output):
                failure = error_texts.slurm_error(output, purpose)
                # Slurm has just listed the node's jobs, so the node exists.
                raise RefusedError(f"cannot {purpose}: {output}") if isinstance(failure, NoNodeError) else failure

    def _jobs_by_text(self, purpose: str) -> tuple[SlurmJob, ...]:
        words = ("squeue", "--all", "--noheader", "--states=all", f"--format={text.SUMMARY_FORMAT}")
        return self._verified_by_text(purpose, text.job_summaries(self._programs.ok(purpose, *words)))

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return text.partitions(self._ok("read Slurm's partitions", "--all", "show", "partitions"))

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return text.reservations(self._ok("read Slurm's reservations", "show", "reservations"))

    def reserve(self, reservation: str, node: str, minutes: int) -> None:
        purpose = f"reserve {node}"
        check_name(node, purpose)
        words = (f"reservationname={reservation}", f"nodes={node}", "starttime=now", f"duration={minutes}")
        self._ok(purpose, "create", "reservation", *words, "flags=maint,ignore_jobs", "users=root")

    def extend_reservation(self, reservation: str) -> None:
        self._ok(f"extend reservation {reservation}", "update", f"reservationname={reservation}", "duration=infinite")

    def delete_reservation(self, reservation: str) -> None:
        purpose = f"delete reservation {reservation}"
        ran = self._programs.run(purpose, "scontrol", "delete", f"reservationname={reservation}")
        output = ran.err.strip() or ran.out.strip()
        if ran.code and _NO_RESERVATION not in output:
            raise error_texts.slurm_error(output, purpose)

    def drain(self, name: str, reason: str) -> None:
        self._update(f"drain {name}", name, "state=drain", f"reason={require_reason(reason)}")

    def resume(self, name: str) -> None:
        try:
            self._update(f"resume {name}", name, "state=resume")
        except RefusedError as refused:
            error_texts.raise_unless_in_service(self.node(name), refused)

    def down(self, name: str, reason: str) -> None:
        self._update(f"set {name} down", name, "state=down", f"reason={require_reason(reason)}")

    def requeue(self, job: int) -> None:
        purpose = f"requeue job {job}"
        ran = self._programs.run(purpose, "scontrol", "requeue", str(job))
        output = ran.err.strip() or ran.out.strip()
        if ran.code and "Job is pending execution" not in output:
            raise error_texts.slurm_error(output, purpose)

    def note(self, name: str, extra: str) -> None:
        self._update(f"note the layout of {name}", name, f"extra={one_line(extra)}")

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        self._update(f"describe {name}", name, *(f"{key}={one_line(value)}" for key, value in words.items()))

    def join(self, partition: str, name: str) -> None:
        purpose = f"put {name} into partition {partition}"
        check_name(name, purpose)
        words = ("update", f"partitionname={partition}")
        if self.version() >= ADD_SYNTAX:
            self._ok(purpose, *words, f"nodes=+{name}")
            return
        found = next((p for p in self.partitions() if p.name == partition), None)
        if found is None:
            raise RefusedError(f"cannot {purpose}: the partition does not exist", next_step="scontrol show partitions")
        sets = (found.spec,) if found.spec and hostlist.expand(found.spec) != found.nodes else ()
        self._ok(purpose, *words, f"nodes={','.join(dict.fromkeys((*sets, *found.nodes, name)))}")

    def features(self, name: str, available: tuple[str, ...]) -> None:
        # In one call, because the active features must always be among the available ones.
        words = ",".join(available)
        self._update(f"set the features of {name}", name, f"availablefeatures={words}", f"activefeatures={words}")

    def create(self, line: str) -> None:
        words = line.split()
        keys = {k.lower(): v for k, _, v in (w.partition("=") for w in words)}
        name = keys.get("nodename", "")
        purpose = f"create node {name}"
        if len(keys) < len(words):
            raise RefusedError(f"cannot {purpose}: its line has a key twice, or a word without =", details=(line,))
        check_name(name, purpose)
        grestext.parse_configured(keys.get("gres", ""))
        self._check_release(purpose)
        if self._node_exists(name):
            # 22.05 accepts this and corrupts the existing record.
            raise RefusedError(f"cannot {purpose}: it already exists", next_step=f"scontrol show node {name}")
        self._ok(purpose, "create", *words)

    def delete(self, name: str) -> None:
        purpose = f"delete node {name}"
        check_name(name, purpose)
        self._check_release(purpose)
        self._ok(purpose, "delete", f"nodename={name}")

    def reconfigure(self) -> None:
        self._ok("have Slurm read its files again", "reconfigure")

    def _nodes(self, purpose: str, *what: str) -> tuple[SlurmNode, ...]:
        words = ("--all", "--future", "--detail", "show", *what)
        found = self._document(purpose, "scontrol", *words, "--json")
        return found.nodes() if found else text.nodes(self._ok(purpose, *words))

    def _document(self, purpose: str, *words: str) -> SlurmDocument | None:
        """Return the JSON output of a program, in which free text cannot pose as a field.

        Returns None if the program cannot write JSON (scontrol before 23.02, or no JSON plugin); it is tried only once.
        """
        if not self._speaks_json[words[0]]:
            return None
        ran = self._programs.run(purpose, *words)
        if ran.code == 0:
            return SlurmDocument(ran.out, purpose)
        refused = error_texts.slurm_error(ran.err.strip() or ran.out.strip(), purpose)
        if type(refused) is not RefusedError:
            raise refused
        self._speaks_json[words[0]] = False
        return None

    def _node_exists(self, name: str) -> bool:
        """Report whether Slurm has a node. 22.05 shows powered-down CLOUD nodes only in their partitions."""
        try:
            self.node(name)
        except NoNodeError:
            return any(name in each.nodes for each in self.partitions())
        return True

    def _check_release(self, purpose: str) -> None:
        release = self.version()
        if release < DYNAMIC:
            raise OldSlurmError(f"cannot {purpose}: dynamic nodes need Slurm {DYNAMIC}, and this is {release}")

    def _update(self, purpose: str, name: str, *words: str) -> None:
        check_name(name, purpose)
        self._ok(purpose, "update", f"nodename={name}", *words)

    def _ok(self, purpose: str, *words: str) -> str:
        return self._programs.ok(purpose, "scontrol", *words)


def on_node(job: SlurmJob, node: str) -> bool:
    """Report whether a job has resources on a node."""
    return node in job.nodes and not job.pending and not has_ended(job.state)


def check_name(name: str, purpose: str) -> None:
    """Raise NoNodeError unless a name stands for exactly one node: ``ALL`` and host lists would affect others."""
    if not _ONE_NODE.fullmatch(name) or name.upper() == "ALL":
        raise NoNodeError(f"cannot {purpose}: {name!r} is not the name of one node", next_step="scontrol show nodes")


def one_line(words: str) -> str:
    """Return free text on one line, without characters that are not printable.

    In Slurm's output, a line break would look like the next field, and other such characters could be escape sequences
    for a terminal.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def require_reason(words: str) -> str:
    """Return a reason on one line.

    Raises RefusedError if it is empty: slurmrestd accepts that, and operators then cannot see why a node is drained.
    """
    output = one_line(words)
    if not output:
        raise RefusedError("cannot take a node out of service without a reason")
    return output
