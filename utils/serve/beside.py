"""A server in a process of its own, beside a notebook or a test, that ends with its `with` block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READY = re.compile(r"Serving on (http://\S+)")


class Server:
    """`python -m utils.serve` on a free port: `url` is what a client needs. RuntimeError where it does not start.

    >>> with Server(ranks=3) as server:                # doctest: +SKIP
    ...     print(server.url)
    http://127.0.0.1:40213/v1
    """

    def __init__(self, ranks: int = 1, *arguments: str, limit: float = 180.0) -> None:
        self.command = [sys.executable, "-m", "utils.serve", "--ranks", str(ranks), "--port", "0", *arguments]
        self.limit, self.url = limit, ""

    def __enter__(self) -> Server:
        self._said, self._errors = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(self.command, stdout=self._said, stderr=self._errors, cwd=root)
        until = time.monotonic() + self.limit
        while not (found := READY.search(self._read(self._said))):
            if self.process.poll() is not None or time.monotonic() > until:
                self.close()
                raise RuntimeError(f"the server did not start: {self.errors.strip() or 'it took too long'}")
            time.sleep(0.05)
        self.url = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def errors(self) -> str:
        """What the server has said on stderr: the report, where its ranks died."""
        return self._read(self._errors)

    def close(self, limit: float = 20.0) -> int:
        """Stop it, as Ctrl-C would; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    @staticmethod
    def _read(file) -> str:
        return os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace")  # the place in it is the server's
