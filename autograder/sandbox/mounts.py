"""What a submission sees of the machine: the interpreter, the installed packages, the system's libraries, `utils`.

Everything else does not exist there: no solutions, no gradebook, no other submission, no home, no tests. Of `utils`,
what answers a lab not yet due is left out, compiled copies included.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .base import HOME, REPO, Limits

SUBMISSION = "/submission"  # inside, read-only; copied to WORK before the first cell
WORK = f"{HOME}/work"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "timezone")
_OWN_ETC = Path(__file__).parent / "etc"


def command(folder: Path | None, limits: Limits, hidden: Iterable[str] = (), root: bool = False) -> list[str]:
    """The bubblewrap command line up to the program to run.

    Args:
        folder: the submission's files, None for none.
        hidden: paths under the project, such as "utils/engine", that are not shown.
        root: started by root, without a user namespace: the answering process then becomes another user itself.
    """
    argv = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if not root:
        argv += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--disable-userns"]
    argv += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv", "--cap-drop", "ALL"]
    argv += [*_system(), "--proc", "/proc", "--dev", "/dev", *_tmpfs("/dev/shm", limits.shm_bytes)]
    argv += [*_tmpfs("/tmp", limits.disk_bytes), *_tmpfs(HOME, limits.disk_bytes)]
    argv += [*_interpreter(), *_utils(hidden)]  # after these, for a project that lies under /tmp
    if folder is not None:
        argv += ["--ro-bind", str(folder.resolve()), SUBMISSION]
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--perms", "1777", "--size", str(size), "--tmpfs", path]


def system_folders() -> list[str]:
    """Bind /usr read-only, and what stands beside it at the root: links into it, or folders of their own."""
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            argv += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
    return argv


def _system() -> list[str]:
    argv = system_folders()
    for store in ("/nix/store", "/gnu/store"):
        argv += ["--ro-bind-try", store, store]
    argv += ["--perms", "0755", "--dir", "/etc"]
    for name in _ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in sorted(_OWN_ETC.iterdir()):
        argv += ["--ro-bind", str(path), f"/etc/{path.name}"]
    return argv


def interpreter_folders() -> list[Path]:
    """The folders that make up this interpreter and its packages, none inside another and none under /usr."""
    found = {Path(p).absolute() for p in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    found -= {Path("/usr"), Path("/")}
    return sorted(p for p in found if not any(other in p.parents for other in (*found, Path("/usr"))))


def _interpreter() -> list[str]:
    """Bind the interpreter; where the project lies inside one of its folders, or inside /usr, hide it there again."""
    folders, argv = interpreter_folders(), []
    inside = [p for p in folders if REPO in p.resolve().parents]
    outside = [p for p in folders if p not in inside]
    for path in outside:
        argv += _bind(path)
    if any(p.resolve() in (REPO, *REPO.parents) for p in (*outside, Path("/usr"))):
        argv += ["--tmpfs", str(REPO)]
    for path in inside:
        argv += _bind(path)
    return argv


def _bind(path: Path) -> list[str]:
    """Bind a path where it is, read-only. Its parents are made first: bubblewrap would make them for root alone."""
    argv = []
    for parent in reversed(path.parents[:-1]):
        argv += ["--perms", "0755", "--dir", str(parent)]
    return [*argv, "--ro-bind", str(path), str(path)]


def _utils(hidden: Iterable[str]) -> list[str]:
    return _shown(REPO / "utils", {REPO / path for path in hidden})


def _shown(folder: Path, hidden: set[Path]) -> list[str]:
    """Bind a folder whole, or entry by entry where something in it is hidden."""
    if not any(folder in path.parents for path in hidden):
        return _bind(folder)
    argv: list[str] = []
    for path in sorted(folder.iterdir()):
        if path in hidden or path.name == "__pycache__":
            continue
        argv += _shown(path, hidden) if path.is_dir() else _bind(path)
    return argv
