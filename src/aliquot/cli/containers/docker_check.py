"""``aliquot docker check``: can containers get MIG devices here, and what to type if not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.directories import require_directories
from aliquot.cli.framework.parser import Args
from aliquot.errors import NoDriverError

if TYPE_CHECKING:
    from aliquot.containers.check.rules import RuntimeFinding, RuntimeReport


def run(args: Args) -> int:
    from aliquot.cdi.spec_files import read
    from aliquot.containers.check.probe import gather
    from aliquot.containers.check.rules import judge
    from aliquot.containers.runtime.cdi_names import entries
    from aliquot.containers.runtime.devices import devices

    driver_error = None
    try:
        with node.connected(args) as connection:
            found = devices(connection.backend.read())
            simulated = connection.directory if connection.simulated else ""
    except NoDriverError as error:
        # What else is missing is worth knowing before the driver is there.
        found, simulated, driver_error = (), "", error
    require_directories("--spec-dir", args.spec_dir or (), args)
    facts, documents = gather(read, args.spec_dir or (), (args.runtime,) if args.runtime else ())
    report = judge(facts, found, entries(documents), simulated, driver_error)
    document = output.build("ContainerCheck", fine=report.fine, runtimes=report.verdicts, findings=report.findings)
    output.emit(document, args.output, _text(report, args.typed_node))
    return 0 if report.fine else 20


def _text(report: RuntimeReport, typed: str) -> str:
    lines = []
    for verdict in report.verdicts:
        words = (("CDI", verdict.cdi), ("legacy", verdict.legacy))
        ready = "   ".join(f"{form}: {'ready' if yes else 'not ready'}" for form, yes in words)
        lines += [f"{verdict.runtime} {verdict.version}   {ready}", *_findings(verdict.findings, typed)]
    if report.findings:
        lines += ["devices, CDI files, toolkit", *_findings(report.findings, typed)]
    able = [v.runtime for v in report.verdicts if v.cdi or v.legacy]
    lines.append(f"verdict: {'containers of ' + ' and '.join(able) + ' can get devices' if able else 'not ready'}")
    return "\n".join(lines)


def _findings(findings: Iterable[RuntimeFinding], typed: str) -> list[str]:
    lines = []
    for each in findings:
        lines.append(f"  {each.severity}[{each.rule}]: {each.message}")
        if each.next_step:
            lines.append(f"    next     {next_commands.addressed(each.next_step, typed)}")
    return lines
