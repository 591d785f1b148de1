"""``aliquot doctor``: every check, its result, and what to type next."""

from __future__ import annotations

from aliquot.cli.doctor import findings_view, host_checks, runtime_checks, software_checks
from aliquot.cli.doctor.finding import DoctorFinding
from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError, HardwareError


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
    output.emit(document, args.output, findings_view.text(findings, args.typed_node))
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
