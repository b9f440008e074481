"""An answering process that connects over a Unix socket, for sandboxes that pass no descriptors on."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

from autograder.scratch import scratch

from .base import Ended

NAME = "answers.sock"


class Meeting:
    """A socket in a folder of its own, for one process to connect to. `folder` is gone once `accept` is through."""

    def __init__(self) -> None:
        self._folder = scratch("sandbox")
        self.folder = Path(self._folder.name)
        self.path = self.folder / NAME
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.folder.chmod(0o711)
        self.path.chmod(0o666)  # the process may be another user
        self._listener.listen(1)

    def accept(self, limit: float, gone: Callable[[], str]) -> tuple[socket.socket, int, int]:
        """The socket, and the reading ends of the process's stdout and stderr.

        `gone()` is asked from time to time whether it is still worth waiting. Raises Ended.
        """
        self._listener.settimeout(0.2)
        left = limit
        while True:
            try:
                sock, _ = self._listener.accept()
                break
            except TimeoutError:
                left -= 0.2
            reason = gone() or ("" if left > 0 else f"it did not connect within {limit:.0f} s")
            if reason:
                self.close()
                raise Ended(f"the answering process did not start: {reason}")
        out, err = os.pipe(), os.pipe()
        sock.settimeout(None)
        socket.send_fds(sock, [b"s"], [out[1], err[1]])
        os.close(out[1])
        os.close(err[1])
        self.close()
        return sock, out[0], err[0]

    def close(self) -> None:
        self._listener.close()
        self._folder.cleanup()
