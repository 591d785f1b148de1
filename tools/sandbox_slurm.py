"""``make demo-slurm``: a private, real Slurm with two simulated hosts, whose layouts follow the jobs.

``make sandbox-slurm`` opens a shell on the first host of such a Slurm, and ends it with the shell. With ``BOARDS=1``
this host is a node of slurm.conf, which can become a slot board.

It uses the installed release of Slurm, else Debian 13's from ``make slurm-trixie``. It does not read or change this
host's own Slurm, and leaves nothing behind. The last part runs a container if Podman is installed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tools.demo_terminal import show  # noqa: E402

from system.containers.podman import Podman, python, unusable  # noqa: E402
from system.slurm.applying import Host  # noqa: E402
from system.slurm.bed import Bed  # noqa: E402
from system.slurm.boarded import BoardCluster  # noqa: E402
from system.slurm.demanded import Cluster, counted  # noqa: E402
from system.slurm.release import OLD, RELEASES, Release  # noqa: E402

SHOW = "sinfo -N -h -o '%N  %.10T  %G'"
SEED = {
    "slurm.conf": "GresTypes=gpu\nNodeName=compute-01 Gres=gpu:a100:1,gpu:1g.5gb:7\n",
    "gres.conf": "".join(
        f"NodeName=compute-01 Name=gpu Type=1g.5gb File=/dev/nvidia-caps/nvidia-cap{n}\n" for n in (1, 2)
    ),
    "change.sh": "scontrol update NodeName=compute-01 State=DRAIN\n"
    "nvidia-smi mig -i 0 -dgi\nnvidia-smi mig -i 0 -cgi 9,9 -C\nsystemctl restart slurmd\n",
}
ETC = """
mount -t tmpfs none "$LAYERS"
for root in / "$ROOT"; do
  etc="${root%/}/etc"; layer="$LAYERS/$(echo "$etc" | tr / _)"
  [ ! -e "$layer" ] || continue
  mkdir "$layer" "$layer.work"
  mount -t overlay none -o "lowerdir=$etc,upperdir=$layer,workdir=$layer.work" "$etc"
  [ "$root" = / ] || cp /etc/hosts "$etc/hosts"
  mkdir -p "$etc/slurm" "$etc/aliquot"
  mount --bind "$CONF" "$etc/slurm"
done
printf '#!/bin/sh\\nexec "$@"\\n' >"$BIN/sudo"
chmod +x "$BIN/sudo"
"""
"""Gives Slurm's files the names of the pages, in the machine only. The user is root there, so sudo changes nothing."""
FOUND = ("COUNTED_TWICE", "ADMIN_CAPABILITY", "LONE_CAPABILITY", "NO_REASON", "INSTANCE_IN_USE", "SLURMD_ALONE")


class NamedBed(Bed):
    """A cluster whose machine has its files in /etc/slurm. This host's ``/etc`` does not change."""

    def __init__(self, release: Release, folder: Path) -> None:
        super().__init__(release, folder)
        (folder / "layers").mkdir()
        words = {"LAYERS": folder / "layers", "ROOT": release.root, "CONF": self.etc, "BIN": self.bin}
        self.ok("env", *(f"{name}={value}" for name, value in words.items()), "sh", "-ec", ETC)

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"SLURM_CONF": "/etc/slurm/slurm.conf"}


class Story:
    """A story that shows each command as a user types it, and checks its effects."""

    def __init__(self, bed: Bed, cluster: Cluster) -> None:
        self.bed = bed
        self.cluster = cluster

    def run(self, line: str, *, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """Show a command and run it. Raises AssertionError unless it ends with ``code``."""
        show(line)
        words = shlex.split(line)
        if words[0] == "aliquot":
            words[:1] = [sys.executable, "-m", "aliquot"]
        done = self.bed.run(*words, env={**self.cluster.env, **(env or {})})
        print((done.out + done.err).rstrip(), flush=True)
        assert done.code == code, f"this ended with {done.code}, not {code}: {line}"
        return done.out

    def submit(self, options: str, script: str) -> str:
        """Submit a batch job, and return its number."""
        words = f"sbatch --parsable --output={self.bed.folder}/out/%j --chdir={self.bed.folder}"
        line = f"sbatch {options} --wrap '{script}'"
        show(line)
        deadline = time.monotonic() + 90
        # The controller needs a moment until Slurm accepts jobs for absent types.
        while (done := self.bed.run(*shlex.split(f"{words} {options}"), f"--wrap={script}")).code:
            assert time.monotonic() < deadline, f"{done.err}{self.cluster.log()[-2000:]}"
            time.sleep(0.2)
        print(f"Submitted batch job {done.out.strip()}", flush=True)
        return done.out.strip()

    def offers(self, node: str, kind: str) -> None:
        """Check that Slurm shows the devices of the node's GPUs, and that these include a kind."""
        shown, held = self.cluster.hosts[node].gres(), self.cluster.hosts[node].counts()
        assert counted(shown) == Counter(held), f"{node} shows {shown}, and its GPUs hold {held}"
        assert kind in held, f"{node} has {held}, and no {kind}"


def story(box: Story) -> None:
    layouts_follow_jobs(box)
    what_waits(box)
    files_by_hand(box)
    containers(box)
    print("\nDone: two layouts on demand, counts true, a busy node left alone, a script checked.")


def layouts_follow_jobs(box: Story) -> None:
    cluster, bed = box.cluster, box.bed
    print("# two hosts of two A100 each; a job runs on n2")
    box.run(SHOW)
    busy = box.submit("-w n2 --gres=gpu:a100_7g.40gb:1", "sleep 600")
    cluster.starts(busy)
    print("\n# no node has a 1g.5gb: Slurm refuses such jobs")
    refused = bed.submit("true", "--gres=gpu:a100_1g.5gb:1")
    assert refused.code, "a job for a type that no node has was taken"
    print(refused.err.strip())
    print("\n# the controller starts; from here on only jobs are submitted")
    show("aliquot slurm controller -f slurm.yaml &")
    cluster.controller()
    small = box.submit("--gres=gpu:a100_1g.5gb:1", "sleep 2; echo $CUDA_VISIBLE_DEVICES")
    cluster.starts(small)
    box.run(SHOW)
    box.offers("n1", "1g.5gb")
    big = box.submit("--gres=gpu:a100_3g.20gb:1", "sleep 600")
    box.run("squeue -o '%.4i %.10T %.30b %R'")
    cluster.ran(small)
    cluster.starts(big)
    print("\n# the first one ended by itself, then n1 was repartitioned; n2 was never touched")
    box.run("squeue -o '%.4i %.10T %.30b %R'")
    box.run(SHOW)
    box.offers("n1", "3g.20gb")
    assert cluster.hosts["n2"].gres() == "gpu:a100_7g.40gb:2", "n2 was touched"
    for job in (busy, small, big):
        assert bed.job(job, "Restarts") == "0", f"job {job} was requeued"


def what_waits(box: Story) -> None:
    print("\n# now both nodes have jobs: show which job waits, for what, and why")
    job = box.submit("--gres=gpu:a100_2g.10gb:1", "true")
    reported = box.run(f"aliquot slurm demand -f {box.cluster.settings}")
    assert f"job {job}" in reported, "the waiting job is not reported"
    assert "n2: 1 job has resources on it" in reported, "the reason why n2 is not partitioned is not reported"
    box.run("grep ' is repartitioned for job ' " + str(box.bed.logs / "controller.log"))


def files_by_hand(box: Story) -> None:
    print("\n# a widespread script, checked before Slurm runs it")
    folder = box.bed.folder / "recipe"
    folder.mkdir()
    for name, text in SEED.items():
        (folder / name).write_text(text)
    words = f"aliquot slurm check --conf-dir {folder} --files-only --script {folder}/change.sh"
    reported = box.run(words, code=30)
    missing = [rule for rule in FOUND if rule not in reported]
    assert not missing, f"check did not find {missing}"


def containers(box: Story) -> None:
    folder = Path(tempfile.mkdtemp(prefix="aliquot-podman-", dir="/tmp"))
    try:
        reason = unusable()
        if reason:
            print(f"\n# no container here: {reason}")
            return
        engine = Podman(folder, events="file")
        try:
            _container(box, engine)
        finally:
            engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _container(box: Story, engine: Podman) -> None:
    """Show a host without Slurm, with a container that gets a free instance."""
    print("\n# and without Slurm: a free instance for a container, reserved until the container is removed")
    (engine.directory / "bin").mkdir()
    engine.program(engine.directory / "bin/podman")
    env = {"PATH": f"{engine.directory}/bin:{box.bed.env['PATH']}", "ALIQUOT_SIM": "box", **engine.environment}
    box.run("aliquot sim start a100-sxm4-40gb --name box")
    box.run("aliquot apply --gpu 0 --mig 3g.20gb,1g.5gb*2", env=env)
    box.run(f"aliquot cdi generate --out {engine.cdi}/aliquot.yaml", env=env)
    words = f"aliquot docker run-args 1g.5gb --runtime podman --name web --spec-dir {engine.cdi}"
    options = box.run(words, env=env).split()
    program = str(ROOT / "tests/system/containers/inside.py")
    done = engine.execute_run(
        *("/bin/sh", "-c", f"exec {python()} /opt/nvml/inside.py"),
        options=["--rm", *options, "--env", "PYTHONPATH=/opt/nvml"],
        mounts={"/opt/nvml/inside.py": program},
    )
    assert done.code == 0, done.err
    seen = json.loads(done.out)["gpus"]
    print(f"\n# what the container sees: {json.dumps(seen)[:300]}")
    assert len(seen) == 1, f"the container sees {len(seen)} GPUs"
    assert len(seen[0]["mig"]) == 1, f"the container sees {len(seen[0]['mig'])} MIG devices"
    assert "reservation" not in box.run("aliquot docker list", env=env), "the container is gone, its device is not free"


def type_in(bed: Bed, host: Host, settings: Path) -> int:
    """Open a shell on a host, in a folder with a batch script. Returns its exit code. ``settings`` are those of the
    controller.
    """
    folder = bed.folder / "out"
    (folder / "train.sh").write_text("#!/bin/sh\nsleep 600\n")
    bed.ok("cp", str(settings), "/etc/aliquot/slurm.yaml")
    print("# this shell runs on the host n1; exit ends everything")
    print("# here /etc/slurm and /etc/aliquot are those of this Slurm; this host's own stay", flush=True)
    env = bed.env | host.env | {"SLURMD_NODENAME": host.name, "PS1": "n1# "}
    return subprocess.call(bed.inside("env", f"--chdir={folder}", "bash", "--norc"), env=env)


def _stopped(number: int, _: object) -> NoReturn:
    """End in order, as with Ctrl-C: a terminal that is closed sends SIGHUP."""
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shell", action="store_true", help="open a shell in the Slurm, in place of the story")
    parser.add_argument("--boards", action="store_true", help="with --shell: the host can become a slot board")
    options = parser.parse_args()
    release = next((r for r in RELEASES if not r.missing), None)
    if release is None:
        print(OLD.missing, file=sys.stderr)
        return 2
    begin = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    bed = (NamedBed if options.shell else Bed)(release, folder)
    try:
        print("# a private Slurm starts, and two simulated hosts with it", flush=True)
        if options.boards:
            boards = BoardCluster(bed, board=False)
            return type_in(bed, boards.host, boards.settings)
        cluster = Cluster(bed, "n1", "n2", more="GresTypes=gpu,nic" if options.shell else "")
        print(f"# {bed.ok('scontrol', '-V').strip()}", flush=True)
        if options.shell:
            return type_in(bed, cluster.hosts["n1"], cluster.settings)
        story(Story(bed, cluster))
    except AssertionError as error:
        print(f"\nfailed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # what was begun is ended in order
        bed.aliquot("sim", "stop", env={"ALIQUOT_STATE_DIR": str(folder / "aliquot")})
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"({time.monotonic() - begin:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
