"""libvirt's VMs that use the vGPUs which a plan destroys, as notes of the plan."""

from __future__ import annotations

from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.core.model.actions import DestroyVgpu
from aliquot.core.model.plan import Plan


def with_vms(plan: Plan, args: Args) -> Plan:
    """Return the plan with notes on the shut-off VMs whose vGPUs it destroys.

    It asks libvirt only for such a plan, and only the daemon of LIBVIRT_DEFAULT_URI or, for this host, a daemon that
    runs. Prints a note if libvirt does not answer.
    """
    if not any(isinstance(action, DestroyVgpu) for action in plan.actions):
        return plan
    from aliquot.libvirt.connect import has_daemon, open_libvirt
    from aliquot.libvirt.errors import LibvirtError
    from aliquot.libvirt.vm_references import with_references

    if not has_daemon(this_host=args.sim is None):
        return plan
    try:
        with open_libvirt() as libvirt:
            return with_references(plan, libvirt.domains())
    except LibvirtError as error:
        streams.note(f"note: VMs that use these vGPUs are not named: {error.brief}")
        return plan
