"""``aliquot agent``: the node agent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot.cdi.options import CdiOptions
    from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
    from aliquot.kubernetes.node_agent.agent_run import RoleStart


def run(args: Args) -> int:
    """Run the agent until SIGTERM."""
    _refuse_combinations(args)
    if not args.node_name:
        raise UsageError("the agent needs the node's name in the cluster", next_step="aliquot agent --node-name NAME")
    try:
        from aliquot.kubernetes.node_agent.agent_run import run_agent

        starts = [make(args) for make in _roles(args, _follows_labels(args))]
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "the agent") from error
    tune_gc()
    return run_agent(starts)


def _follows_labels(args: Args) -> bool:
    return bool(args.labels or args.vgpus or not (args.devices or args.claims))


def _refuse_combinations(args: Args) -> None:
    if args.default_vgpu_config and not args.vgpus:
        raise UsageError("--default-vgpu-config needs --vgpus", next_step="aliquot agent --vgpus --node-name NAME")
    if args.vgpus and (others := [f"--{name}" for name in ("labels", "devices", "claims") if getattr(args, name)]):
        raise UsageError(
            f"--vgpus and {others[0]} change the same GPUs: a node for VMs with vGPUs has one of them",
            next_step="aliquot agent --vgpus --node-name NAME",
        )
    if args.all_devices and not args.devices:
        raise UsageError(
            "--all-devices needs --devices", next_step="aliquot agent --devices --all-devices --node-name NAME"
        )
    if args.dra_vm and not args.claims:
        raise UsageError("--dra-vm needs --claims", next_step="aliquot agent --claims --node-name NAME")
    if args.devices and args.dra_vm:
        raise UsageError(
            "--dra-vm and --devices give the same GPUs to VMs in two ways: a node has one of them",
            next_step="aliquot agent --claims --node-name NAME",
        )
    if args.claims and _follows_labels(args):
        raise UsageError(
            "--labels and --claims give the same GPUs to pods in two ways: a node has one of them",
            details=("the node's label aliquot.dev/allocation chooses between their DaemonSets",),
            next_step="aliquot agent --claims --node-name NAME",
        )


def _roles(args: Args, labels: bool) -> list[Callable[[Args], RoleStart]]:
    """Return the makers of the requested roles. The first one has the widest view of the GPUs, for the metrics."""
    wanted = ((args.devices, _devices), (args.claims, _claims), (labels, _labels))
    return [make for chosen, make in wanted if chosen]


def _devices(args: Args) -> RoleStart:
    from aliquot.kubernetes.virtual_machines.agent.main import start
    from aliquot.kubernetes.virtual_machines.agent.options import DevicesAgentOptions

    if not 1 <= args.check_seconds <= 3600:
        raise UsageError(f"--check-seconds {args.check_seconds:g} is not between 1 and 3600")
    return start(
        DevicesAgentOptions(
            driver=args.driver,
            driver_namespace=args.driver_namespace,
            check_s=args.check_seconds,
            all_devices=args.all_devices,
            **_shared(args),
        )
    )


def _claims(args: Args) -> RoleStart:
    from aliquot.cli.dra.driver_name import driver_name
    from aliquot.kubernetes.dra.agent.driver import DriverSettings, dra_driver
    from aliquot.kubernetes.dra.agent.main import ClaimAgentOptions, start
    from aliquot.kubernetes.dra.model.vm_service import read_vm_policy

    if not (args.kubelet_dir and args.cdi_dir):
        raise UsageError(
            "the claim agent needs --kubelet-dir and --cdi-dir: containers get their devices through them",
            next_step="aliquot help agent",
        )
    settings = DriverSettings(
        driver_name(args.dra_driver, next_step="aliquot agent --claims --dra-driver gpu.aliquot.dev"),
        args.node_name,
        args.kubelet_dir,
        args.cdi_dir,
        args.dra_score,
        args.dra_mode_changes,
        read_vm_policy(args.dra_vm),
    )
    pod_uid = os.environ.get("POD_UID", "")
    driver = dra_driver(settings, _cdi_options(args), pod_uid)
    return start(ClaimAgentOptions(driver=driver, **_shared(args)))


def _shared(args: Args) -> dict[str, Any]:
    """Return the options that all agents take."""
    from aliquot.slurm.holders import jobs

    return {
        "node_name": args.node_name,
        "holders": (jobs.source,),
        "node": args.sim,
        "kubeconfig": args.kubeconfig,
        "namespace": args.namespace,
        "kubelet_dir": args.kubelet_dir,
        "host_root": (args.host_root_mount or "").rstrip("/"),
        "driver_root": args.driver_root or "",
        "port": args.port,
        "pod": os.environ.get("POD_NAME", ""),
        "debug": args.debug or args.verbose,
    }


def _setup(args: Args) -> AgentSetup:
    from aliquot.kubernetes.gpu.managed_label import MIG, VGPU
    from aliquot.kubernetes.label_agent.agent.settings import AgentSetup

    environment = dict(os.environ)
    if args.default_vgpu_config:
        environment["DEFAULT_VGPU_CONFIG"] = args.default_vgpu_config
    if args.with_reboot:
        environment["WITH_REBOOT"] = "true"
    if args.with_shutdown_host_gpu_clients:
        environment["WITH_SHUTDOWN_HOST_GPU_CLIENTS"] = "true"
    return AgentSetup(
        args.node_name,
        environment,
        args.config_file or "",
        args.default_config_file or "",
        args.gpu_clients_file or "",
        args.default_gpu_clients_namespace or "",
        VGPU if args.vgpus else MIG,
    )


def _labels(args: Args) -> RoleStart:
    from aliquot.kubernetes.label_agent.agent.main import LabelAgentOptions, start

    options = _cdi_options(args)
    cdi_dir = "" if args.vgpus else args.cdi_dir  # devices of VMs need no CDI documents
    return start(LabelAgentOptions(setup=_setup(args), cdi_dir=cdi_dir, cdi_options=options, **_shared(args)))


def _cdi_options(args: Args) -> CdiOptions:
    from aliquot.cdi.options import CdiOptions
    from aliquot.foundation.paths import state_dir

    simulated = ""
    if args.sim is not None:
        from aliquot.sim import lifecycle as control

        simulated = control.folder(state_dir(), args.sim)
    # MIG strategy none offers GPUs in MIG mode whole: the CDI files must have the names that the kubelet gets.
    return CdiOptions(hook=args.nvidia_cdi_hook_path or "", simulated=simulated, whole_mig=True)
