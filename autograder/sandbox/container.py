"""The sandbox of a container engine: docker or podman, by their common command line.

The image brings the interpreter and the packages; `utils` and the submission are mounted into it, read-only. The
answering process starts cold in every container, so this costs seconds a submission where bubblewrap costs none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from pathlib import Path

from utils.answering.protocol import Settings

from .base import HOME, REPO, Limits, Sandbox, SandboxRefused, Usage, environment
from .channel import Channel
from .connecting import NAME, Meeting
from .mounts import SUBMISSION, WORK

ENGINES = ("podman", "docker")
IMAGE = "distributed-llm-course"
MEETING = "/meeting"
PATH = ["/opt/venv/bin", "/usr/local/bin", "/usr/bin", "/bin"]
COMMAND_S = 60


class Container(Sandbox):
    """See `Sandbox`. `engine` is a program name or path, None for the first that is found."""

    kind = "container"

    def __init__(
        self, folder: Path | None, limits: Limits, hidden: Iterable[str] = (), engine: str | None = None,
        image: str = IMAGE,
    ) -> None:  # fmt: skip
        self.folder, self.limits, self.hidden, self.image = folder, limits, tuple(hidden), image
        self.engine = find_engine(engine)
        self.name = f"answers-{uuid.uuid4().hex[:12]}"
        self.client: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None

    def command(self, meeting: Path) -> list[str]:
        """The whole command line; `meeting` is the folder of the socket that the process connects to."""
        limits = self.limits
        argv = [
            self.engine, "run", "--rm", "--name", self.name, "--network", "none", "--read-only", "--init",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "1000:1000", "--hostname", "sandbox",
            "--pids-limit", str(limits.tasks), "--memory", str(limits.memory_bytes),
            "--memory-swap", str(limits.memory_bytes), "--shm-size", str(limits.shm_bytes),
            "--ulimit", "core=0", "--ulimit", f"nofile={limits.open_files}", "--ulimit", f"fsize={limits.file_bytes}",
            "--tmpfs", f"/tmp:rw,size={limits.disk_bytes},mode=1777",
            "--tmpfs", f"{HOME}:rw,exec,size={limits.disk_bytes},mode=1777",
            "--volume", f"{meeting}:{MEETING}:ro", "--volume", f"{REPO / 'utils'}:{REPO / 'utils'}:ro",
        ]  # fmt: skip
        for path in self.hidden:
            target = REPO / path
            if target.is_dir():
                argv += ["--tmpfs", f"{target}:ro,size=4096"]
            elif target.exists():
                argv += ["--volume", f"{os.devnull}:{target}:ro"]
        if self.folder is not None:
            argv += ["--volume", f"{self.folder.resolve()}:{SUBMISSION}:ro"]
        for name, value in environment(HOME, limits, PATH).items():
            argv += ["--env", f"{name}={value}"]
        program = ["python", "-P", "-s", "-m", "utils.answering", "--connect", f"{MEETING}/{NAME}"]
        return [*argv, "--workdir", "/", self.image, *program]

    def start(self) -> Channel:
        self._need_image()
        meeting = Meeting()
        self.client = subprocess.Popen(
            self.command(meeting.folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.channel = Channel(self, *meeting.accept(self.limits.start_s, self._gone))
        self.channel.set_up(self._settings(), self.limits.start_s)
        return self.channel

    def _settings(self) -> Settings:
        return Settings(
            work=WORK, environment=environment(HOME, self.limits, PATH),
            submission=None if self.folder is None else SUBMISSION, address_bytes=self.limits.address_bytes,
        )  # fmt: skip

    def _need_image(self) -> None:
        """Refuse, in words, an engine that does not answer and an image that is not there."""
        asked = self._engine("version")
        if asked.returncode:
            said = (asked.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise SandboxRefused(f"{self.engine} does not answer ({said}): start it, or use bubblewrap.")
        if self._engine("image", "inspect", self.image).returncode:
            raise SandboxRefused(
                f"{self.engine} has no image {self.image}: build it from environment.yml, or name another."
            )

    def _engine(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run([self.engine, *words], capture_output=True, text=True, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            raise SandboxRefused(f"{self.engine} {words[0]} took more than {COMMAND_S} s: is it running?") from None

    def _gone(self) -> str:
        if self.exit_code(0) is None:
            return ""
        said = self.client.stderr.read().decode(errors="replace").strip().splitlines()
        return f"{self.engine} ended with exit code {self.exit_code(0)}: {said[-1] if said else 'it said nothing'}"

    def interrupt(self) -> None:
        self._engine("kill", "--signal", "INT", self.name)

    def kill(self) -> None:
        self._engine("kill", self.name)

    def exit_code(self, patience: float = 1.0) -> int | None:
        try:
            code = self.client.wait(patience) if self.client is not None else None
        except subprocess.TimeoutExpired:
            return None
        if code == 137 and not self.ended_because:  # killed, and not by us: the engine's limit of memory
            return -9
        return 128 - code if code is not None and code > 128 else code

    def usage(self) -> Usage:
        return Usage(0, 0, None)  # the engine holds the limits itself and tells no peak

    def close(self) -> None:
        if self.channel is not None and self.channel.sock.fileno() >= 0:
            self.channel.close()
        if self.client is None:
            return
        if self.exit_code(2.0) is None:
            self._engine("rm", "--force", self.name)
            self.client.wait(COMMAND_S)
        self.client.stderr.close()
        self.client = None
        if self.name in self._engine("ps", "--all", "--quiet", "--no-trunc", "--format", "{{.Names}}").stdout.split():
            raise RuntimeError(f"container {self.name} could not be removed")

    def describe(self) -> str:
        return f"container ({Path(self.engine).name}): no network, read-only, no privileges, limits held by the engine"


def find_engine(engine: str | None) -> str:
    """The path of the engine. Raises SandboxRefused where there is none."""
    for name in (engine,) if engine else ENGINES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise SandboxRefused(
        f"no container engine: {engine or ' and '.join(ENGINES)} not found on PATH. Install one, or use bubblewrap."
    )
