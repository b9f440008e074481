"""What every sandbox is to the grader, whatever it is made of: limits, usage, and what can be asked of it."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autograder.verdict import AnswerLost

if TYPE_CHECKING:
    from .channel import Channel

REPO = Path(__file__).resolve().parents[2]
HOME = "/home/student"  # inside
KEPT_VARIABLES = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


class SandboxRefused(RuntimeError):
    """No sandbox of this kind can be had here; the text says why and what to do, in a sentence."""


class Ended(AnswerLost):
    """The answering process is gone. `exit_code` is negative for a signal, None where unknown."""

    def __init__(self, text: str, exit_code: int | None = None) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Forged(AnswerLost):
    """The answering process sent what an honest one never sends; the text says what."""


@dataclass(frozen=True)
class Limits:
    """What a submission may use.

    memory_bytes, processes: all its processes together, watched from outside; past it, all are killed.
    address_bytes (besides what is loaded at the start), file_bytes, open_files: each process, set by the system; past
    it, a call fails with an exception.
    disk_bytes, shm_bytes: its writable folders, and /dev/shm. tasks: processes and threads together, past which none
    can be started. launch_s: seconds that one launch may take. start_s: seconds for the sandbox to be ready.
    """

    memory_bytes: int = 4 << 30
    processes: int = 128
    address_bytes: int | None = 4 << 30
    file_bytes: int = 512 << 20
    open_files: int = 2048
    disk_bytes: int = 512 << 20
    shm_bytes: int = 256 << 20
    tasks: int = 1024
    launch_s: float = 10.0
    start_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}: a limit is a number above 0")


@dataclass(frozen=True)
class Usage:
    """What a sandbox has used so far; loopback_bytes: sent over its private network, None where it has none."""

    peak_memory_bytes: int
    peak_processes: int
    loopback_bytes: int | None


class Sandbox(ABC):
    """One answering process and everything it starts. Use as a context manager; made by `open_sandbox`."""

    kind: str
    ended_because: str = ""  # a limit that was passed: "it used more than 4.0 GiB of memory"

    @abstractmethod
    def start(self) -> Channel:
        """Start the process; the channel is ready for cells. Raises SandboxRefused, or Ended with its last words."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt the running cell or probe, as Jupyter's stop button does."""

    @abstractmethod
    def kill(self) -> None:
        """Kill every process inside at once."""

    @abstractmethod
    def exit_code(self, patience: float = 1.0) -> int | None:
        """Exit code of the answering process, negative for a signal; None while it runs or where unknown."""

    @abstractmethod
    def usage(self) -> Usage:
        """What has been used up to now."""

    @abstractmethod
    def close(self) -> None:
        """End everything, and see that it has ended. Raises RuntimeError where something is left."""

    @abstractmethod
    def describe(self) -> str:
        """What isolates the submission, in words; "not isolated" where nothing does."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment(home: str, limits: Limits, path: list[str]) -> dict[str, str]:
    """All environment variables that student code gets; `path` are the folders of programs."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"LANG": "C.UTF-8"} | kept | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(REPO),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": home,
        "USER": "student",
        "TMPDIR": "/tmp",
        "IPYTHONDIR": f"{home}/.ipython",
        "MPLCONFIGDIR": f"{home}/.matplotlib",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "CUDA_VISIBLE_DEVICES": "",
        "UTILS_TIMEOUT": f"{limits.launch_s:g}",
        "NBGRADER_EXECUTION": "autograde",
    }  # fmt: skip


def programs() -> list[str]:
    """Folders of programs inside: this interpreter's, then the system's."""
    return [str(Path(sys.prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin"]


def gib(value: int) -> str:
    """Bytes in words: `4.0 GiB`, `512 MiB`."""
    return f"{value / 2**30:.1f} GiB" if value >= 1 << 30 else f"{value / 2**20:.0f} MiB"
