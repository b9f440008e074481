"""Checks whether this machine can teach and grade: each thing it looked at, what it found, what to do."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from autograder.course import Course, UserError, put_programs_on_path

PROBE_GLOO = """
import os, tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
    x = torch.ones(1); dist.all_reduce(x); dist.destroy_process_group()
"""
PACKAGE = "distributed-llm-course"
SHM_NEEDED = 64 * 2**20


class Sick(Exception):
    """A check failed; the text says what was found and what to do."""


def python() -> str:
    """Python is new enough."""
    need, have = metadata(PACKAGE)["Requires-Python"], platform.python_version()
    if not SpecifierSet(need).contains(have, prereleases=True):
        raise Sick(f"Python is {have}, wanted {need}.")
    return f"Python {have} at {sys.executable}"


def packages() -> str:
    """Installed packages are of the versions that the project asks for."""
    needs = (Requirement(text) for text in requires(PACKAGE) or [])
    wrong = unfit(need for need in needs if not need.marker or need.marker.evaluate({"extra": ""}))
    if wrong:
        raise Sick("; ".join(wrong) + ": run `pip install -r requirements.lock`.")
    return f"torch {version('torch')}, nbgrader {version('nbgrader')} and what else the project asks for"


def unfit(needs: Iterable[Requirement]) -> list[str]:
    """What is missing or of another version than asked for, in words."""
    wrong = []
    for need in needs:
        try:
            have = version(need.name)
        except PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            continue
        if not need.specifier.contains(have, prereleases=True):
            wrong.append(f"{need.name} is {have}, wanted {need.specifier}")
    return wrong


def alembic() -> str:
    """nbgrader finds alembic, which it runs by name to set up a gradebook."""
    put_programs_on_path()
    found = shutil.which("alembic")
    if not found:
        raise Sick(f"alembic is not beside {sys.executable}: run `pip install alembic`.")
    return f"alembic at {found}"


def course_data(course: Course) -> str:
    """The course-data folder can be written."""
    try:
        course.prepare()
        with tempfile.NamedTemporaryFile(dir=course.data):
            pass
    except (UserError, OSError) as error:
        raise Sick(f"{error} Set COURSE_DATA to a folder that can be written.") from None
    return f"course data in {course.data}"


def kernel() -> str:
    """A Python kernel starts and answers."""
    from jupyter_client.kernelspec import KernelSpecManager

    from utils.selfcheck.session import KernelFailed, KernelSession

    if "python3" not in KernelSpecManager().find_kernel_specs():
        raise Sick("Jupyter knows no kernel named python3: run `python -m ipykernel install --sys-prefix`.")
    try:
        with KernelSession(Path(tempfile.gettempdir())) as session:
            run = session.run("print(6 * 7)", limit=30)
    except KernelFailed as error:
        raise Sick(f"{error}.") from None
    if run.status != "ok":
        raise Sick(f"A kernel started but could not print: {run.status} {run.evalue}.")
    return "the kernel python3 starts and answers"


def gloo() -> str:
    """torch's gloo works on the loopback interface."""
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE_GLOO], env=env, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Sick(f"gloo cannot use the loopback interface ({last}): `ip link set lo up` as root may help.")
    return "gloo meets on the loopback interface"


def shared_memory() -> str:
    """/dev/shm is not a container's tiny default."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return "no /dev/shm on this system, none is needed"
    free = shutil.disk_usage(folder).free
    if free < SHM_NEEDED:
        raise Sick(
            f"/dev/shm has {free / 2**20:.0f} MiB free, wanted {SHM_NEEDED / 2**20:.0f}: start the "
            "container with --shm-size=1g, or mount a memory emptyDir there."
        )
    return f"/dev/shm has {free / 2**20:.0f} MiB free"


def ranks() -> str:
    """Ranks launch and reduce."""
    from utils import LaunchError, launch

    try:
        run = launch(_sum_of_ranks, ranks=2, timeout=60)
    except LaunchError as error:
        raise Sick(f"Ranks do not launch: {error}") from None
    if run.values != [1.0, 1.0]:
        raise Sick(f"Two ranks all-reduced 0 and 1 and got {run.values}.")
    return f"2 ranks launch and all-reduce, in {run.seconds:.2f} s"


def sandbox(course: Course) -> str:
    """Students' code can be kept apart."""
    from autograder.sandbox import open_sandbox, why_not

    reason = why_not(course.sandbox)
    if reason:
        raise Sick(reason)
    with open_sandbox(course.sandbox) as one:
        run = one.start().cell(1, "6 * 7", 30)
        if run.status != "ok":
            raise Sick(f"A sandbox of {course.sandbox} started but ran nothing: {run.status} {run.evalue}")
        return f"students' code runs in {one.describe()}"


def _sum_of_ranks() -> float:
    import torch
    import torch.distributed as dist

    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x)
    return x.item()


def checks(course: Course) -> Iterator[tuple[str, Callable[[], str]]]:
    """All checks by name, the cheap ones first."""
    yield "python", python
    yield "packages", packages
    yield "alembic", alembic
    yield "course data", lambda: course_data(course)
    yield "shared memory", shared_memory
    yield "kernel", kernel
    yield "gloo", gloo
    yield "ranks", ranks
    yield "sandbox", lambda: sandbox(course)


def doctor(course: Course) -> int:
    """Run all checks and print what each found; 0 if all are well."""
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        print("FAIL  The course is not installed in this Python: `make lab` does it, or `pip install -e .`.")
        return 1
    return report(checks(course), "This machine can teach and grade.")


def report(found: Iterable[tuple[str, Callable[[], str]]], well: str) -> int:
    """Run checks by name and print what each found, and `well` where none failed; 0 then, else 1."""
    sick = []
    for name, check in found:
        try:
            print(f"ok    {check()}", flush=True)
        except Sick as error:
            sick.append(name)
            print(f"FAIL  {error}", flush=True)
        except Exception as error:  # a check that itself breaks is a finding too
            sick.append(name)
            print(f"FAIL  the check of {name} broke: {type(error).__name__}: {error}", flush=True)
    print(f"To mend: {', '.join(sick)}." if sick else well)
    return 1 if sick else 0
