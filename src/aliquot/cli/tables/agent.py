"""The rows of ``aliquot agent`` and ``aliquot controller``. The options and variables are those of NVIDIA's MIG
manager.
"""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

_KUBECONFIG = CommandOption(
    "--kubeconfig",
    help="a kubeconfig file; by default the service account of the pod, else $KUBECONFIG",
    metavar="FILE",
    complete="file",
)
_NAMESPACE = CommandOption(
    "--namespace",
    help="the namespace of the ConfigMaps and the GPU Operator's pods",
    metavar="NAME",
    env="POD_NAMESPACE",
)
_PORT = CommandOption(
    "--port",
    help="the port of /healthz, /readyz and /metrics; -1 for none",
    metavar="PORT",
    default="8080",
    number="int",
)
_DEBUG = CommandOption("-d", "--debug", help="log every decision; the same as --verbose", kind="flag")

AGENT = CliCommand(
    "agent",
    "keep the GPUs of this node as its Kubernetes label requests",
    "commands.agent",
    extra="agent",
    options=(
        CommandOption(
            "-n", "--node-name", help="the name of this node in the cluster", metavar="NAME", env="NODE_NAME"
        ),
        _KUBECONFIG,
        _NAMESPACE,
        CommandOption(
            "-f",
            "--config-file",
            help="a file of named configs, instead of the generated ones",
            metavar="FILE",
            env="CONFIG_FILE",
            complete="file",
        ),
        CommandOption(
            "--default-config-file",
            help="a file of named configs for GPUs whose driver does not list profiles",
            metavar="FILE",
            env="DEFAULT_CONFIG_FILE",
            complete="file",
        ),
        CommandOption(
            "-g",
            "--gpu-clients-file",
            help="a file that lists the GPU services of the host (clients.yaml)",
            metavar="FILE",
            env="GPU_CLIENTS_FILE",
            complete="file",
        ),
        CommandOption(
            "-p",
            "--default-gpu-clients-namespace",
            help="the namespace of the GPU Operator's pods; by default the agent's own",
            metavar="NAME",
            env="DEFAULT_GPU_CLIENTS_NAMESPACE",
        ),
        CommandOption(
            "-r", "--with-reboot", help="reboot the host if a change needs it (also WITH_REBOOT=true)", kind="flag"
        ),
        CommandOption(
            "--with-shutdown-host-gpu-clients",
            help="stop the GPU services of the host before a reset (also WITH_SHUTDOWN_HOST_GPU_CLIENTS=true)",
            kind="flag",
        ),
        CommandOption(
            "-m",
            "--host-root-mount",
            help="the mount point of the host's root directory",
            metavar="DIR",
            env="HOST_ROOT_MOUNT",
            complete="file",
        ),
        CommandOption(
            "-t",
            "--driver-root",
            help="the root directory of the driver; by default that of its container, else the host's",
            metavar="DIR",
            env="NVIDIA_DRIVER_ROOT",
        ),
        CommandOption(
            "--kubelet-dir",
            help='the directory of kubelet; "" if the host does not run kubelet',
            metavar="DIR",
            default="/var/lib/kubelet",
        ),
        CommandOption(
            "--cdi-dir", help='the directory for CDI documents; "" to write none', metavar="DIR", default="/var/run/cdi"
        ),
        CommandOption(
            "--nvidia-cdi-hook-path", help="the nvidia-cdi-hook program", metavar="FILE", env="NVIDIA_CDI_HOOK_PATH"
        ),
        CommandOption(
            "--labels",
            help="follow the label of the node; the default without --devices and --claims",
            kind="flag",
        ),
        CommandOption(
            "--devices",
            help="prepare GPUs for VMs as Harvester's objects request",
            kind="flag",
        ),
        CommandOption(
            "--all-devices",
            help="with --devices: also serve the devices of other vendors (network cards, disks, USB), in place of "
            "Harvester's pcidevices",
            kind="flag",
            env="ALIQUOT_ALL_DEVICES",
        ),
        CommandOption(
            "--vgpus",
            help="follow the label nvidia.com/vgpu.config on a node for VMs, in place of NVIDIA's vGPU device manager",
            kind="flag",
        ),
        CommandOption(
            "-d",
            "--default-vgpu-config",
            help="with --vgpus: the named config of a node without the label (also DEFAULT_VGPU_CONFIG)",
            metavar="NAME",
        ),
        CommandOption(
            "--claims",
            help="serve ResourceClaims (DRA): create each device when a pod needs it",
            kind="flag",
        ),
        CommandOption(
            "--dra-driver",
            help="with --claims: the name of the driver; gpu.nvidia.com serves in place of NVIDIA's",
            metavar="NAME",
            default="gpu.aliquot.dev",
            env="DRA_DRIVER",
        ),
        CommandOption(
            "--dra-score",
            help="with --claims: which placements the scheduler is offered first",
            choices=("fragmentation", "keep-whole-gpus", "first-fit"),
            default="fragmentation",
            env="DRA_SCORE",
        ),
        CommandOption(
            "--dra-mode-changes",
            help="with --claims: whether a claim may change the MIG mode of an idle GPU; on A30 and A100 that needs a "
            "reset of the GPU",
            choices=("never", "without-reset", "any"),
            default="without-reset",
            env="DRA_MODE_CHANGES",
        ),
        CommandOption(
            "--dra-vm",
            help="with --claims: the GPUs that serve VMs and not pods, all or by PCI address, each with the vGPUs that "
            "it offers: a time-sliced type, mig-backed, or both with +",
            metavar="GPU[=VGPUS],...",
            default="",
            env="DRA_VM",
        ),
        CommandOption(
            "--driver",
            help="with --devices: where the programs of the GPU driver are; auto: in the driver pod if the node has "
            "one",
            choices=("auto", "pod", "local"),
            default="auto",
            env="ALIQUOT_DRIVER",
        ),
        CommandOption(
            "--driver-namespace",
            help="with --devices: the namespace of the driver pods",
            metavar="NAME",
            default="harvester-system",
            env="DRIVER_NAMESPACE",
        ),
        CommandOption(
            "--check-seconds",
            help="with --devices: the longest time between two reads of the hardware, in seconds",
            metavar="SECONDS",
            default="30",
            number="float",
        ),
        _PORT,
        CommandOption("--debug", help="log every decision; the same as --verbose", kind="flag"),
        NODE,
    ),
    text="One process replaces MIG manager, GPU feature discovery and the device plugin. It runs until SIGTERM, "
    "SIGHUP or Ctrl-C. Settings come from the environment (MIG_STRATEGY, WITH_REBOOT, ...), the ConfigMap "
    "aliquot-settings and the GPU Operator's ClusterPolicy; see docs/kubernetes.md. With --devices the agent keeps "
    "the SRIOVGPUDevices, VGPUDevices, MigConfigurations and PCI devices of this node; see docs/harvester.md. With "
    "--claims it is the DRA driver of this node. --devices together with --labels or --claims is one process with both "
    "roles, which share one session with the driver. With --vgpus it serves nvidia.com/vgpu.config; see "
    "docs/coming-from/gpu-operator-vgpu.md.",
    examples=(
        "aliquot agent --node-name gpu-1",
        "aliquot agent --devices --node-name gpu-1",
        "aliquot agent --devices --all-devices --node-name gpu-1",
        "aliquot agent --claims --node-name gpu-1",
        "aliquot agent --vgpus --node-name gpu-1",
        "aliquot agent --labels --devices --node-name gpu-1",
        "aliquot agent --node-name laptop --sim dgx-a100 --kubeconfig ~/.kube/config",
    ),
)
CONTROLLER = CliCommand(
    "controller",
    "pass the ClusterPolicy on to the agents, and label new GPU nodes",
    "commands.controller",
    extra="agent",
    options=(
        _KUBECONFIG,
        _NAMESPACE,
        CommandOption(
            "--identity", help="the name of this process in the leader election", metavar="NAME", env="POD_NAME"
        ),
        _PORT,
        CommandOption(
            "--kubevirt-namespace",
            help="the namespace of KubeVirt's settings; without it the controller does not manage VMs",
            metavar="NAME",
            env="KUBEVIRT_NAMESPACE",
        ),
        CommandOption(
            "--webhook-port",
            help="the HTTPS port of the admission webhooks and of capacity; -1 for none",
            metavar="PORT",
            default="-1",
            number="int",
            env="WEBHOOK_PORT",
        ),
        CommandOption(
            "--webhook-cert-dir",
            help="a directory with tls.crt, tls.key and ca.crt; by default the controller keeps a certificate in a "
            "Secret and renews it",
            metavar="DIR",
            env="WEBHOOK_CERT_DIR",
            complete="file",
        ),
        CommandOption(
            "--dra-extender-port",
            help="the HTTPS port of the scheduler extender for ResourceClaims; -1 for none",
            metavar="PORT",
            default="-1",
            number="int",
            env="DRA_EXTENDER_PORT",
        ),
        CommandOption(
            "--dra-extender-score",
            help="with --dra-extender-port: which nodes the scheduler prefers; by default fragmentation",
            choices=("fragmentation", "keep-whole-gpus", "first-fit"),
            env="DRA_EXTENDER_SCORE",
        ),
        CommandOption(
            "--dra-extender-cert-dir",
            help="with --dra-extender-port: a directory with tls.crt and tls.key; by default each controller makes a "
            "certificate that clients cannot verify",
            metavar="DIR",
            env="DRA_EXTENDER_CERT_DIR",
            complete="file",
        ),
        _DEBUG,
    ),
    text="Several controllers may run: the leader, which holds the Lease, does the work, and each one answers "
    "webhooks and the scheduler. Webhooks and the scheduler extender also need the extra 'server'.",
    examples=(
        "aliquot controller --namespace gpu-operator",
        "aliquot controller --kubevirt-namespace kubevirt --webhook-port 8443",
        "aliquot controller --dra-extender-port 8444",
    ),
)
