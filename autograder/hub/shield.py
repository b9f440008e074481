"""The bubblewrap command in which a person's server runs: what it sees of the machine, and under which names.

A server sees the system's libraries and the hub's Python read-only, a home, a /tmp and processes of its own, the
students' `utils`, the releases, and of the exchange its owner's part alone. It does not see the repository (which
holds the answers), other homes, the gradebook, or the hub's files. It has the machine's network: the hub reaches it
by a port on loopback. Memory is not limited here: deploy/README.md.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from autograder.course import UserError
from autograder.hub.layout import GRADER, Layout
from autograder.hub.people import Enrolled, active
from autograder.sandbox.mounts import interpreter_folders, system_folders

EXCHANGE = "/srv/exchange"  # inside, for everybody; Jupyter's settings name it
LECTURES = "/srv/lectures.git"
STUDENT = "/srv/course"
SETTINGS = "/srv/settings"
ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "fonts", "hosts", "inputrc", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "resolv.conf", "ssl", "terminfo", "timezone",
)  # fmt: skip
# Stands between the hub and bubblewrap: servers outlive a hub that is killed and restarted, and end by SIGTERM whole.
# A shell's background job ignores SIGINT, and so would all that a student starts: `env` undoes that.
KEEPER = [
    "/bin/sh", "-c",
    "trap 'kill -KILL $child 2>/dev/null' TERM INT; \"$@\" & child=$!; "
    "while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || exit $code; done",
    "keeper", "/usr/bin/env", "--default-signal=INT,QUIT",
]  # fmt: skip


def home(name: str) -> str:
    """A person's home as their server sees it."""
    return f"/home/{name}"


def command(layout: Layout, person: Enrolled) -> list[str]:
    """The command line up to the server's own, as a list of words; no secret is in it.

    Raises:
        UserError: bubblewrap is not installed.
    """
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise UserError("bubblewrap is not installed, and students' servers run in it: apt install bubblewrap.")
    uid = str(person.uid if layout.separate else 1000)
    argv = [*KEEPER, bwrap, "--unshare-user", "--uid", uid, "--gid", uid]
    argv += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    argv += ["--die-with-parent", "--hostname", layout.spec.course, "--cap-drop", "ALL"]
    argv += [*_system(), "--proc", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/dev/shm"):
        argv += ["--perms", "1777", "--size", str(layout.spec.limits.tmp_mib * 2**20), "--tmpfs", path]
    for path in interpreter_folders():
        argv += _read_only(path, str(path))
    argv += ["--bind", str(layout.home(person.name)), home(person.name)]
    argv += _read_only(layout.student, STUDENT) + _read_only(layout.lectures, LECTURES)
    argv += _read_only(layout.settings(person.role), SETTINGS)
    here = f"{EXCHANGE}/{layout.spec.course}"
    # nbgrader wants to write the exchange's root, and writes nothing there: a folder of the server's own
    argv += ["--perms", "0755", "--dir", "/srv", "--perms", "0755", "--size", str(2**20), "--tmpfs", EXCHANGE]
    argv += _read_only(layout.outbound, f"{here}/outbound")
    argv += _read_only(layout.feedback(person.name), f"{here}/feedback")
    argv += ["--bind", str(layout.inbound(person.name)), f"{here}/inbound"]
    return [*argv, *_names(layout, person), "--remount-ro", "/", "--chdir", home(person.name), "--"]


def _read_only(path: Path, where: str) -> list[str]:
    """Bind a path; its parents are made open to all first (bubblewrap would make them its own user's alone)."""
    parents = [parent for parent in reversed(Path(where).parents[:-1]) if str(parent) != "/usr"]
    made = [word for parent in parents for word in ("--perms", "0755", "--dir", str(parent))]
    return [*made, "--ro-bind", str(path), where]


def _system() -> Iterable[str]:
    argv = system_folders()
    for name in ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return argv


def _names(layout: Layout, person: Enrolled) -> list[str]:
    """Files under /etc that name the server's user, so that nbgrader, git and a terminal know it."""
    folder = layout.settings("names") / person.name
    names = ("passwd", "group", "gitconfig")
    return [word for name in names for word in ("--ro-bind", str(folder / name), f"/etc/{name}")]


def write_names(layout: Layout) -> None:
    """Write everybody's files for /etc: who I am there, and that pulling from the read-only lectures is meant."""
    for person in active(layout).values():
        uid = person.uid if layout.separate else 1000
        folder = layout.settings("names") / person.name
        folder.mkdir(parents=True, exist_ok=True)
        title = " ".join(part for part in (person.first, person.last) if part).replace(":", "")
        others = [f"{name}:x:{who}:{who}::/:/usr/sbin/nologin" for name, who in (("root", 0), ("nobody", 65534))]
        me = f"{person.name}:x:{uid}:{uid}:{title}:{home(person.name)}:/bin/bash"
        (folder / "passwd").write_text("\n".join([*others, me]) + "\n", encoding="utf-8")
        groups = [f"{person.name}:x:{uid}:", f"{GRADER}:x:{layout.grader_uid}:", "nogroup:x:65534:"]
        (folder / "group").write_text("\n".join(groups) + "\n", encoding="utf-8")
        mail = person.email or f"{person.name}@localhost"
        (folder / "gitconfig").write_text(
            f"[safe]\n\tdirectory = {LECTURES}\n[user]\n\tname = {title or person.name}\n\temail = {mail}\n",
            encoding="utf-8",
        )


def environment(layout: Layout, person: Enrolled) -> dict[str, str]:
    """What a server's environment has beside the hub's own variables."""
    return common(layout) | {
        "HOME": home(person.name), "USER": person.name, "LOGNAME": person.name, "SHELL": "/bin/bash",
        "PYTHONPATH": STUDENT, "JUPYTER_CONFIG_PATH": SETTINGS,
    }  # fmt: skip


def common(layout: Layout) -> dict[str, str]:
    """What servers and the grading service share: one thread a rank, loopback for gloo, programs by name."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    programs = str(Path(sys.executable).parent)
    return threads | {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1",
        "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
