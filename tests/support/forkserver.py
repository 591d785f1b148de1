"""Start ``python -m aliquot ...`` without starting an interpreter: a server that has imported Aliquot forks for each.

``Popen`` and ``run`` take what those of ``subprocess`` take and give what they give: a child of the test with the
streams, environment, working directory, exit code and signals of a process. Starts that a fork cannot reproduce use a
fresh interpreter: other programs than ``python -m aliquot``, variables that the interpreter or the dynamic linker reads
when it starts, a ``preexec_fn``, ignored signals. Each test process has one fork server. It ends with the test process,
and so does every process that it has forked.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import resource
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import aliquot
from aliquot.sim import lifecycle as control

SOURCE = str(Path(aliquot.__path__[0]).resolve().parent)
"""Where this process imports Aliquot from: the checkout, or a copy of it with a mutant."""
TESTS = str(Path(__file__).resolve().parents[1])
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
"""Variables with these prefixes are read when an interpreter starts: a fork cannot change them."""
_FOLLOWED = ("PYTHONPATH", "PYTHONUNBUFFERED", "LD_PRELOAD")
"""Exceptions: ``_settle`` follows the first two, and ``prepare`` starts a server for a library."""
_FORKED = re.compile(r"aliquot(\.\w+)*|system\.slurm\.(killed|module)")
_OF_A_STATUS = re.compile(r"^(?:Umask|Uid|Gid|Groups|CapEff|Seccomp):.*$", re.MULTILINE)
_NEUTRAL = ("LC_ALL=C", "LC_ALL=C.UTF-8", "LANG=C", "LANG=C.UTF-8")
"""Settings that change nothing for an interpreter, which makes C a C.UTF-8."""
_LIMITS = sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_"))
_SERVER = "aliquot.sim.server"
_TOOLS = "aliquot.sim.tools"
_STARTED = ("aliquot", _SERVER, f"{_TOOLS}.nvidia_smi", f"{_TOOLS}.sriov_manage")
"""Modules that tests start often."""
_ROLES = ("tools", "lean", "full")
"""Forks cost more the more memory a process has, so there are three servers: for the driver's programs, for commands
that import little, and for all others. Each is a fork of the one before, created at its first request.
"""
_LARGE = ("agent", "controller", "dashboard", "capacity", "metrics")
"""Verbs that import HTTP clients, Kubernetes' API or web pages, which other verbs do not need."""
_PACKAGES = re.compile(
    rf"aliquot\.(dashboard|kubernetes|metrics|slurm\.controller)\b|aliquot\.cli\.commands\.({'|'.join(_LARGE)})"
)
"""Their packages and modules."""
_SIZE = struct.Struct("!i")
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_SET_PDEATHSIG, _PR_GET_TID_ADDRESS = 1, 40
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` that forks where a fork equals a fresh start; ``forked`` says whether it did."""

    forked = False

    def __init__(self, words: Sequence[str], *, mounts_of: int | None = None, **options: Any) -> None:
        """Start a process as ``subprocess.Popen`` does. It gets the mount namespace, with its /tmp, of the process
        ``mounts_of``.
        """
        self._mounts_of = mounts_of
        super().__init__(words, **options)

    def _execute_child(self, *args: Any, **kwargs: Any) -> None:
        parent = super()._execute_child  # type: ignore[misc]
        bound = inspect.signature(parent).bind(*args, **kwargs)
        asked = bound.arguments
        if not _can_fork(asked):
            if self._mounts_of is not None:
                asked["args"] = inside(self._mounts_of, *asked["args"])
            parent(*bound.args, **bound.kwargs)
            return
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        request = {
            "module": asked["args"][2],
            "words": [os.fspath(word) for word in asked["args"][3:]],
            "env": dict(os.environ if asked["env"] is None else asked["env"]),
            "cwd": "/tmp" if self._mounts_of else os.path.abspath(asked["cwd"] or os.curdir),
            "session": bool(asked["start_new_session"]),
            "mounts_of": self._mounts_of,
        }
        self.pid = start(request, {n: end if end >= 0 else n for n, end in enumerate(ends)})
        self.forked = self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in names))  # type: ignore[attr-defined]


def inside(pid: int, *words: str) -> list[str]:
    """Return the command line that runs a program in the mount namespace of a process."""
    return ["nsenter", "--mount", f"--target={pid}", "--wd=/tmp", "--", *words]


def run(
    words: Sequence[str],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command as ``subprocess.run`` does, with ``Popen`` from here."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


fresh_server = control.launch


def launch(base: str, ready: int, log: str) -> int:
    """Fork a simulator server, for ``aliquot.sim.lifecycle.launch``."""
    words = [sys.executable, "-m", _SERVER, base, "3"]
    if not forkable(words, os.environ):
        return fresh_server(base, ready, log)
    request = {"module": words[2], "words": words[3:], "env": dict(os.environ), "cwd": "/", "session": True}
    with open(os.devnull, "rb") as nothing, open(log, "wb", opener=_private) as out:
        return start(request, {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno(), 3: ready})


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _can_fork(asked: Mapping[str, Any]) -> bool:
    words, env = asked["args"], os.environ if asked["env"] is None else asked["env"]
    plain = (
        asked["preexec_fn"] is None
        and not asked["pass_fds"]
        and not asked["shell"]
        and asked["close_fds"]
        and asked["executable"] is None
        and asked["umask"] < 0
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        and (asked["gid"], asked["gids"], asked["uid"]) == (None, None, None)
        and asked.get("process_group", -1) == -1
    )
    return plain and forkable(words, env)


def forkable(words: Any, env: Mapping[str, str]) -> bool:
    """Report whether a fork reproduces a start of this command with this environment."""
    if not isinstance(words, list | tuple) or len(words) < 3 or list(words[:2]) != [sys.executable, "-m"]:
        return False
    if not _FORKED.fullmatch(str(words[2])):
        return False
    if os.uname().machine not in _SYS_CLONE:
        return False
    here = set(env.get("PYTHONPATH", "").split(os.pathsep)) - {"", SOURCE, TESTS}
    library = env.get("LD_PRELOAD", "")
    loaded = not library or (os.getpid(), library) in _clients
    return loaded and not here and _start_variables(env) == _start_variables(os.environ)


def _start_variables(env: Mapping[str, str]) -> set[str]:
    at_start = {f"{k}={v}" for k, v in env.items() if k.startswith(_AT_START) and k not in _FOLLOWED}
    return at_start.difference(_NEUTRAL)


def _role(module: str, words: Sequence[str]) -> str:
    """Return the server that forks for a command; ``launcher.c`` has the same rule."""
    if module.startswith(f"{_TOOLS}."):
        return "tools"
    large = (words[:1] and words[0] in _LARGE) or list(words[:2]) == ["slurm", "controller"]
    return "lean" if module in ("aliquot", _SERVER) and not large else "full"


class _Client:
    """The servers of this process. They import Aliquot at their first request."""

    def __init__(self, library: str) -> None:
        self._lock = threading.Lock()
        self._sockets: dict[str, socket.socket] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="aliquot-fork-", ignore_cleanup_errors=True)
        self.python = sys.executable if library else self._launcher()
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((SOURCE, TESTS))}
        env |= {"LD_PRELOAD": library} if library else {}
        with contextlib.ExitStack() as theirs:
            fds = []
            for role in _ROLES:
                self._sockets[role], other = socket.socketpair()
                fds += [theirs.enter_context(each).fileno() for each in (other, self._listener(role))]
            words = [sys.executable, "-m", "support.forkserver", self.python, *map(str, fds)]
            self._process = subprocess.Popen(words, env=env, pass_fds=fds, stdin=subprocess.DEVNULL)

    def _listener(self, name: str) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.bind(f"{self._folder.name}/{name}")
        made.listen(64)
        return made

    def _launcher(self) -> str:
        """Return the program of ``launcher.c``, or the interpreter without a C compiler. The first process of a run
        compiles it, and the others link it: it must lie beside the sockets.
        """
        program, source = f"{self._folder.name}/python", Path(__file__).with_name("launcher.c")
        large = ",".join(f'"{verb}"' for verb in _LARGE)
        words = ["cc", "-std=gnu11", "-O1", f'-DPYTHON="{sys.executable}"', f"-DLARGE={large}"]
        version = hashlib.sha256(repr(words).encode() + source.read_bytes()).hexdigest()
        kept = Path(os.environ.get("ALIQUOT_CACHE_DIR", self._folder.name), f"launcher-{version}")
        with contextlib.suppress(OSError):
            os.link(kept, program)
            return program
        with contextlib.suppress(OSError):
            if subprocess.run([*words, "-o", program, str(source)], capture_output=True).returncode == 0:
                with contextlib.suppress(OSError):
                    os.link(program, kept)
                return program
        return sys.executable

    def start(self, request: Mapping[str, Any], fds: Mapping[int, int]) -> int:
        body = json.dumps({**request, "fds": list(fds)}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds.values()))]
        server = self._sockets[_role(request["module"], request["words"])]
        with self._lock:
            server.sendmsg([_SIZE.pack(len(body))], rights)
            server.sendall(body)
            answer = server.recv(_SIZE.size, socket.MSG_WAITALL)
        if len(answer) < _SIZE.size:
            raise RuntimeError("the fork server has ended")
        return int(_SIZE.unpack(answer)[0])


_clients: dict[tuple[int, str], _Client] = {}


def prepare(library: str = "") -> None:
    """Start a server unless it runs. It loads ``library`` (LD_PRELOAD), which must have no effect until a command runs.

    The thread that calls this must last: the kernel ends the processes that it has forked when it ends.
    """
    if (os.getpid(), library) not in _clients:
        _clients[os.getpid(), library] = _Client(library)


def start(request: Mapping[str, Any], fds: Mapping[int, int]) -> int:
    """Fork a process and return its pid, a child of this process. ``fds`` maps its descriptors to ours."""
    env = dict(request["env"])
    library = env.pop("LD_PRELOAD", "")
    prepare(library)
    return _clients[os.getpid(), library].start({**request, "env": env}, fds)


def python() -> str:
    """Return the interpreter for scripts that start ``python -m aliquot``. It forwards starts to the fork server."""
    prepare()
    return _clients[os.getpid(), ""].python


# -- the server's side


class _Server:
    """The server that forks for each request until the test process has ended.

    It does as little as possible: pages that it writes after a fork are copied. Each forked process reads its request.
    """

    def __init__(self, interpreter: str) -> None:
        self.libc = ctypes.PyDLL(None, use_errno=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test process decides
        self._interpreter = interpreter
        self._events = select.poll()
        self._answers: dict[int, Callable[[], None]] = {}
        self._previous: list[object] = []
        # runpy looks for the same few modules before each start.
        runpy._get_module_details = functools.cache(runpy._get_module_details)  # type: ignore[attr-defined]

    def watch(self, fd: int, answer: Callable[[], None]) -> None:
        """Call ``answer`` whenever there is something to read."""
        self._events.register(fd, select.POLLIN)
        self._answers[fd] = answer

    def forget(self, fd: int) -> None:
        self._events.unregister(fd)
        del self._answers[fd]

    def serve(self, roles: Mapping[str, Sequence[socket.socket]]) -> NoReturn:
        """Fork for each request of the first role: those of the test arrive by its first socket, launchers connect to
        its second. Requests for another role go to a fork of this server.
        """
        self.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        role, *others = roles
        _import(role, self._interpreter)
        gc.collect()
        gc.freeze()
        channel, listener = roles[role]
        self.watch(channel.fileno(), lambda: self._answer_test(channel))
        self.watch(listener.fileno(), lambda: _Launcher(self, listener.accept()[0]).wait())
        rest = {other: roles[other] for other in others}
        for each in _all(rest):
            self.watch(each.fileno(), lambda: self._leave(rest))
        while True:
            self._answers[self._events.poll()[0][0]]()

    def _leave(self, rest: Mapping[str, Sequence[socket.socket]]) -> None:
        """Leave the other roles to a fork of this server."""
        for each in _all(rest):
            self.forget(each.fileno())
        if _clone(self.libc) == 0:
            self._previous.append(self._answers)  # collected, they would close descriptors of others
            self._events, self._answers = select.poll(), {}
            _close_all_but(0, 1, 2, *(each.fileno() for each in _all(rest)))
            self.serve(rest)
        for each in _all(rest):
            each.close()

    def _answer_test(self, channel: socket.socket) -> None:
        head, fds = _received(channel)
        if not head:
            os._exit(0)
        request = channel.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL)
        pid = _clone(self.libc)
        if pid == 0:
            self.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _become(json.loads(request), fds)
        for fd in fds:
            os.close(fd)
        channel.sendall(_SIZE.pack(pid))


def _all(roles: Mapping[str, Sequence[socket.socket]]) -> list[socket.socket]:
    return [each for sockets in roles.values() for each in sockets]


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    head, rights, _, _ = connection.recvmsg(_SIZE.size, 4096)
    fds = array.array("i")
    for _, _, data in rights:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return head, list(fds)


class _Launcher:
    """A connected launcher: it sends a request, then signals, and gets the status of its program."""

    def __init__(self, server: _Server, connection: socket.socket) -> None:
        self._server = server
        self._connection = connection
        self._fds: list[int] = []
        self._missing = 0
        self._body = b""
        self._program = 0
        self._watched = 0

    def wait(self) -> None:
        """Begin to listen to it."""
        self._server.watch(self._connection.fileno(), self._receive)

    def _receive(self) -> None:
        """Read a part of the request, and fork when it is complete. Requests of others need not wait meanwhile."""
        try:
            if not self._missing:
                head, self._fds = _received(self._connection)
                self._missing = struct.unpack("=i", head)[0]
                return
            chunk = self._connection.recv(self._missing)
        except (OSError, struct.error):
            chunk = b""
        self._body += chunk
        self._missing -= len(chunk)
        if chunk and self._missing:
            return
        self._server.forget(self._connection.fileno())
        if chunk:
            self._start()
        for fd in self._fds:
            os.close(fd)
        if not self._program:
            self._connection.close()

    def _start(self) -> None:
        self._program = os.fork()
        if self._program == 0:
            try:
                self._server.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                self._run()
            finally:
                os._exit(0)
        self._watched = os.pidfd_open(self._program)
        self._server.watch(self._watched, self._report)
        self._server.watch(self._connection.fileno(), self._pass_on)

    def _run(self) -> None:
        """Run the program in the forked process, or refuse."""
        request = _launched(self._connection, self._body, self._fds)
        if request is None:
            self._connection.sendall(struct.pack("=i", -1))
        else:
            _become(request, self._fds)

    def _pass_on(self) -> None:
        """Forward signals, which arrive one byte each. The end of the launcher is a signal too."""
        try:
            numbers = self._connection.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._server.forget(self._connection.fileno())
            self._connection.close()
        for number in numbers or [signal.SIGKILL]:
            os.kill(self._program, number)

    def _report(self) -> None:
        """Report the status after the program has ended."""
        _, status = os.waitpid(self._program, 0)
        self._server.forget(self._watched)
        os.close(self._watched)
        if self._connection.fileno() >= 0:
            self._server.forget(self._connection.fileno())
            with contextlib.suppress(OSError), self._connection:  # the launcher may have been refused, or killed
                self._connection.sendall(struct.pack("=i", status))


def _launched(connection: socket.socket, body: bytes, fds: list[int]) -> dict[str, Any] | None:
    """Return the request of a launcher. Return None if a fork would differ from a start: it runs elsewhere, or as
    another user.
    """
    (words,) = struct.unpack_from("=i", body)
    folder, *rest = body[4:].split(b"\0")[:-1]
    texts = [os.fsdecode(each) for each in rest]
    env = dict(each.split("=", 1) for each in texts[words:] if "=" in each)
    pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    request = {"module": texts[0], "words": texts[1:words], "env": env, "cwd": os.fsdecode(folder), "fds": [0, 1, 2]}
    request["limits"] = {limit: resource.prlimit(pid, limit) for limit in _LIMITS}
    if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
        request["mounts_of"] = pid
    same = len(fds) == 3 and _surroundings(pid) == _surroundings(os.getpid())
    same = same and forkable([sys.executable, "-m", *texts[:words]], env)
    same = same and texts[1:3] != ["slurm", "helper"]  # which searches the processes above it for slurmd
    return request if same else None


def _surroundings(pid: int) -> tuple[str, ...]:
    links = [os.readlink(f"/proc/{pid}/ns/{each}") for each in ("pid", "net", "user")]
    links.append(os.readlink(f"/proc/{pid}/root"))
    status = Path(f"/proc/{pid}/status").read_text()
    return (*links, *_OF_A_STATUS.findall(status), Path(f"/proc/{pid}/cgroup").read_text())


def _clone(libc: Any) -> int:
    """Fork as ``os.fork`` does, but as a child of the server's parent."""
    address = ctypes.c_void_p()
    libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address))
    flags = _CLONE_PARENT | signal.SIGCHLD
    if address.value:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    x86 = os.uname().machine == "x86_64"
    last = (address, ctypes.c_void_p()) if x86 else (ctypes.c_void_p(), address)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = libc.syscall(
        _SYS_CLONE[os.uname().machine], ctypes.c_ulong(flags), ctypes.c_void_p(), ctypes.c_void_p(), *last
    )
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return int(pid)


def _become(request: Mapping[str, Any], fds: list[int]) -> NoReturn:
    code = 70
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _settle(request, fds)
        _main(request["module"], request["words"])
        code = 0
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - the interpreter prints it and exits with 1
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                continue
        os._exit(code)


def _launch_here(base: str, ready: int, log: str) -> int:
    """Run ``launch`` in a forked process that has imported all of Aliquot."""
    pid = os.fork()
    if pid == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        request = {
            "module": _SERVER,
            "words": [base, "3"],
            "env": dict(os.environ),
            "cwd": os.getcwd(),
            "session": True,
        }
        _become({**request, "fds": [0, 1, 2, 3]}, [os.open(os.devnull, os.O_RDONLY), out, out, ready])
    return pid


def _main(module: str, words: list[str]) -> None:
    sys.argv = [module, *words]
    with _imported_already():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


@contextlib.contextmanager
def _imported_already() -> Iterator[None]:
    """Prevent a warning of ``runpy`` about the module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


_server_streams: list[Any] = []


def _settle(request: Mapping[str, Any], fds: list[int]) -> None:
    """Take over what a started interpreter has: descriptors, session, directory, environment, streams."""
    # Above all requested numbers, so that none is overwritten before it has moved.
    moved = {target: os.dup(fd) if fd > 64 else _up(fd) for target, fd in zip(request["fds"], fds, strict=True)}
    for target, fd in moved.items():
        os.dup2(fd, target)
    _close_all_but(*moved)
    for limit, values in request.get("limits", {}).items():
        resource.prlimit(0, limit, values)
    if request.get("session"):
        os.setsid()
    if request.get("mounts_of"):
        _enter_mounts(request["mounts_of"])
    os.chdir(request["cwd"])
    _take_environment(request["env"])
    time.tzset()
    _server_streams.extend((sys.stdin, sys.stdout, sys.stderr))  # collected, they would close the descriptors
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding=sys.stdin.encoding, errors=sys.stdin.errors)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        previous = getattr(sys, name)
        raw = open(fd, "wb", 0, closefd=False)
        stream = io.TextIOWrapper(
            raw if unbuffered else io.BufferedWriter(raw),
            encoding=previous.encoding,
            errors=previous.errors,
            line_buffering=fd == 2 or raw.isatty(),
            write_through=unbuffered,
        )
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _close_all_but(*kept: int) -> None:
    low = 0
    for each in [*sorted(kept), 1 << 20]:
        if low < each:  # closerange(0, 0) closes all
            os.closerange(low, each)
        low = each + 1


def _take_environment(env: Mapping[str, str]) -> None:
    """Set the environment. Most of it equals the server's: write only the differences."""
    before = dict(os.environ)
    for name in set(before).difference(env):
        del os.environ[name]
    for name, value in env.items():
        if before.get(name) != value:
            os.environ[name] = value


def _enter_mounts(pid: int) -> None:
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


def _up(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD, 65)


def _import(role: str, interpreter: str) -> None:
    """Import what the forks of a server need, and fork the starts of these in turn."""
    from aliquot.sim.tools import api as tools

    _import_all(_TOOLS if role == "tools" else "aliquot", large=role == "full")
    if role == "lean":
        from aliquot.hardware.nvml import binding as nvml_binding

        # NVML's binding: its import costs as much as all else that a short command does. A forked process copies it
        # for each library, as everywhere.
        with contextlib.suppress(ImportError):
            nvml_binding.private_copy()
    if role == "full":
        # What the HTTP client imports with its first connection (55 ms of each agent), and Ansible's modules (80 ms).
        for name in ("httpcore2", "anyio._backends._asyncio", "system.slurm.module"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    tools.interpreter = sys.executable = interpreter
    control.launch = _launch_here
    _find_started()
    argparse.ArgumentParser()  # compiles what every parser does
    assert threading.active_count() == 1, threading.enumerate()


def _import_all(package: str, *, large: bool) -> None:
    """Import a package with its modules. Those of extras that are not installed are left out, and so is libvirt's
    binding: one verb needs it, and each fork would copy the tables of its memory.
    """
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if found.name.endswith(("__main__", "libvirt.binding")) or (not large and _PACKAGES.match(found.name)):
            continue
        with contextlib.suppress(ImportError):
            if found.ispkg:
                _import_all(found.name, large=large)
            else:
                importlib.import_module(found.name)


def _find_started() -> None:
    """Look up now what tests start often."""
    with _imported_already():
        for module in _STARTED:
            if module in sys.modules:
                runpy._get_module_details(module)  # type: ignore[attr-defined]


if __name__ == "__main__":
    _sockets = [socket.socket(fileno=int(each)) for each in sys.argv[2:]]
    _Server(sys.argv[1]).serve({_role: _sockets[2 * n : 2 * n + 2] for n, _role in enumerate(_ROLES)})
