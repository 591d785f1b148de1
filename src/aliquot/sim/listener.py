"""The server's sockets, which may have long paths and share one thread, and the end of a call log."""

from __future__ import annotations

import os
import re
import selectors
import socket
import threading
from collections.abc import Callable


def bind(directory: str, name: str) -> socket.socket:
    """Return a listening socket. The path goes through /proc, because a socket path is limited to 107 bytes."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        path = f"/proc/self/fd/{folder}/{name}"
        if os.path.lexists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(128)
        return listener
    finally:
        os.close(folder)


def last_sequence_number(path: str) -> int:
    """Return the number of the last record in a call log. A torn last line is truncated."""
    try:
        with open(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), "rb+") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - 4096))
            tail = log.read()
            whole = tail.rfind(b"\n") + 1
            if whole != len(tail):
                log.truncate(size - len(tail) + whole)
            last = re.findall(rb'"seq":(\d+)', tail[:whole])
            return int(last[-1]) if last else 0
    except FileNotFoundError:
        return 0


def hung_up(connection: socket.socket) -> bool:
    """Return whether the other side is gone. Data that it has sent stays readable."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_for_append(path: str) -> int:
    """Open a call log for appending and create it if necessary. A symbolic link is not followed."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)


class Acceptor:
    """Accepts connections on any number of sockets. Each connection is served in its own thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake, self._wake_receiver = socket.socketpair()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        threading.Thread(target=self._run, daemon=True).start()

    def register(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        """Pass every connection on ``listener`` to ``serve``, which closes it."""
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, serve)

    def unregister(self, listener: socket.socket) -> None:
        try:
            self._selector.unregister(listener)
        except (KeyError, ValueError):
            return  # it was never registered, or it is closed already

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._admit(key.fileobj, key.data)  # type: ignore[arg-type]

    def _admit(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client, or the node, is already gone
        connection.setblocking(True)
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
