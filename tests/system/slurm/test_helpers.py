"""node_features/helpers on a real cluster: a job's constraint switches the layout, and invalid families are refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .applying import Host
from .bed import Bed, until

DEPLOY = Path(__file__).parents[3] / "deploy" / "slurm"
TWO, OTHER = "mig_2x3g.20gb", "mig_1x4g.20gb_1x3g.20gb"
FAMILY = ["--layout", "2x3g.20gb", "--layout", "4g.20gb,3g.20gb"]


def program(bed: Bed, name: str, body: str) -> str:
    """Write a program that either release can run. What it starts runs outside of Debian 13's root."""
    path = bed.folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def shipped(bed: Bed, name: str, host: Host, options: str) -> str:
    """Write a shipped script with a settings file, as an administrator would."""
    copy = bed.folder / name
    copy.write_text((DEPLOY / name).read_text())
    copy.chmod(0o755)
    settings = bed.folder / f"{name}.settings"
    exports = "".join(f"export {key}={shlex.quote(value)}\n" for key, value in host.env.items())
    settings.write_text(f"{exports}ALIQUOT={bed.bin}/aliquot\n{options}\n")
    return program(bed, f"{name}.sh", f'ALIQUOT_SLURM_SETTINGS={settings} exec {copy} "$@"')


def cluster(bed: Bed, *more: str, gres: str = "gpu:4") -> Host:
    """Start a node whose two GPUs have two instances each, with the files of ``families``. slurmd does not run yet."""
    host = Host(bed)
    host.ok("apply", "--gpu", "0", "--gpu", "1", "--mig", "3g.20gb,3g.20gb")
    helper = shipped(bed, "mig-helper", host, "ALIQUOT_HELPER_OPTIONS='--node-name n1 --dev-root /'")
    release = bed.release.name
    words = ["--helper", helper, "--slurm", release, "--node-name", "n1", "--exec-time", "30", *more]
    rendered = host.ok("slurm", "families", *FAMILY, *words)
    helpers, _, conf = rendered.partition("\n# slurm.conf\n")
    restart = program(bed, "reboot", f"touch {bed.folder}/asked")
    conf = re.sub(r"RebootProgram=.*", f"RebootProgram={restart}", conf)
    (bed.etc / "helpers.conf").write_text(helpers)
    bed.conf(
        f"{bed.node('n1', f'CPUs=2 RealMemory=1000 Gres={gres}')}\nPartitionName=all Nodes=ALL Default=YES", more=conf
    )
    done = host.run("slurm", "helper", TWO, "--node-name", "n1", "--dev-root", "/", "--conf-dir", str(bed.etc))
    assert done.code == 0 or gres != "gpu:4", done
    bed.controller()
    return host


def layout(host: Host) -> str:
    return host.ok("slurm", "helper", "--node-name", "n1", "--conf-dir", str(host.bed.etc)).strip()


def rebooted(bed: Bed) -> None:
    """Restart slurmd before 24.05, where the change counts as a reboot."""
    if not bed.release.chrooted:
        until(lambda: (bed.folder / "asked").exists(), lambda: f"no reboot was asked: {bed.log('n1')[-1500:]}")
        bed.stop("n1")
        bed.start("n1", "slurmd", "-D", "-N", "n1", "-b")


def test_a_jobs_constraint_changes_the_layout_and_the_job_gets_a_device_of_it(bed: Bed) -> None:
    host = cluster(bed)
    bed.slurmd("n1")
    assert bed.field("n1", "ActiveFeatures") == TWO
    script = "sleep 1; echo $SLURM_JOB_GPUS"
    stays = bed.submit(script, "-C", TWO, "--gres=gpu:1")
    until(lambda: bed.job(stays.out, "JobState") == "COMPLETED", "no job ran in the layout that was there", 45)
    assert layout(host) == TWO
    other = bed.submit(script, "-C", OTHER, "--gres=gpu:2")
    assert other.code == 0, other
    rebooted(bed)
    until(
        lambda: bed.job(other.out, "JobState") == "COMPLETED",
        lambda: f"{bed.job(other.out, 'JobState')} {bed.field('n1', 'State')} {bed.log('n1')[-2500:]}",
        60,
    )
    assert (bed.folder / "out" / other.out).read_text().strip() == "0,1"
    assert layout(host) == OTHER
    assert bed.field("n1", "ActiveFeatures") == OTHER
    assert bed.field("n1", "Gres") == "gpu:4"
    assert "INVAL" not in bed.state("n1")
    # The devices that slurmd gives to the job are the new instances' nodes: it has read the file again.
    text = (bed.etc / "gres.conf").read_text()
    assert host.counts() == {"3g.20gb": 2, "4g.20gb": 2}
    assert "Type=" not in text
    for cap in re.findall(r"nvidia-cap(\d+)", text):
        assert bed.run("test", "-c", f"/dev/nvidia-caps/nvidia-cap{cap}").code == 0
    assert bed.log("n1").count("started on") >= 2


def test_a_layout_of_another_number_is_refused_before_anything_is_touched(bed: Bed) -> None:
    host = cluster(bed)
    before = (bed.etc / "gres.conf").read_text()
    seven = host.run("slurm", "helper", "mig_7x1g.5gb", "--node-name", "n1", "--conf-dir", str(bed.etc))
    assert seven.code == 2
    assert "has 14 devices on this node" in seven.err
    assert "says 4" in seven.err
    assert host.counts() == {"3g.20gb": 4}
    assert (bed.etc / "gres.conf").read_text() == before
    reported = host.run("slurm", "families", "--layout", "2x3g.20gb", "--layout", "7x1g.5gb", "--slurm", "24.11")
    assert reported.code == 2
    assert "different numbers of devices per GPU" in reported.err


def test_what_is_refused_would_make_the_real_node_invalid(bed: Bed) -> None:
    # slurmd registers the other number of devices: this is why ``families`` refuses it.
    host = cluster(bed, gres="gpu:14")
    assert "says 14" in host.run("slurm", "helper", TWO, "--node-name", "n1", "--conf-dir", str(bed.etc)).err
    bed.gpu_devices(0, 12, 13)
    (bed.etc / "gres.conf").write_text(
        "NodeName=n1 Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13\n"
    )
    bed.start("n1", "slurmd", "-D", "-N", "n1")
    until(lambda: "INVAL" in bed.state("n1"), lambda: f"not invalid: {bed.state('n1')}")


def test_a_layout_that_no_feature_says_drains_the_node_and_prints_nothing(bed: Bed) -> None:
    host = cluster(bed)
    bed.slurmd("n1")
    host.ok("apply", "--gpu", "0", "--mig", "3g.20gb")
    done = host.run("slurm", "helper", "--node-name", "n1", "--conf-dir", str(bed.etc))
    assert (done.code, done.out) == (20, "")
    assert "DRAIN" in bed.state("n1")
    assert "aliquot: no feature describes the layout of its GPUs" in bed.ok("scontrol", "-o", "show", "node", "n1")


def test_a_gpu_in_use_keeps_its_layout_and_the_helper_says_no(bed: Bed) -> None:
    host = cluster(bed)
    instance = re.search(r"MIG-[0-9a-f-]+", host.ok("show", "-o", "json"))
    assert instance
    host.ok("sim", "hold", "0", "1")
    done = host.run("slurm", "helper", OTHER, "--node-name", "n1", "--conf-dir", str(bed.etc), "--dev-root", "/")
    assert done.code == 20, done
    assert host.counts() == {"3g.20gb": 4}


@pytest.mark.parametrize("word", ["mig_9x9g.99gb", "1g", "mig_", "mig_7x1g.5gb;reboot"])
def test_a_feature_that_is_none_is_refused(bed: Bed, word: str) -> None:
    host = cluster(bed)
    done = host.run("slurm", "helper", word, "--node-name", "n1", "--conf-dir", str(bed.etc))
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert host.counts() == {"3g.20gb": 4}
