"""Giving up, before any student code runs, what student code must not have: user, privileges, system calls, resources.

Started as root, the process first becomes a user whom no file on the machine belongs to, in a user namespace of its
own where the kernel allows one. Then, whoever started it: no capability is left or can be gained, a filter of system
calls is on, and the limits of `Settings` hold for it and for all that it starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
from pathlib import Path

from . import seccomp
from .protocol import Settings

INSIDE_ID = 1000  # what the user is called inside
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 4, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CLONE_NEWUSER = 0x10000000
MNT_DETACH = 2
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def confine(settings: Settings) -> None:
    """Apply `settings` for good. Raises OSError where a step that isolation rests on is refused."""
    limit_resources(settings)
    if settings.confined:
        _drop_bounding_set()
    if settings.uid is not None:
        become(settings.uid)
    if settings.tasks is not None:  # counted in the user namespace that holds now
        _limit(resource.RLIMIT_NPROC, settings.tasks)
    if settings.confined:
        drop_privileges()
        seccomp.install()


def limit_resources(settings: Settings) -> None:
    """The limits of one process, and its place at the head of the queue when memory runs out."""
    _limit(resource.RLIMIT_CORE, 0)
    for kind, value in (
        (resource.RLIMIT_AS, beyond_now(settings.address_bytes)),
        (resource.RLIMIT_FSIZE, settings.file_bytes),
        (resource.RLIMIT_NOFILE, settings.open_files),
    ):
        if value is not None:
            _limit(kind, value)
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass  # without it the machine may choose another victim, the limits hold all the same


def beyond_now(address_bytes: int | None) -> int | None:
    """`address_bytes` on top of the address space in use: a torch built for CUDA maps gigabytes to begin with."""
    if address_bytes is None:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return address_bytes
    return address_bytes + pages * resource.getpagesize()


def _limit(kind: int, value: int) -> None:
    """Set a limit, hard and soft; one that is lower already stays."""
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def become(uid: int) -> None:
    """Become user and group `uid`, called INSIDE_ID in a user namespace of its own where one can be made."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _set_dumpable()
    if _libc.unshare(CLONE_NEWUSER) == 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{INSIDE_ID} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{INSIDE_ID} {uid} 1")
        _drop_bounding_set()


def drop_privileges() -> None:
    """No capability now, and none ever again."""
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _libc.capset(ctypes.byref(header), ctypes.byref(nothing)):
        raise OSError(ctypes.get_errno(), "capabilities could not be given up")
    if _prctl(PR_SET_NO_NEW_PRIVS, 1):
        raise OSError(ctypes.get_errno(), "no_new_privs could not be set")
    _set_dumpable()


def _set_dumpable() -> None:
    """A process that changed its user loses access to its own /proc entries, which ranks need; this gives it back."""
    _prctl(PR_SET_DUMPABLE, 1)


def _drop_bounding_set() -> None:
    """Capabilities that no program may bring back; refused without privilege, when there is none to lose."""
    for capability in range(64):
        _prctl(PR_CAPBSET_DROP, capability)


def _prctl(option: int, value: int) -> int:
    return int(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def copy_submission(source: str, work: str, uid: int | None) -> list[str]:
    """Copy regular files, folders and links of `source` into `work`; returns the names of what was left out.

    Links are copied as links, so they lead to what is visible here and nowhere else. With `uid`, the copies are given
    to that user. Raises OSError (no space) with the file's name.
    """
    left_out = []
    for folder, folders, files in os.walk(source):
        inner = os.path.relpath(folder, source)
        for name in folders + files:
            path, target = os.path.join(folder, name), os.path.normpath(os.path.join(work, inner, name))
            if not _copy_one(path, target):
                left_out.append(os.path.normpath(os.path.join(inner, name)))
            elif uid is not None:
                os.chown(target, uid, uid, follow_symlinks=False)
    return left_out


def let_go(source: str) -> None:
    """Take `source` out of this sandbox where that is allowed: the list of mounts tells what folder outside it is."""
    _libc.umount2(os.fsencode(source), MNT_DETACH)


def _copy_one(path: str, target: str) -> bool:
    """Copy one entry of a folder; False for devices, sockets and pipes."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(path), target)
    elif stat.S_ISDIR(mode):
        os.mkdir(target, 0o755)
    elif stat.S_ISREG(mode):
        with open(path, "rb") as source, open(target, "xb") as copy:
            while data := source.read(1 << 20):
                copy.write(data)
        os.chmod(target, 0o644)
    else:
        return False
    return True
