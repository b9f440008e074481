"""A class on a running hub, for tests: its folder, its passwords, ports that were free, and its end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import yaml

from autograder.course import REPO
from autograder.hub.layout import Layout

PEOPLE = [
    {"name": "ada", "role": "student", "first": "Ada", "last": "Lovelace", "email": "ada@example.org"},
    {"name": "bo", "role": "student", "first": "Bo", "last": "Berg", "email": "bo@example.org"},
    {"name": "grace", "role": "instructor", "first": "Grace", "last": "Hopper"},
]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def hub_command(*words: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `python -m autograder hub ...` as an admin would."""
    argv = [sys.executable, "-m", "autograder", "hub", *map(str, words)]
    return subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=timeout)


class RunningClass:
    """A class's folder that other users can reach (pytest's own are closed to them), and its hub.

    users: "auto" or "one". Use as a context manager: the hub runs inside, and nothing of it is left after.
    """

    def __init__(self, users: str = "auto", labs: tuple[str, ...] = ("lab01",)) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="hub-test-", dir="/tmp"))
        self.root.chmod(0o755)
        names = ("public", "hub", "proxy", "grader")
        spec = {
            "course": "llm", "labs": list(labs), "people": PEOPLE, "users": users,
            "address": dict(zip(names, free_ports(4), strict=True)), "limits": {"servers": 10},
        }  # fmt: skip
        (self.root / "class.yaml").write_text(yaml.safe_dump(spec))
        self.layout = Layout(self.root / "class")
        self.passwords: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None

    def make(self) -> None:
        made = hub_command("init", self.root / "class.yaml", "--into", self.layout.folder)
        assert made.returncode == 0, made.stdout + made.stderr
        self.passwords |= dict(re.findall(r"^ {4}(\w+) +([a-z0-9-]{14})$", made.stdout, re.MULTILINE))

    def start(self) -> None:
        argv = [sys.executable, "-m", "autograder", "hub", "run", str(self.layout.folder)]
        self.process = subprocess.Popen(
            argv, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
        )
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("It runs at"):
                return
        raise AssertionError(f"the hub did not start: {''.join(said)}")

    def stop(self) -> str:
        """Stop as Ctrl-C does; what was said."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=120)
        return said

    def __enter__(self) -> RunningClass:
        try:
            self.make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def url(self) -> str:
        return self.layout.spec.address.url


def living(*words: object) -> dict[int, str]:
    """Command lines, by number, of living processes that have all these words in them or in their environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            known = command + (entry / "environ").read_bytes()
        except OSError:
            continue
        if all(str(word).encode() in known for word in words):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def processes_of(folder: Path) -> list[str]:
    """Command lines of other living processes that name a folder, or have it in their environment."""
    return [command for pid, command in living(folder).items() if pid != os.getpid()]


def wait_for(what: str, told: object, limit_s: float = 60.0) -> None:
    """Wait until a callable says true."""
    until = time.monotonic() + limit_s
    while not told():
        assert time.monotonic() < until, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.2)


class Visitor:
    """Somebody with a jar of cookies and no scripts: enough to log in and to knock at pages."""

    def __init__(self, url: str) -> None:
        self.url, self.cookies = url, CookieJar()
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies))
        self.opener = urllib.request.build_opener(*handlers)

    def log_in(self, name: str, password: str) -> bool:
        """Log in as a form would; whether the hub let them."""
        self.knock("hub/login")
        guard = next(one.value for one in self.cookies if one.name == "_xsrf")
        form = {"username": name, "password": password, "_xsrf": guard}
        self.knock("hub/login?next=/hub/home", urllib.parse.urlencode(form).encode())
        return self.inside()

    def inside(self) -> bool:
        """Whether the hub takes them for somebody."""
        return self.knock("hub/home") == (200, "hub/home")

    def knock(self, path: str, form: bytes | None = None) -> tuple[int, str]:
        """Open a page: the status, and the path that redirects led to."""
        try:
            with self.opener.open(self.url + path, form, timeout=60) as reply:
                return reply.status, reply.geturl().removeprefix(self.url)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.geturl().removeprefix(self.url)
