"""The sandboxes that are not bubblewrap, and why each kind cannot be had where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autograder.sandbox import Limits, SandboxRefused, container, open_sandbox, probing, why_not
from autograder.sandbox.base import REPO
from autograder.sandbox.container import Container
from tests.sandbox.conftest import ask, see


def test_unknown_kind_and_limits() -> None:
    with pytest.raises(SandboxRefused, match=r'no sandbox "chroot": choose bubblewrap, container, none'):
        open_sandbox("chroot")
    with pytest.raises(ValueError, match="processes is 0"):
        Limits(processes=0)


# -- none --------------------------------------------------------------------------------------------------------------
def test_none_runs_and_says_that_it_isolates_nothing(opened, tmp_path) -> None:
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "data.txt").write_text("7")
    box, channel = opened("none", folder)
    assert box.describe() == "not isolated"
    assert see(channel, "import os", "(open('data.txt').read(), os.getuid())") == ("7", os.getuid())
    assert ask(channel, lambda: 1, ranks=2)["values"] == [1, 1]
    assert channel.cell(2, "while True: pass", 0.5).status == "stopped"
    assert channel.cell(3, "big = bytearray(8 << 30)", 20).ename == "MemoryError"
    home = see(channel, "import os", "os.environ['HOME']")
    code = "import subprocess; p = subprocess.Popen(['sleep', '999'], start_new_session=True)"
    pid = see(channel, code, "p.pid")
    assert channel.cell(4, "import os; os._exit(4)", 20).exit_code == 4
    box.close()
    assert not psutil.pid_exists(pid) and not Path(home).exists()


def test_none_watches_processes_too(opened) -> None:
    box, channel = opened("none", processes=20)
    code = (
        "import subprocess\nkept = [subprocess.Popen(['sleep', '99']) for _ in range(30)]\nimport time; time.sleep(20)"
    )
    run = channel.cell(1, code, 30)
    assert (run.status, box.ended_because) == ("died", "it started more than 20 processes")


def test_none_leaves_nothing_when_the_grader_is_killed() -> None:
    code = """
from autograder.sandbox import open_sandbox
import time
box = open_sandbox("none")
channel = box.start()
channel.cell(1, "import subprocess; subprocess.Popen(['sleep', '998'], start_new_session=True)", 20)
print(box.home, flush=True)
time.sleep(600)
"""
    grader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert grader.stdout is not None
    home = grader.stdout.readline().strip()
    family = psutil.Process(grader.pid).children(recursive=True)
    assert any(p.cmdline()[-1:] == ["998"] for p in family)
    grader.kill()
    grader.wait()
    grader.stdout.close()
    until = time.monotonic() + 20
    while time.monotonic() < until and (any(p.is_running() for p in family) or Path(home).exists()):
        time.sleep(0.05)
    assert not [p for p in family if p.is_running()] and not Path(home).exists()


# -- container ---------------------------------------------------------------------------------------------------------
FAKE = """#!{python}
# a stand-in for a container engine: runs the program on the bare machine, mounts as links
import os, subprocess, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + "\\n")
if words[0] == "version" or words[:2] == ["image", "inspect"]:
    sys.exit({image_code} if words[0] == "image" else 0)
if words[0] in ("kill", "rm"):
    pid = int(open({log!r} + ".pid").read())
    try:
        os.kill(pid, 2 if "INT" in words else 9)
    except ProcessLookupError:
        pass
if words[0] != "run":
    sys.exit(0)
volumes = [words[i + 1].split(":") for i, w in enumerate(words) if w == "--volume"]
meeting = next(source for source, target, *_ in volumes if target == "/meeting")
env = dict(words[i + 1].split("=", 1) for i, w in enumerate(words) if w == "--env")
code = f'''
import socket
from utils.answering import serve
from utils.answering.protocol import Settings
import dataclasses
channel = socket.socket(socket.AF_UNIX)
channel.connect("{{meeting}}/answers.sock")
out, err = socket.recv_fds(channel, 1, 2)[1]
real = serve.prepare
home = {home!r}
serve.prepare = lambda s, *a: real(dataclasses.replace(s, work=home, submission=None, confined=False), *a)
serve.preload()
serve.main(channel, out, err)
'''
child = subprocess.Popen([{python!r}, "-P", "-c", code], env=env, cwd="/")
open({log!r} + ".pid", "w").write(str(child.pid))
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


@pytest.fixture
def fake(tmp_path):
    """`fake(image_code)`: an engine that runs the program without isolation, and the file of what it was told."""

    def make(image_code: int = 0) -> tuple[str, Path]:
        log, engine = tmp_path / "log", tmp_path / "docker"
        text = FAKE.format(python=sys.executable, log=str(log), image_code=image_code, home=str(tmp_path / "home"))
        engine.write_text(text)
        engine.chmod(0o755)
        return str(engine), log

    return make


def test_container_command_line(fake, tmp_path) -> None:
    engine, _ = fake()
    box = Container(tmp_path, Limits(memory_bytes=2 << 30, tasks=99), ["utils/pictures", "utils/cost.py"], engine)
    argv = box.command(Path("/place"))
    text = " ".join(argv)
    for wanted in (
        "--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges", "--pids-limit 99",
        f"--memory {2 << 30}", f"--memory-swap {2 << 30}", "--user 1000:1000", "--rm", "--ulimit core=0",
        f"--volume {tmp_path}:/submission:ro", f"--volume {REPO}/utils:{REPO}/utils:ro",
        f"--tmpfs {REPO}/utils/pictures:ro", f"--volume /dev/null:{REPO}/utils/cost.py:ro",
        "--volume /place:/meeting:ro", "UTILS_TIMEOUT=10",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert argv[argv.index("--volume") :].count("--volume") == text.count("--volume")
    volumes = [argv[i + 1] for i, word in enumerate(argv) if word == "--volume"]
    assert all(v.endswith(":ro") for v in volumes)
    assert argv[-7:] == [box.image, "python", "-P", "-s", "-m", "utils.answering", "--connect"][1:] + [
        "/meeting/answers.sock"
    ]
    assert "no network" in box.describe()


def test_container_flow_with_a_stand_in_for_the_engine(fake, tmp_path) -> None:
    """No engine runs where this was written: the flow is tried with a program that takes the same command line."""
    engine, log = fake()
    with Container(None, Limits(), (), engine) as box:
        channel = box.start()
        assert see(channel, "x = 5", "x + 1") == 6
        assert ask(channel, lambda: x, ranks=2)["values"] == [5, 5]  # noqa: F821
        assert channel.cell(2, "while True: pass", 0.5).status == "stopped"
        assert channel.cell(3, "import os; os.kill(os.getpid(), 9)", 20).exit_code == -9
    assert f"kill --signal INT {box.name}" in log.read_text()


def test_container_refusals(fake, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "no container engine: podman and docker not found" in why_not("container")
    engine, _ = fake(image_code=1)
    with pytest.raises(SandboxRefused, match="has no image distributed-llm-course: build it"):
        Container(None, Limits(), (), engine).start()
    broken = tmp_path / "podman"
    broken.write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(SandboxRefused, match=r"does not answer \(Cannot connect to the daemon\): start it"):
        Container(None, Limits(), (), str(broken)).start()
    assert container.find_engine(str(broken)) == str(broken)


# -- why not bubblewrap ------------------------------------------------------------------------------------------------
def proc(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("said", "files", "told"),
    [
        ("bwrap: setting up uid map: Permission denied", {"sys__kernel__apparmor_restrict_unprivileged_userns": "1"},
         "AppArmor keeps ordinary users"),
        ("bwrap: No permissions to create new namespace", {"sys__kernel__unprivileged_userns_clone": "0"},
         "sysctl kernel.unprivileged_userns_clone=1"),
        ("bwrap: Creating new namespace failed", {"sys__user__max_user_namespaces": "0"},
         "sysctl user.max_user_namespaces=10000"),
        ("bwrap: Invalid argument", {"version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"}, "gVisor"),
        ("bwrap: Can't mount proc on /newroot/proc: Not permitted", {}, "does not let bubblewrap mount /proc"),
        ("bwrap: Unknown option --disable-userns", {}, "too old"),
        ("bwrap: prctl: Operation not permitted", {}, "seccomp=unconfined"),
        ("", {}, "it said nothing"),
    ],
)  # fmt: skip
def test_reasons_are_told_with_what_to_do(tmp_path, monkeypatch, said, files, told) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    sentence = probing.explain(said, proc(tmp_path, **files))
    assert told in sentence and sentence.endswith("isolates nothing.") and "\n" not in sentence
    assert said.removeprefix("bwrap: ")[:20] in sentence


def test_missing_bubblewrap(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(os, "defpath", str(tmp_path))
    sentence = probing.why_not_bubblewrap.__wrapped__()
    assert "apt-get install bubblewrap" in sentence and "isolates nothing" in sentence
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in probing.why_not_bubblewrap.__wrapped__()
