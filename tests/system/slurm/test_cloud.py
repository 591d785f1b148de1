"""CLOUD records on a real cluster: power saving starts and stops a host's layouts, with a single open record."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from .applying import Host
from .bed import Bed, Ran, until

DEPLOY = Path(__file__).parents[3] / "deploy" / "slurm"
THREES, ONES = "n1-2x3g-20gb", "n1-7x1g-5gb"
A, B = "gpu:a100_3g.20gb", "gpu:a100_1g.5gb"


class Cloud:
    """A cluster whose host n1 (one A100) runs as either of two records, or as none."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.host = Host(bed, template="a100-sxm4-40gb")
        self.siblings = bed.folder / "siblings.json"
        self.log = bed.folder / "power"
        port = bed.ports.of("records")
        rendered = self.host.ok("slurm", "siblings", *self._words(port), "-o", "json")
        plain = msgspec.json.decode(rendered)
        self.siblings.write_text(rendered)
        programs = {w: self._program(w) for w in ("resume", "suspend")}
        lines = [line for line in plain["slurm_conf"] if line.startswith("NodeName=")]
        lines = [line.replace("NodeHostname=n1", f"NodeHostname={bed.host}") for line in lines]
        keys = [k for k in plain["slurm_conf"] if not k.startswith(("NodeName=", "GresTypes", "SelectType"))]
        keys = [k.replace("/usr/local/libexec/aliquot/slurm-resume", programs["resume"]) for k in keys]
        keys = [k.replace("/usr/local/libexec/aliquot/slurm-suspend", programs["suspend"]) for k in keys]
        keys = [k.replace("SuspendTimeout=60", "SuspendTimeout=5") for k in keys]
        bed.conf(
            "\n".join([*lines, "PartitionName=all Nodes=ALL Default=YES"]),
            more="\n".join(keys),
            gres=plain["gres_conf"],
        )
        bed.controller()

    def _words(self, port: int) -> list[str]:
        bed = self.bed
        pid = f"{bed.folder}/run/$ALIQUOT_NODE_NAME.pid"
        stop = f"[ -e {pid} ] || exit 0; read p < {pid}; kill $p; while kill -0 $p 2>/dev/null; do sleep 0.02; done"
        start = f"slurmd -L {bed.logs}/$ALIQUOT_NODE_NAME.log $ALIQUOT_SLURMD_OPTIONS"
        words = ["--layout", "2x3g.20gb", "--layout", "7x1g.5gb", "--node-name", "n1", "--port", str(port)]
        words += ["--hardware", "CPUs=2 RealMemory=1000", "--address", "127.0.0.1", "--idle", "600", "--dev-root", "/"]
        words += ["--slurm", bed.release.name, "--conf-dir", str(bed.etc), "--slurmd-start", start]
        return [*words, "--slurmd-stop", stop]

    def _program(self, what: str) -> str:
        """Write the shipped program with the environment of this test and return its path."""
        bed, host = self.bed, self.host
        copy = bed.folder / f"slurm-{what}"
        copy.write_text((DEPLOY / f"slurm-{what}").read_text())
        names = host.env | {"SLURM_CONF": bed.env["SLURM_CONF"], "ALIQUOT_SLURM_SIBLINGS": str(self.siblings)}
        settings = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in names.items())
        settings += f"export PATH={shlex.quote(bed.env['PATH'])}\n"
        settings += f"ALIQUOT={bed.bin}/aliquot\nALIQUOT_POWER_OPTIONS='--log {self.log}'\n"
        (bed.folder / "settings").write_text(settings)
        program = bed.folder / f"{what}.sh"
        program.write_text(f'#!/bin/sh\nALIQUOT_SLURM_SETTINGS={bed.folder}/settings exec {copy} "$@"\n')
        for each in (copy, program):
            each.chmod(0o755)
        return str(program)

    def words(self) -> str:
        """Return the output of the programs and hosts, for a failure message."""
        answer = [p.read_text() for p in self.log.glob("*")] if self.log.exists() else []
        answer += [self.bed.log(n)[-1500:] for n in (THREES, ONES) if (self.bed.logs / f"{n}.log").exists()]
        answer.append((self.bed.etc / "gres.conf").read_text())
        return "\n".join([*answer, self.bed.ok("sinfo", "-N", "-l"), self.bed.log("slurmctld")[-1500:]])

    def open(self, record: str) -> Ran:
        """Apply the rule until the record is the only open one."""
        return self.host.run("slurm", "siblings", "--open", record, "--conf-dir", str(self.bed.etc), timeout=120)

    def breaches(self) -> int:
        """Return the exit code of the check: 30 if two records are open."""
        return self.host.run("slurm", "siblings", "--check", "--conf-dir", str(self.bed.etc)).code

    def completed(self, job: Ran, seconds: float = 90) -> None:
        until(lambda: self.bed.job(job.out, "JobState") == "COMPLETED", self.words, seconds)


def test_two_jobs_released_at_once_for_two_layouts_both_run_one_layout_after_the_other(bed: Bed) -> None:
    # With both records open, each would drain the other forever. The rule keeps a single record open.
    cloud = Cloud(bed)
    assert cloud.breaches() == 30
    assert cloud.open(THREES).code == 0
    assert cloud.breaches() == 0
    threes = bed.submit("echo $SLURM_JOB_NODELIST; sleep 1", f"--gres={A}:1", "--hold")
    ones = bed.submit("echo $SLURM_JOB_NODELIST; sleep 1", f"--gres={B}:7", "--hold")
    assert (threes.code, ones.code) == (0, 0), (threes, ones)
    bed.ok("scontrol", "release", f"{threes.out},{ones.out}")
    cloud.completed(threes)
    assert cloud.host.counts() == {"3g.20gb": 2}
    assert bed.field(THREES, "Gres") == f"{A}:2"
    assert bed.job(ones.out, "JobState") == "PENDING"
    opened = cloud.open(ONES)
    assert opened.code == 0, (opened, cloud.words())
    verbs = [line.split()[0] for line in opened.err.splitlines()]
    assert [v for v in verbs if v != "wait"] == ["drain", "power-down", "drain", "open", "done"], verbs
    cloud.completed(ones)
    assert cloud.host.counts() == {"1g.5gb": 7}
    assert (bed.folder / "out" / threes.out).read_text().strip() == THREES
    assert (bed.folder / "out" / ones.out).read_text().strip() == ONES
    assert cloud.breaches() == 0
    assert f"{THREES} Name=gpu Type=a100_3g.20gb File=/dev/aliquot-absent[0-1]" in (bed.etc / "gres.conf").read_text()


def test_where_the_rule_is_broken_one_record_starts_and_no_job_is_lost(bed: Bed) -> None:
    # Both records are open, and both are requested in one or two ResumeProgram calls. The host becomes one of them, and
    # the job of the other one waits.
    cloud = Cloud(bed)
    jobs = [bed.submit("sleep 1", f"--gres={kind}", "--hold") for kind in (f"{A}:1", f"{B}:1")]
    bed.ok("scontrol", "release", ",".join(j.out for j in jobs))

    def states() -> list[str]:
        return [bed.job(j.out, "JobState") for j in jobs]

    until(lambda: "COMPLETED" in states(), cloud.words, 90)
    first = states().index("COMPLETED")
    loser = (ONES, THREES)[first]
    until(lambda: "DOWN" in bed.state(loser).replace("POWERED_DOWN", "").replace("POWERING_DOWN", ""), cloud.words)
    assert bed.job(jobs[1 - first].out, "JobState") == "PENDING"
    opened = cloud.open(loser)
    assert opened.code == 0, (opened, cloud.words())
    # After Slurm took a job from a node, it lets the job wait for two minutes.
    bed.ok("scontrol", "update", f"jobid={jobs[1 - first].out}", "starttime=now")
    cloud.completed(jobs[1 - first])


def test_a_host_that_cannot_start_sets_its_record_down_with_the_reason_and_the_job_waits(bed: Bed) -> None:
    cloud = Cloud(bed)
    assert cloud.open(THREES).code == 0
    cloud.host.ok("apply", "--gpu", "0", "--mig", "1g.5gb")
    shown = msgspec.json.decode(cloud.host.ok("show", "-o", "json"))
    cloud.host.ok("sim", "hold", "0", str(shown["gpus"][0]["instances"][0]["id"]))
    job = bed.submit("true", f"--gres={A}:1")
    until(lambda: "aliquot: cannot start" in bed.ok("scontrol", "-o", "show", "node", THREES), cloud.words)
    until(lambda: bed.job(job.out, "JobState") == "PENDING", cloud.words)
    assert cloud.host.counts() == {"1g.5gb": 1}
    blocked = cloud.open(THREES)
    assert (blocked.code, "DOWN" in blocked.err) == (20, True), blocked


def test_a_node_that_an_admin_drained_is_left_alone(bed: Bed) -> None:
    cloud = Cloud(bed)
    bed.ok("scontrol", "update", f"nodename={ONES}", "state=drain", "reason=fan")
    blocked = cloud.open(THREES)
    assert blocked.code == 20
    assert f"another user or program drained {ONES} (fan)" in blocked.err
    assert "DRAIN" not in bed.state(THREES)


def test_a_late_stop_does_no_harm(bed: Bed) -> None:
    cloud = Cloud(bed)
    host = cloud.host
    how = ["--conf-dir", str(bed.etc), "--dev-root", "/", "--slurmd-start", "true", "--slurmd-stop", "true"]
    assert host.run("slurm", "power", "start", THREES, "--layout", "2x3g.20gb", *how).code == 0
    late = host.run("slurm", "power", "stop", ONES, *how)
    assert (late.code, late.out.strip()) == (0, f"this host did not run as {ONES}")
    assert f"{THREES} Name=gpu Type=a100_3g.20gb MultipleFiles=" in (bed.etc / "gres.conf").read_text()
    until(lambda: "POWERED_DOWN" in bed.state(THREES), cloud.words)
    # Slurm reports it as off, so its claim is left from a stop that never came.
    assert host.run("slurm", "power", "start", ONES, "--layout", "7x1g.5gb", *how).code == 0
    assert f"{THREES} Name=gpu Type=a100_3g.20gb File=/dev/aliquot-absent[0-1]" in (bed.etc / "gres.conf").read_text()
    assert host.counts() == {"1g.5gb": 7}


def test_names_that_no_file_of_siblings_has_are_reported(bed: Bed) -> None:
    cloud = Cloud(bed)
    done = cloud.host.run(
        "slurm", "power", "resume", "n7-x", "--siblings", str(cloud.siblings), "--log", str(cloud.log)
    )
    assert done.code == 20
    assert "no sibling file has n7-x, so its host is unknown" in done.err
