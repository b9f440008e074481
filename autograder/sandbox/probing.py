"""Can bubblewrap make a sandbox here? Tried for real, and told in one sentence with what to do where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from . import mounts
from .base import Limits

TRY_S = 20
_OTHER = 'or name another sandbox: "container", or "none", which isolates nothing'


@lru_cache(maxsize=1)
def why_not_bubblewrap() -> str:
    """ "" where bubblewrap works; else one sentence with the reason and what to do. Asked once a process."""
    if sys.platform != "linux":
        return f"bubblewrap needs Linux, and this is {sys.platform}: grade on Linux, {_OTHER}."
    argv = [*mounts.command(None, Limits(), root=os.getuid() == 0), "/bin/cat", "/dev/null"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRY_S, env={"PATH": os.defpath}
        )
    except FileNotFoundError:
        return (
            "bubblewrap is not installed: install the package `bubblewrap` (apt-get install bubblewrap, dnf install "
            f"bubblewrap), {_OTHER}."
        )
    except subprocess.TimeoutExpired:
        return f"bubblewrap did not finish a trial within {TRY_S} s: try `bwrap --ro-bind / / true`, {_OTHER}."
    return "" if done.returncode == 0 else explain(done.stderr.strip(), Path("/proc"))


def explain(said: str, proc: Path) -> str:
    """Why bubblewrap failed, from what it said and what the system says of itself under `proc`."""
    said = said.splitlines()[-1] if said else "it said nothing"
    if _is_gvisor(proc):
        return f"this machine runs under gVisor, which refuses bubblewrap ({said}): grade on another machine, {_OTHER}."
    if _setting(proc, "sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and os.getuid() != 0:
        return (
            f"AppArmor keeps ordinary users from making namespaces ({said}): have an administrator install a profile "
            "for /usr/bin/bwrap that allows `userns` (Ubuntu: bwrap-userns-restrict of package apparmor-profiles), "
            f"{_OTHER}."
        )
    if _setting(proc, "sys/kernel/unprivileged_userns_clone") == "0":
        return (
            f"this system keeps ordinary users from making namespaces ({said}): have an administrator run `sysctl "
            f"kernel.unprivileged_userns_clone=1`, {_OTHER}."
        )
    if _setting(proc, "sys/user/max_user_namespaces") == "0":
        return (
            f"this system allows no user namespaces ({said}): have an administrator run `sysctl "
            f"user.max_user_namespaces=10000`, {_OTHER}."
        )
    if "unknown option" in said.lower():
        return f"this bubblewrap is too old ({said}): version 0.8 or newer is needed, {_OTHER}."
    if "proc" in said.lower() and ("mount" in said.lower() or "permitted" in said.lower()):
        return (
            f"this machine, probably itself a container, does not let bubblewrap mount /proc ({said}): start it with "
            f"`--security-opt systempaths=unconfined` or grade outside of it, {_OTHER}."
        )
    return (
        f"bubblewrap could not make a sandbox ({said}): in a container it needs `--security-opt seccomp=unconfined` "
        f"and `--security-opt apparmor=unconfined`; {_OTHER[3:]}."
    )


def _setting(proc: Path, name: str) -> str:
    try:
        return (proc / name).read_text().strip()
    except OSError:
        return ""


def _is_gvisor(proc: Path) -> bool:
    """gVisor's kernel gives itself a version of its own that no Linux has."""
    version = _setting(proc, "version")
    return "gvisor" in version.lower() or "#1 SMP Sun Jan 10 15:06:54 PST 2016" in version
