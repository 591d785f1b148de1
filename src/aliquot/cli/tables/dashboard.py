"""The row of ``aliquot dashboard``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

DASHBOARD = CliCommand(
    "dashboard",
    "a web page: the GPUs drawn and live, what still fits, and changes that are looked at before they are made",
    "commands.dashboard",
    options=(
        CommandOption("--fleet", help="all simulated nodes, also such as come later", kind="flag"),
        CommandOption(
            "--cluster",
            help="a Kubernetes cluster, for whoever logs in with a token of it and has the right",
            kind="flag",
        ),
        CommandOption(
            "--kubeconfig",
            help="the cluster of this file, with the rights of this file; with --cluster it only reads with them",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--namespace", help="in a cluster: where the agents live", metavar="NAME", env="POD_NAMESPACE"),
        CommandOption(
            "--kubevirt-namespace",
            help="in a cluster: where the KubeVirt object is",
            metavar="NAME",
            default="harvester-system",
        ),
        CommandOption(
            "-f",
            "--file",
            help="a config file: the page offers its named configs",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--listen",
            help="where the page is served; port 0 takes a free one",
            metavar="ADDRESS:PORT",
            default="127.0.0.1:8470",
            env="ALIQUOT_LISTEN",
        ),
        CommandOption(
            "--token-file",
            help="log in with the token in this file (16 characters at least) instead of one made for this run",
            metavar="FILE",
            complete="file",
            env="ALIQUOT_TOKEN_FILE",
        ),
        CommandOption("--read-only", help="everybody may look, nobody can change anything", kind="flag"),
        CommandOption(
            "--allowed-host",
            help="a name (with its port, if it is not the usual one) that a proxy before the page goes by; repeatable",
            metavar="NAME",
            kind="repeat",
        ),
        CommandOption("--tls-cert", help="serve HTTPS with this certificate", metavar="FILE", complete="file"),
        CommandOption("--tls-key", help="and this key", metavar="FILE", complete="file"),
        NODE,
    ),
    text="Without an option it shows this machine, or where it has no NVIDIA GPU all simulated nodes. It prints a link "
    "that logs in once. Runs until Ctrl-C; a change under way is waited for. docs/dashboard.md says who may come in.",
    examples=(
        "aliquot dashboard",
        "aliquot dashboard --node dgx-a100",
        "aliquot dashboard -f wish.yaml --read-only",
        "aliquot dashboard --kubeconfig ~/.kube/config",
        "aliquot dashboard --listen 0.0.0.0:8470 --tls-cert tls.crt --tls-key tls.key",
    ),
    exits="0 ended by Ctrl-C, 2 usage, or the port is taken",
)
