"""A PostgreSQL server for tests: Debian's, in a folder of its own, run by an unprivileged user, gone afterwards."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SECONDS = 60


def needed() -> str:
    """What is missing for these tests, and how to get it; "" where nothing is."""
    if not BINARIES:
        return "PostgreSQL is not installed: apt install postgresql"
    if not shutil.which("setpriv"):
        return "setpriv is not installed: apt install util-linux"
    if not find_spec("psycopg"):
        return "psycopg is not installed: pip install -r deploy/requirements-postgresql.lock"
    return ""


def _nobody(*more: str) -> list[str]:
    """Words before a command that run it as a user without rights; PostgreSQL refuses root."""
    who = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
    return ["setpriv", *who, *more, "--"] if who or more else []


class Server:
    """A server on a Unix socket and on a port of loopback; over the port it asks for a password.

    Use as a context manager. `user` owns its databases; `passfile` lets one in.
    """

    user = "grader"

    def __init__(self) -> None:
        if missing := needed():
            pytest.skip(missing)
        self.root = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # short: a socket's path has 107 letters
        self.root.chmod(0o755)
        self.password = secrets.token_urlsafe(12)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.passfile = self.root / "pgpass"
        self._write(self.passfile, f"127.0.0.1:{self.port}:*:{self.user}:{self.password}\n")
        self.databases = 0
        self.process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _write(path: Path, text: str) -> None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)

    @property
    def _env(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PGPASSFILE": str(self.passfile)}

    def _run(self, *words: str | Path) -> None:
        command = [*_nobody(), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=self._env, cwd=self.root)
        assert done.returncode == 0, f"{words[0]}: {done.stdout}{done.stderr}"

    def __enter__(self) -> Server:
        try:
            first = self.root / "first"
            self._write(first, self.password)
            if os.getuid() == 0:
                nobody = pwd.getpwnam("nobody")
                for path in (self.root, first):
                    os.chown(path, nobody.pw_uid, nobody.pw_gid)
            self._run(BINARIES[-1] / "initdb", "-D", self.root / "data", "-U", self.user, "-A", "scram-sha-256",
                      f"--pwfile={first}", "--no-sync", "-E", "UTF8")  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [BINARIES[-1] / "postgres", "-D", self.root / "data", "-p", self.port, "-k", self.root,
                   "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]  # fmt: skip
        with (self.root / "log").open("a") as log:
            # it ends with this process, however that ends
            words = [*_nobody("--pdeathsig", "INT"), *map(str, command)]
            self.process = subprocess.Popen(words, env=self._env, cwd=self.root, stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        ready = [BINARIES[-1] / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, timeout=SECONDS).returncode:
            said = (self.root / "log").read_text()[-2000:]
            assert self.process.poll() is None and time.monotonic() < end, f"PostgreSQL did not start: {said}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it as an admin does in a hurry: connections are cut."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(SECONDS)

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def database(self) -> str:
        """The address of a new, empty database: without the password, which is in `passfile`."""
        self.databases += 1
        name, place = f"class{self.databases}", f"postgresql+psycopg://{self.user}@127.0.0.1:{self.port}"
        allowed = {"passfile": str(self.passfile)}
        engine = create_engine(
            f"{place}/postgres", connect_args=allowed, poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(text(f"create database {name}"))
        return f"{place}/{name}"
