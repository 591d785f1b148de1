"""``aliquot controller``: the cluster's controller."""

from __future__ import annotations

from aliquot.cli.commands.agent import missing_extra
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def run(args: Args) -> int:
    """Until SIGTERM."""
    if args.webhook_port >= 0 and not args.kubevirt_namespace:
        step = "aliquot controller --kubevirt-namespace harvester-system --webhook-port 8443"
        raise UsageError("webhooks are for virtual machines: where are KubeVirt's settings?", next_step=step)
    try:
        from aliquot.kubernetes.controller import main as controller
        from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions

        if args.webhook_port >= 0:
            import aliquot.kubernetes.virtual_machines.webhook.main  # noqa: F401 - what is missing is said before anything starts
    except ModuleNotFoundError as error:
        if error.name in ("starlette", "uvicorn", "cryptography"):
            step = "pip install 'aliquot[agent,server]', or in a checkout: pip install '.[agent,server]'"
            raise UsageError(f"{error.name} is not installed: webhooks need it", next_step=step) from error
        raise missing_extra(error) from error
    webhook = WebhookOptions(args.webhook_port, args.webhook_cert_dir or "")
    options = controller.ControllerOptions(
        args.kubeconfig,
        args.namespace,
        args.identity,
        args.port,
        args.debug,
        args.kubevirt_namespace or "",
        webhook,
    )
    tune_gc()
    return controller.run(options)
