"""The rows of ``aliquot agent`` and ``aliquot controller``. Flags mirror NVIDIA's MIG manager and its environment."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

_KUBECONFIG = CommandOption(
    "--kubeconfig",
    help="a kubeconfig file; else the pod's own rights, else $KUBECONFIG",
    metavar="FILE",
    complete="file",
)
_NAMESPACE = CommandOption(
    "--namespace", help="where the ConfigMaps and the operands live", metavar="NAME", env="POD_NAMESPACE"
)
_PORT = CommandOption(
    "--port", help="for /healthz, /readyz and /metrics; -1 for none", metavar="PORT", default="8080", number="int"
)
_DEBUG = CommandOption("-d", "--debug", help="log every decision", kind="flag")

AGENT = CliCommand(
    "agent",
    "keep this node's GPUs as its Kubernetes label wishes: MIG manager, GFD's labels and device plugin in one",
    "commands.agent",
    options=(
        CommandOption("-n", "--node-name", help="this node's name in the cluster", metavar="NAME", env="NODE_NAME"),
        _KUBECONFIG,
        _NAMESPACE,
        CommandOption(
            "-f",
            "--config-file",
            help="named configs from this file instead of generated ones",
            metavar="FILE",
            env="CONFIG_FILE",
            complete="file",
        ),
        CommandOption(
            "--default-config-file",
            help="named configs for GPUs whose profiles the driver does not tell",
            metavar="FILE",
            env="DEFAULT_CONFIG_FILE",
            complete="file",
        ),
        CommandOption(
            "-g",
            "--gpu-clients-file",
            help="the host's GPU services (clients.yaml)",
            metavar="FILE",
            env="GPU_CLIENTS_FILE",
            complete="file",
        ),
        CommandOption(
            "-p",
            "--default-gpu-clients-namespace",
            help="where the operands' pods are looked for; the agent's own namespace if not given",
            metavar="NAME",
            env="DEFAULT_GPU_CLIENTS_NAMESPACE",
        ),
        CommandOption(
            "-r", "--with-reboot", help="reboot where nothing else helps (also WITH_REBOOT=true)", kind="flag"
        ),
        CommandOption(
            "--with-shutdown-host-gpu-clients",
            help="stop the host's GPU services before a reset (also WITH_SHUTDOWN_HOST_GPU_CLIENTS=true)",
            kind="flag",
        ),
        CommandOption(
            "-m",
            "--host-root-mount",
            help="where the host's root directory is mounted",
            metavar="DIR",
            env="HOST_ROOT_MOUNT",
            complete="file",
        ),
        CommandOption(
            "-t", "--driver-root", help="where the driver's files lie", metavar="DIR", env="NVIDIA_DRIVER_ROOT"
        ),
        CommandOption("--kubelet-dir", help='"" where there is no kubelet', metavar="DIR", default="/var/lib/kubelet"),
        CommandOption("--cdi-dir", help='"" to write no CDI documents', metavar="DIR", default="/var/run/cdi"),
        CommandOption("--nvidia-cdi-hook-path", help="the hook program", metavar="FILE", env="NVIDIA_CDI_HOOK_PATH"),
        CommandOption(
            "--devices",
            help="instead of the label's wish: GPUs for virtual machines, as Harvester's objects wish",
            kind="flag",
        ),
        CommandOption(
            "--driver",
            help="with --devices: where the GPU driver's programs are (auto: in its pod where the node has one)",
            choices=("auto", "pod", "local"),
            default="auto",
            env="ALIQUOT_DRIVER",
        ),
        CommandOption(
            "--driver-namespace",
            help="with --devices: where the driver's pods are",
            metavar="NAME",
            default="harvester-system",
            env="DRIVER_NAMESPACE",
        ),
        CommandOption(
            "--check-seconds",
            help="with --devices: the longest time between two looks at the hardware",
            metavar="SECONDS",
            default="30",
            number="float",
        ),
        _PORT,
        CommandOption("--debug", help="log every decision", kind="flag"),
        NODE,
    ),
    text="Runs until SIGTERM, SIGHUP or Ctrl-C. Settings come from the environment (MIG_STRATEGY, WITH_REBOOT, ...), "
    "the ConfigMap aliquot-settings and the GPU Operator's ClusterPolicy; see docs/kubernetes.md. With --devices it "
    "keeps SRIOVGPUDevices, VGPUDevices, MigConfigurations and PCI devices of this node; see docs/harvester.md.",
    examples=(
        "aliquot agent --node-name gpu-1",
        "aliquot agent --devices --node-name gpu-1",
        "aliquot agent --node-name laptop --node dgx-a100 --kubeconfig ~/.kube/config",
    ),
)
CONTROLLER = CliCommand(
    "controller",
    "the cluster's one controller: passes ClusterPolicy on to the agents, labels new GPU nodes",
    "commands.controller",
    options=(
        _KUBECONFIG,
        _NAMESPACE,
        CommandOption("--identity", help="this process's name in the leader election", metavar="NAME", env="POD_NAME"),
        _PORT,
        CommandOption(
            "--kubevirt-namespace",
            help="where KubeVirt's settings are; without it virtual machines are no concern of this controller",
            metavar="NAME",
            env="KUBEVIRT_NAMESPACE",
        ),
        CommandOption(
            "--webhook-port",
            help="for admission webhooks and capacity, over HTTPS; -1 for none",
            metavar="PORT",
            default="-1",
            number="int",
            env="WEBHOOK_PORT",
        ),
        CommandOption(
            "--webhook-cert-dir",
            help="a mounted certificate (tls.crt, tls.key, ca.crt); without it one is made and renewed in a Secret",
            metavar="DIR",
            env="WEBHOOK_CERT_DIR",
            complete="file",
        ),
        _DEBUG,
    ),
    text="Several may run: the one that holds the Lease works, every one answers webhooks.",
    examples=(
        "aliquot controller --namespace gpu-operator",
        "aliquot controller --kubevirt-namespace kubevirt --webhook-port 8443",
    ),
)
