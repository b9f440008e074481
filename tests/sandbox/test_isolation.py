"""What student code can see, reach and do inside a sandbox: nothing that is not its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from autograder.sandbox import Limits, SandboxRefused, mounts, open_sandbox, why_not
from autograder.sandbox.base import REPO
from tests.sandbox.conftest import see
from tests.sandbox.ordinary import as_ordinary_user


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap needs Linux")
def test_a_sandbox_can_be_had_here() -> None:
    """Fails on a Linux machine where graders could isolate nothing, with what to do about it."""
    assert why_not("bubblewrap") == ""


def test_of_the_project_only_utils_is_there(inside) -> None:
    found = see(inside, "import os", f"os.listdir({str(REPO)!r})")
    venv = {Path(sys.prefix).relative_to(REPO).parts[0]} if REPO in Path(sys.prefix).parents else set()
    assert set(found) == {"utils"} | venv
    for name in ("solutions", "tests", "autograder", ".git", "labs", "course_data", "nbgrader_config.py"):
        assert not see(inside, "import os", f"os.path.lexists({str(REPO / name)!r})"), name


def test_homes_and_temporary_folders_are_its_own(inside, tmp_path) -> None:
    (tmp_path / "gradebook.db").write_text("marks")
    assert not see(inside, "import os", f"os.path.exists({str(tmp_path)!r})")
    for place in ("/tmp", "/home", "/run", "/var", "/sys"):
        names = see(inside, "import os", f"os.listdir({place!r}) if os.path.exists({place!r}) else []")
        assert set(names) == way_through(place) | ({"student"} if place == "/home" else set()), place
    assert not see(inside, "import os", f"os.path.exists({str(Path.home() / '.ssh')!r})")
    assert not see(inside, "import os", "os.path.exists('/etc/shadow')")


def way_through(place: str) -> set[str]:
    """What must stand in a folder so that the project's `utils` and the interpreter can be reached through it."""
    shown = [REPO / "utils", *mounts.interpreter_folders()]
    return {path.relative_to(place).parts[0] for path in shown if Path(place) in path.parents}


def test_environment_tells_nothing(monkeypatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do-not-tell")
    with open_sandbox("bubblewrap") as box:
        channel = box.start()
        code = "import os; first = open('/proc/self/environ').read()"
        assert "do-not-tell" not in see(channel, code, "first + repr(dict(os.environ))")
        assert see(channel, "import os", "os.environ['HOME']") == "/home/student"


def test_no_other_process_is_seen(inside) -> None:
    names = see(inside, "import os", "[p for p in os.listdir('/proc') if p.isdigit()]")
    assert str(os.getpid()) not in names or os.getpid() < 50
    shown = see(inside, "import glob", "[open(p).read()[:300] for p in glob.glob('/proc/[0-9]*/cmdline')]")
    assert not any("pytest" in line for line in shown)
    assert see(inside, "import os", "os.getppid()") in (0, 1)  # the parent is outside


def test_nothing_of_the_grader_is_loaded_or_open(inside) -> None:
    assert see(inside, "import sys", "[m for m in sys.modules if m.startswith('autograder')]") == []
    code = """
import os
links = []
for name in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{name}"))
    except FileNotFoundError:
        pass  # the listing itself
"""
    links = see(inside, code, "links")
    assert len(links) >= 5 and all(link.startswith(("pipe:", "socket:", "/dev/null")) for link in links), links


def test_no_network(inside) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    code = """
import socket
def reach(place):
    try:
        socket.create_connection(place, timeout=2).close()
        return "reached"
    except OSError as error:
        return type(error).__name__
"""
    assert see(inside, code, f"reach(('127.0.0.1', {port}))") == "ConnectionRefusedError"
    assert see(inside, code, "reach(('192.0.2.1', 80))") != "reached"
    assert see(inside, "import socket", "[name for _, name in socket.if_nameindex()]") == ["lo"]
    listener.close()


def test_what_it_sees_cannot_be_changed(inside) -> None:
    code = """
def change(path):
    try:
        open(path, "w").close()
        return "changed"
    except OSError as error:
        return error.strerror
"""
    places = [str(REPO / "utils" / "__init__.py"), sys.executable, "/etc/passwd", "/usr/bin/new", "/new", "/dev/new",
              str(REPO / "utils" / "new.py"), "/proc/sys/kernel/hostname"]  # fmt: skip
    for place in places:
        assert see(inside, code, f"change({place!r})") in (
            "Read-only file system",
            "Permission denied",
            "Text file busy",
        )


def test_no_privileges(inside) -> None:
    status = see(inside, "text = open('/proc/self/status').read()", "dict(l.split(':\\t') for l in text.splitlines())")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert see(inside, "import os", "os.getresuid()") == (1000, 1000, 1000)


@pytest.mark.parametrize(
    "call",
    [
        "libc.unshare(0x10000000)", "libc.unshare(0x00020000)", "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
        "libc.ptrace(16, 1, 0, 0)", "libc.chroot(b'/tmp')", "libc.setuid(0)", "libc.sethostname(b'x', 1)",
        "libc.syscall(56, 0x10000011, 0, 0, 0, 0)" if os.uname().machine == "x86_64" else "libc.unshare(0x40000000)",
        "libc.umount2(b'/proc', 2)",
    ],
)  # fmt: skip
def test_system_calls_that_break_out_are_refused(inside, call) -> None:
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)"
    result, number = see(inside, code, f"({call}, ctypes.get_errno())")
    assert result == -1 and number in (1, 22), (result, number)


def test_clone3_does_not_exist_and_threads_start(inside) -> None:
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)"
    assert see(inside, code, "(libc.syscall(435, 0, 0), ctypes.get_errno())") == (-1, 38)
    assert (
        see(inside, "import threading\nt = threading.Thread(target=print)\nt.start(); t.join()", "t.is_alive()")
        is False
    )


def test_user_is_nobody_on_the_machine() -> None:
    with open_sandbox("bubblewrap") as box:
        channel = box.start()
        see(channel, "", "1")
        owner = os.stat(f"/proc/{box.init_pid}/root/home/student/work").st_uid
        assert owner >= 2_000_000_000 if os.getuid() == 0 else owner == os.getuid()


def test_hidden_modules_are_gone_compiled_copies_too(opened) -> None:
    __import__("utils.cost"), __import__("utils.pictures.curves")  # compiled copies exist now
    _, channel = opened(hidden=["utils/cost.py", "utils/pictures"])
    for name in ("utils.cost", "utils.pictures"):
        assert channel.cell(1, f"import {name}", 20).ename == "ModuleNotFoundError"
    found = see(channel, "import glob", f"glob.glob({str(REPO)!r} + '/utils/**/cost*', recursive=True)")
    assert found == []
    assert channel.cell(2, "import utils.measure, utils.check", 20).status == "ok"


def test_what_is_loaded_already_cannot_be_hidden(opened) -> None:
    with pytest.raises(SandboxRefused, match="ranks is part of what every answering process has loaded"):
        opened(hidden=["utils/ranks"])


def test_submission_is_copied_and_leads_nowhere(opened, tmp_path) -> None:
    folder = tmp_path / "submission"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "numbers.txt").write_text("1 2 3")
    (folder / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "secret.txt").write_text("marks")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(folder / "pipe")
    _, channel = opened(folder=folder)
    assert see(channel, "import helper", "helper.twice(4), open('data/numbers.txt').read()") == (8, "1 2 3")
    assert channel.cell(1, "open('link.txt').read()", 20).ename == "FileNotFoundError"
    assert not see(channel, "import os", "os.path.exists('pipe')")
    see(channel, "open('data/numbers.txt', 'w').write('9')", "1")
    assert (folder / "data" / "numbers.txt").read_text() == "1 2 3"


def test_two_at_once_with_the_same_port(opened) -> None:
    code = """
import socket
server = socket.create_server(("127.0.0.1", 29500))
"""
    channels = [opened()[1] for _ in range(2)]
    results: list[str] = []
    threads = [threading.Thread(target=lambda c=c: results.append(c.cell(1, code, 20).status)) for c in channels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok", "ok"]


def test_start_up_files_are_not_run(opened, tmp_path) -> None:
    folder = tmp_path / "submission"
    (folder / ".ipython" / "profile_default" / "startup").mkdir(parents=True)
    (folder / ".ipython" / "profile_default" / "startup" / "00.py").write_text("planted = 1")
    (folder / "sitecustomize.py").write_text("import builtins; builtins.planted = 1")
    (folder / "usercustomize.py").write_text("import builtins; builtins.planted = 1")
    (folder / "torch.py").write_text("planted = 1")
    _, channel = opened(folder=folder)
    assert channel.cell(1, "planted", 20).ename == "NameError"
    assert see(channel, "import torch", "torch.ones(2).sum().item(), hasattr(torch, 'planted')") == (2.0, False)


def test_started_cold_is_as_isolated() -> None:
    from autograder.sandbox.bubble import Bubble

    with Bubble(None, Limits(), ["utils/pictures"], cold=True) as box:
        channel = box.start()
        assert "started cold" in box.describe()
        text = "text = open('/proc/self/status').read()"
        status = see(channel, text, "dict(l.split(':\\t') for l in text.splitlines())")
        assert int(status["CapBnd"], 16) == 0 and status["Seccomp"] == "2"
        assert see(channel, "import os", f"os.path.exists({str(REPO / 'tests')!r})") is False
        assert channel.cell(2, "import os; os._exit(3)", 20).exit_code == 3


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become an ordinary user")
@pytest.mark.heavy
def test_all_of_it_as_an_ordinary_user() -> None:
    """The same tests once more, by a user without any privilege, for whom this machine's folders are opened."""
    files = [str(REPO / "tests/sandbox" / name) for name in ("test_isolation.py", "test_limits.py")]
    with tempfile.TemporaryDirectory(prefix="ordinary-") as home:
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{home}/base", *files]
        command = as_ordinary_user(Path(home), words)
        done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 40, done.stdout[-500:]
