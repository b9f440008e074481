"""Debian's Slurm on two hosts made of namespaces: slurmctld, munged and a slurmd on node1, a slurmd on node2.

    with Slurm(folder) as slurm:
        slurm.run("srun", "--nodes", "2", "hostname")

Everything lies in one folder; `student` is an account that only the hosts know. When the hosts are switched off, every
daemon and every job ends with them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.deploy import hosts as hosts_module
from tests.deploy.hosts import Host, Hosts

STUDENT, STUDENT_ID = "ada", 61001
CPUS = 4
CONFIG = """
ClusterName=course
SlurmctldHost=node1({net}.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
SlurmctldTimeout=60
SlurmdTimeout=60
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=node1 NodeAddr={net}.1 CPUs={cpus} RealMemory={memory}
NodeName=node2 NodeAddr={net}.2 CPUs={cpus} RealMemory={memory}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """One sentence on what this machine lacks for Slurm on two hosts; empty when it lacks nothing."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    lacking = [name for name in ("slurmctld", "slurmd", "srun", "munged") if not shutil.which(name, path=path)]
    if lacking:
        return f"{lacking[0]} is missing: apt-get install slurm-wlm munge"
    return hosts_module.missing()


class Slurm:
    """A cluster of two nodes; `one` is also the login node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        self.hosts = Hosts(folder, self.accounts())
        self.env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self.env["PATH"] += ":/usr/sbin:/sbin"

    def accounts(self) -> dict[str, Path]:
        """/etc/passwd and /etc/group of the hosts: this machine's, and a student's account."""
        (self.folder / "home").mkdir()
        home = self.folder / "home" / STUDENT
        home.mkdir()
        os.chown(home, STUDENT_ID, STUDENT_ID)
        ids = f"{STUDENT}:x:{STUDENT_ID}:"
        lines = {"passwd": f"{ids}{STUDENT_ID}::{home}:/bin/bash", "group": ids}
        for name, line in lines.items():
            (self.folder / name).write_text(Path("/etc", name).read_text() + line + "\n")
        return {f"/etc/{name}": self.folder / name for name in lines}

    def __enter__(self) -> Slurm:
        (self.folder / "state").mkdir()
        text = CONFIG.format(folder=self.folder, net=hosts_module.NET, cpus=CPUS, memory=8000)
        (self.folder / "slurm.conf").write_text(text)
        self.one, self.two = self.hosts.__enter__()
        try:
            self.munge()
            self.daemon(self.one, "slurmctld", "-D")
            for host in (self.one, self.two):
                self.daemon(host, "slurmd", "-D")
            self.until(lambda: self.one.run(["sinfo", "-h", "-o", "%T"], env=self.env).stdout.split() == ["idle"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.hosts.__exit__()

    def munge(self) -> None:
        """One munged for both: its socket is a file, which both see."""
        key = self.folder / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(secrets.token_bytes(128))
        names = {"socket": "munge", "key-file": "munge.key", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        names["log-file"] = "munged.log"
        options = [f"--{option}={self.folder / name}" for option, name in names.items()]
        self.daemon(self.one, "munged", "--foreground", "--force", *options)
        self.until(lambda: (self.folder / "munge").exists())

    def daemon(self, host: Host, *command: str) -> None:
        """Start a daemon; what it says is kept beside its log."""
        with (self.folder / f"{command[0]}-{host.name}.said").open("w") as said:
            host.start(list(command), env=self.env, stdout=said, stdin=subprocess.DEVNULL)

    def until(self, what: Any, limit: float = 60) -> None:
        """Wait until something holds; RuntimeError with the daemons' last words where it does not."""
        until = time.monotonic() + limit
        while not what():
            if time.monotonic() > until:
                raise RuntimeError(f"Slurm did not come up within {limit:g} s:\n{self.last_words()}")
            time.sleep(0.2)

    def last_words(self) -> str:
        """The ends of what all daemons wrote."""
        files = sorted([*self.folder.glob("*.said"), *self.folder.glob("*.log")])
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in files)

    def run(self, *command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's on the login node."""
        return self.one.run(list(command), **{"env": self.env, "timeout": 120, **options})

    def jobs(self) -> list[str]:
        """The states of all jobs that are not over: "RUNNING", "COMPLETING", ..."""
        return self.run("squeue", "-h", "-o", "%T", check=True).stdout.split()
