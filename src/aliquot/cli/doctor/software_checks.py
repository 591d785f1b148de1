"""The checks of what is installed beside Aliquot: its optional packages and the C compiler for simulated nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from aliquot.cli.doctor.finding import DoctorFinding, failed
from aliquot.cli.framework.extras import install_command
from aliquot.errors import AliquotError

SOFTWARE = "packages and compiler"
_REQUIREMENT = re.compile(r"""(?P<name>[A-Za-z0-9._-]+).*;.*\bextra\s*==\s*['"](?P<extra>[\w-]+)['"]""")
_NEEDED_BY = {
    "agent": "agent, controller, capacity and doctor --kubeconfig",
    "server": "the webhooks of the controller",
    "dashboard": "dashboard",
    "metrics": "metrics",
    "libvirt": "libvirt, which uses virsh without it",
    "mount": "sim mount",
}


def software_findings() -> Iterator[DoctorFinding]:
    """Check the optional packages of each extra, and the C compiler."""
    from importlib import metadata

    try:
        requirements = metadata.requires("aliquot") or []
    except metadata.PackageNotFoundError:
        requirements = []
    for extra, names in packages_by_extra(requirements).items():
        missing = [name for name in names if not _installed(name)]
        needed_by = _NEEDED_BY.get(extra, extra)
        if missing:
            message = f"{', '.join(missing)} not installed: needed by {needed_by}"
            yield DoctorFinding(SOFTWARE, "EXTRA", "note", message, install_command(extra))
        else:
            yield DoctorFinding(SOFTWARE, "EXTRA", "ok", f"extra {extra} is installed: {needed_by}")
    from aliquot.sim.shim_build import compiler

    try:
        message = f"{compiler()} builds the NVML library of simulated nodes"
        yield DoctorFinding(SOFTWARE, "COMPILER", "ok", message)
    except AliquotError as error:
        yield failed(SOFTWARE, "COMPILER", error, status="note")


def packages_by_extra(requirements: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the packages of each extra, from Aliquot's requirements. ``all`` is left out."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] != "all":
            found.setdefault(match["extra"], []).append(match["name"])
    return found


def _installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
