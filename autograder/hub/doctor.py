"""`hub doctor`: whether this machine and a class's folder can serve: what was looked at and found, what to do."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from autograder.course import put_programs_on_path
from autograder.doctor import Sick, report, shared_memory, unfit
from autograder.hub import people, shield
from autograder.hub.api import Hub
from autograder.hub.layout import FIRST_UID, Layout, closed_to_others
from autograder.hub.settings import run_as_grader

# Lab and server extensions that were tried together; another minor version is a change to try.
WANTED = (
    "jupyterhub>=5.5,<7", "jupyterhub-idle-culler>=1.4", "nbgitpuller>=1.2", "jupyter-resource-usage>=1.2",
    "jupyterlab>=4.6,<4.7", "jupyter-server>=2.21,<3", "nbgrader>=0.9.6,<0.10", "SQLAlchemy>=2,<3",
)  # fmt: skip
FREE_DISK_GIB = 2
SERVER_MIB = 420  # a server, a kernel and torch in it, as measured


def versions() -> str:
    """JupyterHub and the extensions are there, in versions that work together."""
    wrong = unfit(Requirement(text) for text in WANTED)
    if wrong:
        raise Sick("; ".join(wrong) + ": run this with .venv-hub's Python, which `make hub` makes.")
    return f"JupyterHub {version('jupyterhub')}, JupyterLab {version('jupyterlab')}, nbgrader {version('nbgrader')}"


def programs() -> str:
    """What is started by its name is found: nbgrader runs alembic, servers run bwrap, lectures come by git."""
    put_programs_on_path()
    needed = {"alembic": "pip install alembic", "bwrap": "apt install bubblewrap", "git": "apt install git",
              "node": "apt install nodejs", "setpriv": "apt install util-linux"}  # fmt: skip
    missing = [f"{name} ({how})" for name, how in needed.items() if not shutil.which(name)]
    proxy = Path(sys.prefix) / "node" / "node_modules" / ".bin" / "configurable-http-proxy"
    if not proxy.exists():
        missing.append("configurable-http-proxy (remove .venv-hub and run `make hub`)")
    if missing:
        raise Sick(f"Not found on PATH: {', '.join(missing)}.")
    return "alembic, bwrap, git, node, setpriv and the proxy are found"


def ports(layout: Layout) -> str:
    """The four ports are free, or it is this class's hub that has them."""
    if Hub(layout).runs():
        return f"the hub of this class runs on {layout.spec.address.url}"
    for port in layout.spec.address.ports:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind((layout.spec.address.host if port == layout.spec.address.public else "127.0.0.1", port))
            except OSError as error:
                raise Sick(
                    f"Port {port} cannot be used ({error.strerror}): end what has it (`ss -ltnp`), or change address "
                    "in the class's YAML file and run `hub init` again."
                ) from None
    return f"ports {', '.join(map(str, layout.spec.address.ports))} are free"


def users(layout: Layout) -> str:
    """Each person has a user id that nobody else has, where the hub can give them one."""
    everybody = people.enrolled(layout)
    if not layout.separate:
        closed = closed_to_others(layout.folder)
        why = "the class asks for it" if layout.spec.users == "one" else "the hub is not root's"
        if closed and os.getuid() == 0:
            why = f"{closed} is closed to other users"
        return f"all servers run as one user, kept apart by bubblewrap alone ({why})"
    taken = {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()}
    clash = [f"{p.name} has {p.uid}, which is {taken[p.uid]}'s" for p in everybody.values() if p.uid in taken]
    if FIRST_UID in taken:
        clash.append(f"the grader has {FIRST_UID}, which is {taken[FIRST_UID]}'s")
    if clash:
        raise Sick(f"{'; '.join(clash)}: give that account another id (usermod -u), or set users: one.")
    return f"{len(everybody)} people have user ids from {FIRST_UID + 1}, the grader has {FIRST_UID}"


def groups(layout: Layout) -> str:
    """People are in people.csv, and a running hub has them in the group of their role."""
    everybody = people.active(layout)
    roles = [person.role for person in everybody.values()]
    if not roles.count("instructor"):
        raise Sick("Nobody is an instructor: enrol one with `hub enrol FOLDER NAME --role instructor`.")
    hub, told = Hub(layout), ""
    if hub.runs():
        for kind in ("nbgrader", "formgrade"):
            has = set((hub.ask("GET", f"/groups/{kind}-{layout.spec.course}") or {}).get("users", []))
            wants = {name for name, person in everybody.items() if person.group == kind}
            if has != wants:
                raise Sick(
                    f"The hub's group {kind}-{layout.spec.course} differs from people.csv in "
                    f"{', '.join(sorted(has ^ wants))}: enrol them again, or take them out with --remove."
                )
        told = ", in the running hub's groups as well"
    return f"enrolled: {roles.count('student')} as students, {roles.count('instructor')} as instructors{told}"


def permissions(layout: Layout) -> str:
    """Secrets are the hub's, homes their owners', hand-ins their student's and the grader's."""
    wanted = dict.fromkeys((layout.secrets, layout.hub, layout.folder / "log"), (0o700, None, None))
    wanted[layout.data] = (0o700, layout.grader_uid, None)
    wanted[layout.outbound] = (0o755, layout.grader_uid, None)
    for person in people.active(layout).values():
        uid = person.uid if layout.separate else os.getuid()
        wanted[layout.home(person.name)] = (0o700, uid, None)
        wanted[layout.inbound(person.name)] = (0o2770, uid, layout.grader_uid if layout.separate else None)
        wanted[layout.feedback(person.name)] = (0o750, layout.grader_uid, None)
    wrong = [said for path, rule in wanted.items() if (said := _differs(path, *rule))]
    wrong += [f"{path} can be read by others" for path in layout.secrets.iterdir() if path.stat().st_mode & 0o077]
    if wrong:
        raise Sick(f"{'; '.join(wrong[:4])}: run `hub init` again, which sets them.")
    return f"secrets, homes, the gradebook and {layout.exchange} belong to whom they should"


def _differs(path: Path, mode: int, uid: int | None, gid: int | None) -> str:
    if not path.is_dir():
        return f"{path} is missing"
    found = path.stat()
    have = stat.S_IMODE(found.st_mode)
    if have != mode:
        return f"{path} has mode {have:o}, wanted {mode:o}"
    if uid is not None and found.st_uid != uid:
        return f"{path} belongs to user {found.st_uid}, wanted {uid}"
    if gid is not None and found.st_gid != gid:
        return f"{path} belongs to group {found.st_gid}, wanted {gid}"
    return ""


def server(layout: Layout) -> str:
    """A person's server can be shielded: it finds its own folders and Python, and no answers and no neighbour."""
    everybody = list(people.active(layout).values())
    if not everybody:
        raise Sick("Nobody is enrolled, so no server could be tried: enrol somebody.")
    person = everybody[0]
    people.places(layout, person)
    shield.write_names(layout)
    hidden = [str(layout.data), str(layout.secrets), str(layout.folder / "homes"), str(layout.course.solutions)]
    probe = (
        "import os, sys, torch, utils, jupyterhub, nbgrader; "
        "sys.exit(', '.join(p for p in sys.argv[1:] if os.path.exists(p)) or os.path.expanduser('~') == '/')"
    )
    argv = [*shield.command(layout, person), sys.executable, "-c", probe, *hidden]
    env = shield.environment(layout, person)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, cwd="/",
                          **layout.run_as(person.uid))  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Sick(
            f"A shielded server for {person.name} did not come up as it should ({last}): where the kernel forbids "
            "user namespaces, `sysctl kernel.unprivileged_userns_clone=1` or an AppArmor profile for bwrap helps."
        )
    return "a shielded server sees its home, torch and utils, and no answers, gradebook or other home"


def sandbox(layout: Layout) -> str:
    """Submissions run in the sandbox, as the user that grades."""
    program = "from autograder import course, doctor; print(doctor.sandbox(course.Course.default()))"
    done = run_as_grader(layout, "-c", program, timeout=180)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Sick(f"The grader cannot sandbox a submission: {last}")
    return done.stdout.strip()


def clock(layout: Layout) -> str:
    """The clock is sane and says what the files say: deadlines are compared with it."""
    probe = layout.hub / ".clock"
    probe.touch()
    off = probe.stat().st_mtime - time.time()
    probe.unlink()
    if time.time() < Path(shield.__file__).stat().st_mtime - 86400 or abs(off) > 5:
        raise Sick(
            f"The clock says {time.strftime('%Y-%m-%d %H:%M')} and the file system is {off:+.0f} s from it: deadlines "
            "would be wrong; start a time service (apt install chrony)."
        )
    return f"the clock says {time.strftime('%Y-%m-%d %H:%M %Z')}, files agree"


def room(layout: Layout) -> str:
    """Memory and disk for the servers that may run at once."""
    free = shutil.disk_usage(layout.folder).free / 2**30
    if free < FREE_DISK_GIB:
        raise Sick(f"{layout.folder} has {free:.1f} GiB free, wanted {FREE_DISK_GIB}: make room or move the class.")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20
    fit = int(memory * 0.9 // SERVER_MIB)
    most = layout.spec.limits.servers
    if most > fit:
        raise Sick(
            f"{most} servers of about {SERVER_MIB} MiB need more than the {memory / 1024:.1f} GiB here: set limits "
            f"servers to {fit}, or use a larger machine."
        )
    told = f"{memory / 1024:.0f} GiB of memory (no limit a person is enforced), {free:.0f} GiB of disk"
    return f"room for {most} servers: {told}"


def exposure(layout: Layout) -> str:
    """Passwords do not cross a network in the clear."""
    address = layout.spec.address
    if address.host not in ("127.0.0.1", "localhost", "::1"):
        raise Sick(
            f"The hub listens on {address.host} without TLS: let it listen on 127.0.0.1 behind a reverse proxy, as in "
            "deploy/proxy/."
        )
    return f"the hub listens on {address.host} alone; outside comes through a reverse proxy, if there is one"


def answering(layout: Layout) -> str:
    """A running hub gives its login page through the proxy."""
    if not Hub(layout).runs():
        return "no hub runs now"
    try:
        with Hub(layout).opener.open(f"{layout.spec.address.url}hub/login", timeout=10) as reply:
            status = reply.status
    except (OSError, urllib.request.HTTPError) as error:
        raise Sick(f"The hub runs, but its login page does not come through the proxy ({error}): restart it.") from None
    return f"the login page comes through the proxy ({status})"


def checks(layout: Layout) -> Iterator[tuple[str, Callable[[], str]]]:
    """All checks by name, the cheap ones first."""
    yield "python", lambda: f"Python {platform.python_version()} at {sys.executable}"
    yield "versions", versions
    yield "programs", programs
    for check in (ports, exposure, users, groups, permissions, clock, room):
        yield check.__name__, lambda check=check: check(layout)
    yield "shared memory", shared_memory
    for check in (answering, server, sandbox):
        yield check.__name__, lambda check=check: check(layout)


def doctor(layout: Layout) -> int:
    """Run all checks and print what each found; 0 if all are well."""
    return report(checks(layout), "This machine can serve the class.")
