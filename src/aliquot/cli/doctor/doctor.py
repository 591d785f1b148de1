"""``aliquot doctor``: every check, its result, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from aliquot.cli.doctor import host_checks, runtime_checks, software_checks
from aliquot.cli.doctor.finding import DoctorFinding
from aliquot.cli.framework import color as colors
from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError, HardwareError
from aliquot.foundation.decimals import counted

_TINTS = {"ok": colors.GREEN, "problem": colors.RED}


def run(args: Args) -> int:
    found = _inventory(args)
    inventory = found if isinstance(found, Inventory) else None
    findings = [
        *host_checks.driver_findings(found, required=not args.kubeconfig),
        *host_checks.access_findings(args.sim, found),
        *host_checks.state_findings(args.sim),
        *(runtime_checks.runtime_findings(inventory) if args.sim is None else [_simulated(args.sim)]),
        *software_checks.software_findings(),
    ]
    if args.kubeconfig:
        from aliquot.cli.doctor import cluster_checks

        findings += cluster_checks.cluster_findings(args.kubeconfig)
    problems = sum(finding.status == "problem" for finding in findings)
    document = output.build("Doctor", node=inventory.node if inventory else "", fine=not problems, findings=findings)
    output.emit(document, args.output, _text(findings, problems, args.typed_node))
    return BlockedError.exit_code if problems else 0


def _simulated(name: str) -> DoctorFinding:
    message = (
        f"{name} is a simulated node: kubelet, Docker, Podman, containerd, Slurm and libvirt of this host do not "
        "concern it; doctor without --sim and ALIQUOT_SIM checks them"
    )
    return DoctorFinding(runtime_checks.HOLDERS, "SIMULATED", "note", message)


def _inventory(args: Args) -> Inventory | AliquotError:
    """Return what the driver answers, or why it does not. Raises BlockedError for an unknown simulated node."""
    try:
        return node.inventory(args)
    except (BlockedError, HardwareError) as error:
        if args.sim is not None:
            raise
        return error


def _text(findings: Sequence[DoctorFinding], problems: int, typed_node: str) -> str:
    tinted = colors.wanted()
    lines = []
    for area, group in groupby(findings, lambda finding: finding.area):
        lines.append(area)
        for finding in group:
            status = colors.paint(f"{finding.status:<8}", _TINTS.get(finding.status, ""), tinted)
            lines.append(f"  {status} {finding.message}")
            if finding.next_step:
                lines.append(f"  next     {next_commands.addressed(finding.next_step, typed_node)}")
        lines.append("")
    return "\n".join([*lines, f"verdict: {counted(problems, 'problem') if problems else 'no problem'}"])
