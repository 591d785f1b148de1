"""The checks of the runtimes whose workloads hold GPUs: are they here, do they answer, are they set up for GPUs?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aliquot.cli.doctor.finding import DoctorFinding, failed
from aliquot.cli.framework.extras import install_command
from aliquot.cli.framework.parser import Args
from aliquot.errors import AliquotError, ConfigError
from aliquot.foundation.decimals import counted
from aliquot.libvirt.connect import SOCKETS, URI

if TYPE_CHECKING:
    from aliquot.containers.check.facts import RuntimeFacts
    from aliquot.containers.check.rules import RuntimeVerdict
    from aliquot.core.model.inventory import Inventory

HOLDERS = "runtimes that hold GPUs"
KUBELET = "/var/lib/kubelet/pod-resources/kubelet.sock"
_CONTAINERD = "/run/containerd/containerd.sock"


def runtime_findings(inventory: Inventory | None) -> Iterator[DoctorFinding]:
    """Check kubelet, the container runtimes, Slurm and libvirt of this host."""
    yield _kubelet()
    yield from _containers(inventory)
    yield from _slurm()
    yield from _libvirt(inventory)


def _absent(check: str, name: str) -> DoctorFinding:
    return DoctorFinding(HOLDERS, check, "note", f"{name} is not on this host")


def _kubelet() -> DoctorFinding:
    if not os.path.exists(KUBELET):
        return _absent("KUBELET", "kubelet")
    import asyncio

    try:
        from aliquot.kubernetes.device_plugin.pod_resources import list_uses

        uses = asyncio.run(list_uses(KUBELET))
    except ModuleNotFoundError as error:
        message = f"kubelet runs here, but {error.name}, which lists the pods with devices, is not installed"
        return DoctorFinding(HOLDERS, "KUBELET", "problem", message, install_command("agent"))
    except AliquotError as error:
        return failed(HOLDERS, "KUBELET", error)
    pods = len({(use.namespace, use.pod) for use in uses})
    return DoctorFinding(HOLDERS, "KUBELET", "ok", f"kubelet answers: {counted(pods, 'pod')} with devices")


def _containers(inventory: Inventory | None) -> Iterator[DoctorFinding]:
    from aliquot.cdi.spec_files import read
    from aliquot.containers.check.probe import gather
    from aliquot.containers.check.rules import judge
    from aliquot.containers.runtime.cdi_names import entries
    from aliquot.containers.runtime.devices import devices

    facts, documents = gather(read)
    found = devices(inventory) if inventory is not None else ()
    verdicts = {v.runtime: v for v in judge(facts, found, entries(documents)).verdicts}
    for runtime in facts.runtimes:
        yield _container_runtime(runtime, verdicts.get(runtime.name), has_devices=bool(found))


def _container_runtime(facts: RuntimeFacts, verdict: RuntimeVerdict | None, *, has_devices: bool) -> DoctorFinding:
    from aliquot.containers.runtime.runtimes import ContainerRuntime

    name, check = ("containerd", "CONTAINERD") if facts.name == "nerdctl" else (facts.name, facts.name.upper())
    if not facts.installed:
        if facts.name == "nerdctl" and os.path.exists(_CONTAINERD):
            message = "containerd runs: its containers are found by their processes, without names"
            return DoctorFinding(HOLDERS, check, "note", message, "install nerdctl for the names")
        return _absent(check, name)
    if facts.error:
        runs = ContainerRuntime(facts.name).worth_asking
        return DoctorFinding(
            HOLDERS,
            check,
            "problem" if runs else "note",
            facts.error if runs else f"{name} is installed, but its daemon does not run",
            f"aliquot docker check --runtime {facts.name}" if runs else None,
        )
    answer = f"{name} {verdict.version} answers" if verdict is not None else f"{name} answers"
    if verdict is not None and has_devices and not (verdict.cdi or verdict.legacy):
        step = f"aliquot docker check --runtime {facts.name}"
        return DoctorFinding(HOLDERS, check, "note", f"{answer}: its containers cannot get MIG devices yet", step)
    return DoctorFinding(HOLDERS, check, "ok", answer)


def _slurm() -> Iterator[DoctorFinding]:
    from aliquot.cli.slurm.check import check_input
    from aliquot.slurm.check.api import check

    try:
        found = check_input(_arguments("slurm", "check"))
    except ConfigError as error:
        here = any(map(shutil.which, ("scontrol", "slurmd")))
        what = "Slurm's programs are installed"
        yield failed(HOLDERS, "SLURM", error, what=what, status="note") if here else _absent("SLURM", "Slurm")
        return
    except AliquotError as error:
        yield failed(HOLDERS, "SLURM", error)
        return
    errors = [finding for finding in check(found) if finding.severity == "error"]
    if errors:
        message = f"{counted(len(errors), 'error')} in {found.folder}, the first: {errors[0].sentence}"
        yield DoctorFinding(HOLDERS, "SLURM_FILES", "problem", message, "aliquot slurm check")
    else:
        yield DoctorFinding(HOLDERS, "SLURM_FILES", "ok", f"nothing is wrong in {found.folder}")
    yield _slurmctld(os.path.join(found.folder, "slurm.conf"))


def _slurmctld(conf: str) -> DoctorFinding:
    from aliquot.slurm.client.connect import open_client

    try:
        with open_client(conf=conf if os.path.exists(conf) else "") as slurm:
            count = len(slurm.nodes())
    except AliquotError as error:
        return failed(HOLDERS, "SLURMCTLD", error)
    return DoctorFinding(HOLDERS, "SLURMCTLD", "ok", f"slurmctld answers: {counted(count, 'node')}")


def _libvirt(inventory: Inventory | None) -> Iterator[DoctorFinding]:
    from aliquot.libvirt.connect import open_libvirt

    if not any(map(os.path.exists, SOCKETS)):
        installed = shutil.which("virsh")
        message = "libvirt is installed, but its daemon does not run"
        yield DoctorFinding(HOLDERS, "LIBVIRT", "note", message) if installed else _absent("LIBVIRT", "libvirt")
        return
    from aliquot.libvirt.check import check
    from aliquot.libvirt.related_devices import read_context

    try:
        with open_libvirt(URI) as libvirt:
            domains = libvirt.domains()
            yield DoctorFinding(HOLDERS, "LIBVIRT", "ok", f"libvirt answers: {counted(len(domains), 'VM')}")
            if inventory is None:
                return
            multi = _arguments("libvirt", "check", "VM").multi
            context = read_context(libvirt, inventory, domains, multi, lambda line: None)
            for domain in domains:
                problems = check(inventory, domain, context).all_problems
                if problems:
                    message = f"VM {domain.name}: {problems[0].message}"
                    yield DoctorFinding(HOLDERS, "VM", "problem", message, f"aliquot libvirt check {domain.name}")
    except AliquotError as error:
        yield failed(HOLDERS, "LIBVIRT", error)


def _arguments(*words: str) -> Args:
    """Return the options of another verb with their defaults."""
    from aliquot.cli.command_table import ROOT
    from aliquot.cli.framework import parser

    return parser.arguments(parser.find(ROOT, words))
