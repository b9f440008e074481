"""Machines made of namespaces: each has a network card, a host name, an /etc/hosts and processes of its own.

    with Hosts(folder, 2) as (one, two):
        one.run(["ping", "-c1", "node2"])

A host is a process that holds namespaces (network, names, mounts, processes); a pair of virtual cards (veth) of
iproute2 joins two of them. When that process ends, everything on the host ends with it, and its card vanishes: that is
how a host is switched off, and why nothing is left when a test is killed. The name of the very host is 127.0.1.1, as
Debian writes it into /etc/hosts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

NET = "10.213.7"
NEEDS = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "ip": "iproute2"}


def missing() -> str:
    """One sentence on what this machine lacks for hosts; empty when it lacks nothing."""
    lacking = sorted({package for program, package in NEEDS.items() if not shutil.which(program)})
    if lacking:
        return f"hosts are made with {' and '.join(lacking)}: apt-get install {' '.join(lacking)}"
    if os.geteuid() != 0:
        return "hosts are network namespaces, which root makes: run this as root"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "this kernel, or container, refuses namespaces even to root" if tried.returncode else ""


class Host:
    """One machine: `run` and `start` do things on it, `off` switches it off."""

    def __init__(
        self, name: str, address: str, card: str, names: dict[str, str], folder: Path, binds: dict[str, Path]
    ) -> None:
        self.name, self.address, self.card = name, address, card
        table = folder / f"hosts-{name}"
        lines = [f"{other} {at}" for at, other in names.items() if at != name]
        table.write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {name}", *lines]) + "\n")
        mounts = "".join(f"mount --bind {own} {at} && " for at, own in {"/etc/hosts": table, **binds}.items())
        script = f"{mounts} hostname {name} && ip link set lo up && echo up && exec sleep infinity"
        flags = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *flags, "sh", "-c", script]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout is not None
        said = self.holder.stdout.readline()
        if said != "up\n":
            self.off()
            raise RuntimeError(f"{name} did not come up: {said!r}")
        self.init = psutil.Process(self.holder.pid).children()[0].pid

    def command(self, command: list[Any]) -> list[str]:
        """A command that does `command` on this host, in the folder where it is started."""
        enter = ["nsenter", "-t", str(self.init), "-n", "-u", "-m", "-p", f"--wdns={os.getcwd()}", "--"]
        return [*enter, *map(str, command)]

    def run(self, command: list[Any], **options: Any) -> subprocess.CompletedProcess[str]:
        """Do something here and wait for it; `timeout` is 60 s unless told."""
        given = {"capture_output": True, "text": True, "timeout": 60, **options}
        return subprocess.run(self.command(command), **given)

    def start(self, command: list[Any], **options: Any) -> subprocess.Popen[str]:
        """Start something here; it ends at the latest when the host does."""
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        return subprocess.Popen(self.command(command), **given)

    def sent_bytes(self) -> int:
        """What left through the card since the host came up, by the kernel's count."""
        for line in Path(f"/proc/{self.init}/net/dev").read_text().splitlines():
            card, _, counts = line.partition(":")
            if card.strip() == self.card:
                return int(counts.split()[8])
        raise AssertionError(f"{self.name} has no card {self.card}")

    def pull_the_plug(self) -> None:
        """Take the card down: partners hear nothing more, not even that a connection closed."""
        self.run(["ip", "link", "set", self.card, "down"], check=True)

    def off(self) -> None:
        """Switch the host off, with all that runs on it."""
        here = [p for p in psutil.process_iter() if _in_host(p.pid, getattr(self, "init", 0))]
        self.holder.kill()
        self.holder.wait()
        if self.holder.stdout:
            self.holder.stdout.close()
        left = psutil.wait_procs(here, timeout=30)[1]
        assert not left, f"{self.name} left {left}"


def _in_host(pid: int, init: int) -> bool:
    try:
        return bool(init) and os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{init}/ns/pid")
    except OSError:
        return False


class Hosts:
    """Two hosts, node1 and node2, joined by a pair of cards: net1 and net2. `binds`: files of /etc of their own."""

    def __init__(self, folder: Path, binds: dict[str, Path] | None = None) -> None:
        self.folder, self.binds = folder, binds or {}
        self.hosts: list[Host] = []

    def __enter__(self) -> tuple[Host, Host]:
        names = {f"node{i}": f"{NET}.{i}" for i in (1, 2)}
        try:
            for i, (name, address) in enumerate(names.items(), 1):
                self.hosts.append(Host(name, address, f"net{i}", names, self.folder, self.binds))
            one, two = self.hosts
            ends = [word for host in self.hosts for word in ("name", host.card, "netns", str(host.init))]
            subprocess.run(["ip", "link", "add", *ends[:4], "type", "veth", "peer", *ends[4:]], check=True, timeout=30)
            for host in self.hosts:
                host.run(["ip", "address", "add", f"{host.address}/24", "dev", host.card], check=True)
                host.run(["ip", "link", "set", host.card, "up"], check=True)
            until_answered(one, two)
        except BaseException:
            self.__exit__()
            raise
        return one, two

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            if host.holder.poll() is None:
                host.off()


def until_answered(one: Host, two: Host, limit: float = 10) -> None:
    """Wait until the cards carry something, which takes a moment after they came up."""
    ask = ["python3", "-c", f"import socket; socket.create_connection(('{two.address}', 9), 1)"]
    until = time.monotonic() + limit
    while "refused" not in (said := one.run(ask).stderr):  # somebody is there, and listens at no port 9
        if time.monotonic() > until:
            raise RuntimeError(f"{one.name} does not reach {two.name}: {said[-200:]}")
