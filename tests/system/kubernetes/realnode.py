"""A real node for a test: kubelet and containerd in a mount namespace of their own, pods bound to it by name.

The kubelet is searched beside kube-apiserver (``cluster_real.assets``). containerd must be 1.7 or later, the first that
supports CDI, in the folder ``ALIQUOT_CONTAINERD`` or in PATH.

Folders of the test are bound over the host's fixed paths only in that namespace, so nothing is mounted on the host and
every mount ends with the last process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.cluster_real import RealServer, assets, free_ports
from support.processes import until
from system.kubernetes.image import NAME, archive
from system.kubernetes.jsonapi import Json

FIXED = {
    "kubelet": "/var/lib/kubelet",
    "ctd-run": "/run/containerd",
    "netns": "/run/netns",
    "logs": "/var/log/pods",
    "containers-log": "/var/log/containers",
}

_CGROUPS = Path("/sys/fs/cgroup")


def containerd() -> Path | None:
    """Return the folder of a containerd that supports CDI, or None if there is none."""
    folders = [os.environ.get("ALIQUOT_CONTAINERD"), os.path.dirname(shutil.which("containerd") or "")]
    for folder in filter(None, folders):
        program = Path(str(folder)) / "containerd"
        if os.access(program, os.X_OK):
            answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
            found = re.search(r"v?(\d+)\.(\d+)\.\d+", answer)
            if found and (int(found[1]), int(found[2])) >= (1, 7):
                return Path(str(folder))
    return None


def why_not() -> str:
    """Return why no node can run here, or "" if one can."""
    folder = assets()
    if folder is None or not os.access(folder / "kubelet", os.X_OK):
        return "no kubelet beside kube-apiserver (KUBEBUILDER_ASSETS)"
    if os.geteuid() != 0:
        return "a node needs root"
    missing = [name for name in ("unshare", "nsenter", "runc", "busybox") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if containerd() is None:
        return "no containerd 1.7 or later (ALIQUOT_CONTAINERD names its folder)"
    return "" if subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0 else "unshare is refused"


class RealNode:
    """A node of a real API server. ``folder`` must be short: it contains sockets."""

    def __init__(self, server: RealServer, folder: Path, name: str = "node1") -> None:
        self.name = name
        self.folder = folder
        self.directory = folder / "kubelet" / "device-plugins"
        self.pod_resources = folder / "kubelet" / "pod-resources" / "kubelet.sock"
        self.cdi = folder / "cdi"
        self.out = folder / "out"
        self.api = Json(server)
        self._address = str(folder / "c.sock")
        self._programs = assets() or Path()
        self._containerd = containerd() or Path()
        self._made = [path for path in FIXED.values() if not os.path.isdir(path)]
        for part in (*FIXED, "ctd", "ctd-state", "cdi", "certs", "opt", "out", "cni"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for path in self._made:
            os.makedirs(path)
        self._configure(server)
        self._ctd = self._start_containerd()
        self._kubelet: subprocess.Popen[bytes] | None = None
        self.start()

    # -- start and stop

    def start(self) -> None:
        """Start the kubelet, and wait until it has registered its node with the API server."""
        command = [
            *("nsenter", f"--mount=/proc/{self._ctd.pid}/ns/mnt", "--"),
            *(str(self._programs / "kubelet"), f"--config={self.folder / 'kubelet.yaml'}"),
            *(f"--kubeconfig={self.folder / 'kubeconfig'}", f"--hostname-override={self.name}"),
            f"--cert-dir={self.folder / 'certs'}",
        ]
        self._kubelet = self._spawn("kubelet", command)
        self.wait(lambda: self.api.get(f"/api/v1/nodes/{self.name}") is not None, 60)
        self.wait((self.directory / "kubelet.sock").is_socket, 30)

    def stop(self) -> None:
        if self._kubelet is not None:
            _end(self._kubelet)
            self._kubelet = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """End everything, containers first, while their names are known."""
        self.stop()
        tasks = self.folder / "ctd-state/io.containerd.runtime.v2.task/k8s.io"
        ids = [p.name for p in tasks.iterdir()] if tasks.is_dir() else []
        for each in ids:
            for pid in _cgroup_pids(each):
                _kill(pid)
        for pid in self._shims():
            _kill(pid)
        _end(self._ctd)
        for each in ids:
            for path in [*_CGROUPS.glob(f"*/k8s.io/{each}"), _CGROUPS / f"k8s.io/{each}"]:
                with contextlib.suppress(OSError):
                    path.rmdir()
        for made in self._made:
            with contextlib.suppress(OSError):
                os.rmdir(made)

    # -- state

    def status(self) -> dict[str, Any]:
        found = self.api.get(f"/api/v1/nodes/{self.name}")
        return {} if found is None else dict(found["status"])

    @property
    def capacity(self) -> dict[str, int]:
        return _extended(self.status().get("capacity", {}))

    @property
    def allocatable(self) -> dict[str, int]:
        return _extended(self.status().get("allocatable", {}))

    # -- pods

    def create(self, name: str, limits: dict[str, int], script: str, *, bound: bool = True, template: str = "") -> None:
        """Create a pod bound to this node, or one for the scheduler. Its folder ``/out`` is this node's ``out``.

        ``template`` names the ResourceClaimTemplate of its claim; empty for none.
        """
        claims = [{"name": "claim", "resourceClaimTemplateName": template}] if template else []
        container = {
            "name": "main",
            "image": NAME,
            "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "sh", "-c", script],
            "resources": {
                "limits": {k: str(v) for k, v in limits.items()},
                "claims": [{"name": each["name"]} for each in claims],
            },
            "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        }
        spec = {
            **({"nodeName": self.name} if bound else {}),
            "resourceClaims": claims,
            "tolerations": [{"operator": "Exists"}],
            "hostNetwork": True,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "out", "hostPath": {"path": str(self.out)}}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.api.send("POST", "/api/v1/namespaces/default/pods", body)

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.api.get(f"/api/v1/namespaces/default/pods/{name}")

    def delete(self, name: str) -> None:
        self.api.send("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        self.wait(lambda: self.pod(name) is None, 60)

    def wait(self, true: Callable[[], object], seconds: float) -> None:
        until(true, self.log, seconds, pause_s=0.1)

    def log(self) -> str:
        """Return the ends of the logs, for the text of a failure."""
        paths = [self.folder / f"{name}.log" for name in ("kubelet", "containerd")]
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in paths if path.exists())

    # -- parts

    def _configure(self, server: RealServer) -> None:
        port, health = free_ports(2)
        self._write("kubelet.yaml", json.dumps(_kubelet_config(self.folder, self._address, port, health)))
        self._write("kubeconfig", json.dumps(_kubeconfig(server)))
        self._write("containerd.toml", _containerd_config(self.folder, self._address))
        archive(self.folder / "image.tar")

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _start_containerd(self) -> subprocess.Popen[bytes]:
        binds = " && ".join(f"mount --bind {self.folder / part} {path}" for part, path in FIXED.items())
        run = f"exec {self._containerd / 'containerd'} --config {self.folder / 'containerd.toml'}"
        script = f"{binds} && mount --make-rshared / && {run}"
        process = self._spawn(
            "containerd", ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script]
        )
        ctr = [str(self._containerd / "ctr"), "-a", self._address, "-n", "k8s.io"]

        def up() -> bool:
            return subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0

        self.wait(up, 30)
        subprocess.run([*ctr, "images", "import", str(self.folder / "image.tar")], check=True, capture_output=True)
        return process

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        path = f"{self._containerd}{os.pathsep}{os.environ.get('PATH', '')}"
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | {"PATH": path},
            )

    def _shims(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    if "containerd-shim" in words[0] and self._address in words:
                        yield int(entry.name)


def _extended(quantities: dict[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in quantities.items() if "/" in name}


def _cgroup_pids(container: str) -> set[int]:
    found: set[int] = set()
    for path in [*_CGROUPS.glob(f"*/k8s.io/{container}/cgroup.procs"), _CGROUPS / f"k8s.io/{container}/cgroup.procs"]:
        with contextlib.suppress(OSError):
            found |= {int(word) for word in path.read_text().split()}
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _kubeconfig(server: RealServer) -> dict[str, object]:
    from support.cluster_real import ADMIN_TOKEN

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(server.ca)}}],
        "users": [{"name": "u", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def _kubelet_config(folder: Path, address: str, port: int, health: int) -> dict[str, object]:
    """Configure the kubelet to read and change nothing of the host's cgroups, swap, firewall or disk."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{address}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
        "address": "127.0.0.1",
        "port": port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health,
        "readOnlyPort": 0,
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": str(folder / "flex"),
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "5s",
        "syncFrequency": "10s",
        "oomScoreAdj": 0,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
        ),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
    }


def _containerd_config(folder: Path, address: str) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    off = ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper", "snapshotter.v1.aufs")
    return f"""version = 2
root = "{folder}/ctd"
state = "{folder}/ctd-state"
disabled_plugins = {json.dumps([f"io.containerd.{name}" for name in (*off, "nri.v1.nri")])}
[grpc]
  address = "{address}"
[ttrpc]
  address = "{address}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[{cri}]
  sandbox_image = "{NAME}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]
  stream_server_address = "127.0.0.1"
  [{cri}.cni]
    conf_dir = "{folder}/cni"
  [{cri}.containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        BinaryName = "{shutil.which("runc")}"
        SystemdCgroup = false
"""
