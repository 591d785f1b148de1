"""``aliquot dra check``: what keeps a cluster from serving GPUs by claims, and what to type."""

from __future__ import annotations

import asyncio

from aliquot.cli.doctor import findings_view
from aliquot.cli.doctor.finding import DoctorFinding, failed
from aliquot.cli.dra.driver_name import driver_name
from aliquot.cli.framework import output
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.parser import Args
from aliquot.errors import AliquotError, BlockedError


def run(args: Args) -> int:
    try:
        driver = driver_name(args.dra_driver, next_step="aliquot dra check --dra-driver gpu.aliquot.dev")
        findings = asyncio.run(_check(args.kubeconfig, driver))
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "dra check") from error
    problems = sum(finding.status == "problem" for finding in findings)
    document = output.build("DraCheck", driver=driver, fine=not problems, findings=findings)
    output.emit(document, args.output, findings_view.text(findings))
    return BlockedError.exit_code if problems else 0


async def _check(kubeconfig: str | None, driver: str) -> list[DoctorFinding]:
    from aliquot.cli.dra import check_classes, check_nodes, check_reads, check_rights, check_server, check_slices
    from aliquot.kubernetes.client.client import Api

    try:
        async with Api.connect(kubeconfig) as api:
            facts, unread = await check_reads.read(api, driver)
            rights = [*await check_rights.user_findings(api), *await check_rights.agent_findings(api, facts.agents)]
    except AliquotError as error:
        return [failed(check_server.SERVER, "API_SERVER", error)]
    return [
        *unread,
        *check_server.server_findings(facts),
        *rights,
        *check_slices.slice_findings(facts),
        *check_classes.class_findings(facts),
        *check_nodes.node_findings(facts),
    ]
