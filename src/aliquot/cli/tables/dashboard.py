"""The row of ``aliquot dashboard``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

DASHBOARD = CliCommand(
    "dashboard",
    "serve a web page that shows the GPUs live, and previews each change",
    "commands.dashboard",
    extra="dashboard",
    options=(
        CommandOption("--fleet", help="show all simulated nodes, also those that start later", kind="flag"),
        CommandOption(
            "--cluster",
            help="show a Kubernetes cluster to users who log in with a token of it and have the rights",
            kind="flag",
        ),
        CommandOption(
            "--kubeconfig",
            help="show the cluster of this kubeconfig file, with its rights; with --cluster the page only reads with "
            "them",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--namespace", help="in a cluster: the namespace of the agents", metavar="NAME", env="POD_NAMESPACE"
        ),
        CommandOption(
            "--kubevirt-namespace",
            help="in a cluster: the namespace of the KubeVirt object",
            metavar="NAME",
            default="harvester-system",
        ),
        CommandOption(
            "-f",
            "--file",
            help="a config file, whose named configs the page offers",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--listen",
            help="the address to listen on; port 0 chooses a free port",
            metavar="ADDRESS:PORT",
            default="127.0.0.1:8470",
            env="ALIQUOT_LISTEN",
        ),
        CommandOption(
            "--token-file",
            help="a file with the login token (at least 16 characters), instead of a new one for each run",
            metavar="FILE",
            complete="file",
            env="ALIQUOT_TOKEN_FILE",
        ),
        CommandOption("--read-only", help="show everything and allow no changes", kind="flag"),
        CommandOption(
            "--allowed-host",
            help="a host name that a proxy uses for the page, with the port if it is not the usual one; repeatable",
            metavar="NAME",
            kind="repeat",
        ),
        CommandOption("--tls-cert", help="serve HTTPS with this certificate", metavar="FILE", complete="file"),
        CommandOption("--tls-key", help="the key of that certificate", metavar="FILE", complete="file"),
        NODE,
    ),
    text="Without an option, the page shows this host, or all simulated nodes if the host has no NVIDIA GPU. It "
    "prints a link that logs in once, and runs until Ctrl-C; a change that is running is waited for. "
    "docs/dashboard.md describes who may log in.",
    examples=(
        "aliquot dashboard",
        "aliquot dashboard --sim dgx-a100",
        "aliquot dashboard -f config.yaml --read-only",
        "aliquot dashboard --kubeconfig ~/.kube/config",
        "aliquot dashboard --listen 0.0.0.0:8470 --tls-cert tls.crt --tls-key tls.key",
    ),
    exits="0 ended by Ctrl-C, 2 invalid input, or the port is in use",
)
