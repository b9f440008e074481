"""Debian's Slurm on two hosts: labs under srun, a student's server as a job, a class graded by workers in a job."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.deploy import on_hosts, slurm_here
from tests.deploy.slurm_here import STUDENT, Slurm
from utils import launch
from utils.trace.saved import load as load_trace

REPO = Path(__file__).resolve().parents[2]
LAB01 = REPO / "solutions" / "lab01_allreduce" / "lab01_allreduce.ipynb"
HUB = REPO / ".venv-hub"
TOY = "lab90_toy"
BUSY_S = 600  # what takes 20 s may take many times that on a machine that others use

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(slurm_here.missing()), reason=slurm_here.missing() or "-"),
    pytest.mark.timeout(2 * BUSY_S),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """The cluster, in a folder with a short name: sockets' paths are limited to 107 characters."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, Slurm(Path(folder)) as made:
        yield made


def until(what: Callable[[], Any], limit: float, why: Callable[[], str]) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + limit
    while not (found := what()):
        assert time.monotonic() < end, why()
        time.sleep(0.5)
    return found


# -- labs under srun -----------------------------------------------------------------------------------------------
def test_a_lab_under_srun_on_two_nodes_is_the_same_as_on_one_machine(slurm: Slurm, tmp_path: Path) -> None:
    target = f"{LAB01}:probe_ring_sum([(12, float32, 0, 0), (7, float64, 9, 2**40), (50000, int64, 1, 0)])"
    out, trace = tmp_path / "values.json", tmp_path / "trace.json"
    entry = [sys.executable, "-m", "utils.torchrun_entry", target, "--out", out, "--trace", trace]
    done = slurm.run("srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", *entry, timeout=BUSY_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    alone = launch(on_hosts.here, target, ranks=4, timeout=300, show=False)
    assert json.loads(out.read_text()) == alone.values
    there = load_trace(trace)
    for rank in range(4):
        assert on_hosts.said_by(there, rank) == on_hosts.said_by(alone.trace, rank)
    assert there.events


def test_a_rank_that_fails_under_srun_ends_the_job_with_its_line(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(
        "import torch, torch.distributed as dist\n\ndef step():\n    if dist.get_rank() == 1:\n"
        "        raise ValueError('no such layer')\n    dist.recv(torch.zeros(1), 1)\n"
    )
    entry = [sys.executable, "-m", "utils.torchrun_entry", f"{tmp_path}/step.py:step"]
    done = slurm.run("srun", "--nodes=2", "--ntasks=2", *entry, timeout=BUSY_S)
    assert done.returncode != 0
    assert "rank 1 on node2 raised ValueError, line 5 of step.py" in done.stderr
    assert "rank 0 on node1 lost rank 1 on node2 in recv #1" in done.stderr
    until(lambda: not slurm.jobs(), 20, lambda: f"jobs are left: {slurm.jobs()}")


# -- a student's server as a job -----------------------------------------------------------------------------------
def hub_needs() -> str:
    if not (HUB / ".installed").is_file():
        return "the hub's environment .venv-hub is missing: make test-hub makes it"
    return "" if shutil.which("runuser", path=os.environ["PATH"] + ":/usr/sbin:/sbin") else "apt-get install util-linux"


HUB_CONFIG = """
import os
load_subconfig({fragment!r})
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.pid_file = "{folder}/hub.pid"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {{{student!r}}}
c.JupyterHub.services = [{{"name": "test", "api_token": os.environ["ASK_TOKEN"]}}]
c.JupyterHub.load_roles = [{{"name": "testing", "scopes": ["admin:users", "admin:servers", "access:servers"],
                            "services": ["test"]}}]
c.CourseSlurmSpawner.exec_prefix = "runuser -u {{username}} --"
c.CourseSlurmSpawner.req_options = "--nodelist=node2"
c.CourseSlurmSpawner.req_memory = "1G"
"""


class RunningHub:
    """A hub on node1 whose servers are jobs."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm, self.folder = slurm, slurm.folder / "hub"
        self.folder.mkdir()
        config = self.folder / "config.py"
        fragment = str(REPO / "deploy" / "slurm" / "jupyterhub_config.py")
        proxy = str(HUB / "node" / "node_modules" / ".bin" / "configurable-http-proxy")
        config.write_text(HUB_CONFIG.format(fragment=fragment, folder=self.folder, proxy=proxy, student=STUDENT))
        self.env = {**slurm.env, "ASK_TOKEN": secrets.token_hex(16)}
        self.env["CONFIGPROXY_AUTH_TOKEN"] = secrets.token_hex(16)
        self.env["PATH"] = f"{HUB / 'bin'}:{self.env['PATH']}"
        self.log = self.folder / "hub.log"
        with self.log.open("w") as log:
            command = [HUB / "bin" / "python", "-m", "jupyterhub", "-f", config]
            self.process = slurm.one.start(command, env=self.env, stdout=log, cwd=str(self.folder))

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        """A request from node1."""
        command = [HUB / "bin" / "python", Path(__file__).with_name("ask_hub.py"), method]
        done = self.slurm.one.run([*command, f"http://127.0.0.1:8000{path}", body], env=self.env)
        assert done.returncode == 0, done.stderr
        status, text = json.loads(done.stdout)
        return status, text

    def stop(self) -> None:
        """End the hub as a service manager would, and its proxy with it."""
        self.slurm.one.run(["kill", (self.folder / "hub.pid").read_text().strip()], check=True)
        self.process.wait(60)

    def words(self) -> str:
        logs = [*(self.slurm.folder / "home" / STUDENT).glob(".course-server.log"), self.log]
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs)


@pytest.mark.skipif(bool(hub_needs()), reason=hub_needs() or "-")
def test_a_students_server_is_a_job_that_answers_and_stops(slurm: Slurm) -> None:
    hub = RunningHub(slurm)
    until(lambda: hub.ask("GET", "/hub/api/")[0] == 200, 180, hub.words)
    # who starts a server does not choose what it may take
    greedy = json.dumps({"runtime": "99-00:00:00", "memory": "900G", "options": "--nodelist=none"})
    assert hub.ask("POST", f"/hub/api/users/{STUDENT}/server", greedy)[0] in (201, 202), hub.words()
    answered = until(lambda: _status(hub), 240, hub.words)
    assert "started" in answered

    shown = slurm.run("squeue", "-h", "-o", "%u %T %N %l %m %j", check=True).stdout.split("\n")[0]
    assert shown == f"{STUDENT} RUNNING node2 8:00:00 1G course-{STUDENT}"
    job = slurm.run("scontrol", "show", "job", check=True).stdout
    assert hub.env["ASK_TOKEN"] not in job and "JUPYTERHUB_API_TOKEN=" not in job
    assert [user for user, _ in servers_on(slurm)] == [STUDENT]

    assert hub.ask("DELETE", f"/hub/api/users/{STUDENT}/server")[0] in (202, 204)
    until(lambda: not slurm.jobs(), 60, lambda: f"the job is left: {slurm.jobs()}\n{hub.words()}")
    until(lambda: not servers_on(slurm), 30, hub.words)
    assert json.loads(hub.ask("GET", f"/hub/api/users/{STUDENT}")[1])["servers"] == {}
    hub.stop()


def servers_on(slurm: Slurm) -> list[list[str]]:
    """User and command of the students' servers on node2."""
    lines = slurm.two.run(["ps", "-ww", "-eo", "user:20,args"], check=True).stdout.splitlines()
    return [line.split(None, 1) for line in lines if "batchspawner.singleuser" in line and "srun" not in line]


def _status(hub: RunningHub) -> str:
    """The student's server, asked through the proxy; empty while it does not answer."""
    known = json.loads(hub.ask("GET", f"/hub/api/users/{STUDENT}")[1])
    assert known["server"] or known["pending"], hub.words()
    status, text = hub.ask("GET", f"/user/{STUDENT}/api/status")
    return text if status == 200 else ""


# -- a class graded by a job ---------------------------------------------------------------------------------------
ANSWERS = {
    "right": {},
    "wrong": {"pass_on": "def pass_on(x):\n    return x", "answer_steps": "def answer_steps(p):\n    return 5"},
    "waits": {"pass_on": "def pass_on(x):\n    dist.recv(x, 1 - dist.get_rank())\n    return x"},
}


STRANGER = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)) as line:
    line.settimeout(20)
    print(line.recv(1))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course of one small lab, as staff would have it, and a class of three."""
    folder = tmp_path_factory.mktemp("checkout")
    for package in ("autograder", "utils", "deploy"):
        shutil.copytree(REPO / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPO / "tests" / "toy_lab" / "solutions", folder / "solutions")
    (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    done = _autograder(folder, "here", "release", TOY)
    assert done.returncode == 0, done.stderr
    released = nbformat.read(folder / "labs" / TOY / f"{TOY}.ipynb", as_version=4)
    reference = {cell.id: cell.source for cell in _instructors(folder).cells}
    for student, cells in ANSWERS.items():
        for cell in released.cells:
            if cell.metadata.get("nbgrader", {}).get("solution"):
                cell.source = cells.get(cell.id, reference[cell.id])
        place = folder / "handed_in" / student
        place.mkdir(parents=True)
        nbformat.write(released, place / f"{TOY}.ipynb")
    return folder


def _instructors(folder: Path) -> Any:
    return nbformat.read(folder / "solutions" / TOY / f"{TOY}.ipynb", as_version=4)


def _autograder(folder: Path, data: str, *words: Any) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COURSE_DATA": str(folder / data)}
    command = [folder / ".venv" / "bin" / "python", "-m", "autograder", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=BUSY_S)


def _marks(file: Path) -> dict[str, Any]:
    """By student: the score, and of each test its points and what was said."""
    submissions = json.loads(file.read_text())["submissions"]
    return {one["student"]: {key: one[key] for key in ("score", "status", "tests", "flags")} for one in submissions}


def test_a_class_graded_by_workers_of_a_job_has_the_same_marks(slurm: Slurm, checkout: Path) -> None:
    handed_in = ["--submissions", checkout / "handed_in"]
    shutil.copytree(checkout / "here", checkout / "there")  # one release
    env = {**slurm.env, "COURSE_DATA": str(checkout / "there")}
    sizes = ["--ntasks=3", "--nodes=2", "--mem-per-cpu=1G", f"--output={checkout}/job.log", f"--chdir={checkout}"]
    words = [TOY, *handed_in, "--json", checkout / "there.json"]
    script = checkout / "deploy" / "slurm" / "grade.sbatch"
    job = slurm.one.start(["sbatch", "--wait", *sizes, script, *words], env=env, stdout=subprocess.DEVNULL)
    notes = until(lambda: list((checkout / "there").glob(".dask-*/scheduler.json")), 240, slurm.last_words)
    host, _, port = json.loads(notes[0].read_text())["address"].removeprefix("tls://").rpartition(":")
    stranger = slurm.two.run([sys.executable, "-c", STRANGER, host, port])
    assert "CERTIFICATE_REQUIRED" in stranger.stderr, stranger.stdout + stranger.stderr
    code = job.wait(BUSY_S)
    log = (checkout / "job.log").read_text()
    assert code == 0, log[-4000:]
    assert "is run here" not in log, log[-4000:]  # the grader's words when a worker did not manage
    assert log.count("Registered to:") >= 2 and "tls://" in log, log[-4000:]
    assert not list((checkout / "there").glob(".dask-*"))

    alone = _autograder(checkout, "here", "grade", TOY, *handed_in, "--json", checkout / "here.json")
    assert alone.returncode == 0, alone.stderr
    marks = _marks(checkout / "there.json")
    assert marks == _marks(checkout / "here.json")
    assert {student: one["score"] for student, one in marks.items()} == {"right": 20, "wrong": 9, "waits": 10}
    until(lambda: not slurm.jobs(), 30, lambda: f"jobs are left: {slurm.jobs()}")
