"""``aliquot controller``: the cluster's controller."""

from __future__ import annotations

from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def run(args: Args) -> int:
    """Run the controller until SIGTERM."""
    if args.webhook_port >= 0 and not args.kubevirt_namespace:
        step = "aliquot controller --kubevirt-namespace harvester-system --webhook-port 8443"
        raise UsageError("the webhooks are for virtual machines: --kubevirt-namespace is required", next_step=step)
    if args.dra_extender_port < 0 and (args.dra_extender_score or args.dra_extender_cert_dir):
        step = "aliquot controller --dra-extender-port 8444"
        raise UsageError("a score or certificate of the scheduler extender needs --dra-extender-port", next_step=step)
    servers = args.webhook_port >= 0 or args.dra_extender_port >= 0
    try:
        from aliquot.kubernetes.controller import main as controller
        from aliquot.kubernetes.dra.extender.options import ExtenderOptions
        from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions

        if servers:
            import aliquot.kubernetes.virtual_machines.webhook.main  # noqa: F401 - a missing library is reported before anything starts
    except ModuleNotFoundError as error:
        extra = "agent,server" if servers else "agent"
        raise missing_library(error, extra, "the controller") from error
    webhook = WebhookOptions(args.webhook_port, args.webhook_cert_dir or "")
    options = controller.ControllerOptions(
        args.kubeconfig,
        args.namespace,
        args.identity,
        args.port,
        args.debug or args.verbose,
        args.kubevirt_namespace or "",
        webhook,
        ExtenderOptions(
            args.dra_extender_port, args.dra_extender_cert_dir or "", args.dra_extender_score or "fragmentation"
        ),
    )
    tune_gc()
    return controller.run(options)
