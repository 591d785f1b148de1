"""End-to-end requirement: jobs for ``1g.5gb``, then ``3g.20gb``, without an administrator's step between.

Both run, the counts that Slurm shows are always correct, and no running job is touched.
"""

from __future__ import annotations

import subprocess
from collections import Counter

from .bed import Bed
from .demanded import Cluster
from .truth import Jobs, Process, Watch, same_process, writes


def test_one_layout_then_another_with_no_step_between_true_counts_and_no_job_touched(bed: Bed) -> None:
    cluster, jobs = Cluster(bed, "n1", "n2"), Jobs(bed)
    n1, n2 = cluster.hosts.values()
    beside = jobs.running("echo $$; exec sleep 600", "--gres=gpu:a100_7g.40gb:1", "--nodelist=n2")
    began, cut = Process.of(bed, beside), calls(writes(n2))
    cluster.controller()
    with Watch(n1) as watch, Watch(n2) as other:
        # The job counts its node's changes at its start and at its end.
        small = cluster.submit("a100_1g.5gb:1", f"echo $$; {writes(n1)}; sleep 4; {writes(n1)}")
        cluster.starts(small)
        process = Process.of(bed, small)
        big = cluster.submit("a100_3g.20gb:2", writes(n1))
        jobs.numbers += [small, big]
        cluster.ran(small)
        cluster.ran(big)
    output = (bed.folder / "out" / small).read_text().split()
    assert output[0] == str(process.pid)
    assert output[1] == output[2], "no driver call on n1 while its job ran"
    assert int((bed.folder / "out" / big).read_text()) > int(output[2]), "the second layout was created after that"
    assert bed.job(small, "StartTime") == process.start
    assert bed.job(small, "ExitCode") == bed.job(big, "ExitCode") == "0:0"
    assert bed.job(small, "EndTime") <= bed.job(big, "StartTime")
    # The other job is the same process with the same start time, and no call changed its GPUs.
    assert same_process(began)
    assert Process.of(bed, beside) == began
    assert calls(writes(n2)) == cut
    jobs.none_lost()
    for each in (watch, other):
        assert not each.lies, each.lies
        assert not each.invalid
    assert len(watch.observations) > 10, "the node was observed"
    assert any(observation.given == Counter({"1g.5gb": 1}) for observation in watch.observations), (
        "also with the job on it"
    )
    first, *_, last = watch.shown
    assert first == Counter({"7g.40gb": 2})
    assert any(layout["1g.5gb"] for layout in watch.shown)
    assert last["3g.20gb"] >= 2, watch.shown
    assert other.shown == [Counter({"7g.40gb": 2})]


def calls(command: str) -> int:
    return int(subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, timeout=30).stdout)
