"""The sandbox of a cluster: one Kubernetes Job for each answering process, made and spoken to by `kubectl`.

The image brings the interpreter and the packages and no code of the course: `utils`, less what is hidden, and the
submission's files go in over `kubectl exec`, which carries the channel too (`porter` in the pod, `relay` here). The
namespace's network policy has to cut the pod off, and the pod is asked whether it does. A pod that the cluster lost
costs the student nothing: that is SandboxRefused. A limit that the pod went past is the student's.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from utils.answering.protocol import Settings

from .base import HOME, REPO, Ended, Forged, Limits, Sandbox, SandboxRefused, Usage, environment, gib
from .channel import Channel
from .container import PATH
from .job import CODE, CONTAINER, START, Place, job_name, manifest, why_open
from .kubectl import Kubectl, Seen
from .mounts import SUBMISSION, WORK
from .relay import Relay

LOOK_S = 0.5
GONE_S = 60
FATE_S = 15.0  # for the cluster to say what became of a pod whose connection ended
KILLED = 137


@lru_cache(maxsize=8)
def ready(program: str, context: str, namespace: str) -> Kubectl:
    """Kubectl for a namespace that this user may use and that has no network; looked at once a process."""
    kubectl = Kubectl(program, namespace, context)
    kubectl.need_access()
    if why := why_open(kubectl.items("networkpolicies")):
        raise SandboxRefused(f"in the namespace {namespace} {why}: apply deploy/kubernetes/grading.yaml.")
    return kubectl


class Pod(Sandbox):
    """See `Sandbox`. `place` is where pods are made, None for what the environment names."""

    kind = "pod"

    def __init__(
        self, folder: Path | None, limits: Limits, hidden: Iterable[str] = (), place: Place | None = None
    ) -> None:
        self.folder, self.limits, self.hidden = folder, limits, tuple(hidden)
        self.place = place or Place.from_environment()
        self.kubectl = ready(self.place.kubectl, self.place.context, self.place.namespace)
        self.name, self.made, self.pod = job_name(), False, ""
        self.relay: Relay | None = None
        self.channel: Channel | None = None
        self.used: dict[str, int] = {"memory": 0, "processes": 0, "loopback": 0}
        self.fate: tuple[int | None] | None = None  # the exit code, once it is known
        self.killed = False

    # -- starting --------------------------------------------------------------------------------------------------
    def start(self) -> Channel:
        if self.made:
            raise RuntimeError("a sandbox starts once; open another")
        self.made = True
        self.kubectl.need("create", "-f", "-", text=json.dumps(manifest(self.name, self.place, self.limits)))
        self.pod = self._wait_for_pod()
        words = ["exec", "-i", self.pod, "-c", CONTAINER, "--", "python", "-P", "-s", "-c", START, "serve"]
        self.relay = Relay([*self.kubectl.base, *words])
        self._greet()
        self._send_files()
        env = environment(HOME, self.limits, PATH) | {"PYTHONPATH": CODE}
        command = ["-P", "-s", "-m", "utils.answering", "--fds"]
        asked = {"command": command, "environment": env, "most": self.limits.processes}
        self.relay.send(b"R", json.dumps(asked).encode())
        self.channel = Channel(self, self.relay.channel, self.relay.out, self.relay.err)
        try:
            self.channel.set_up(self._settings(env), self.place.start_s)
        except Ended as ended:  # no student's code has run yet
            self.exit_code(0)  # a pod that was lost is told as that
            raise SandboxRefused(f"in a pod of the image {self.place.image} {ended}.") from None
        return self.channel

    def _settings(self, env: dict[str, str]) -> Settings:
        limits = self.limits
        return Settings(
            work=WORK, environment=env, submission=None if self.folder is None else SUBMISSION,
            address_bytes=limits.address_bytes, file_bytes=limits.file_bytes, open_files=limits.open_files,
            tasks=limits.tasks,
        )  # fmt: skip

    def _wait_for_pod(self) -> str:
        """The name of the pod, once it runs. Raises SandboxRefused with the cluster's reason."""
        until = time.monotonic() + self.place.wait_s
        while True:
            seen = self.kubectl.pod(self.name)
            if seen.state == "running":
                return seen.name
            if seen.hopeless or seen.state == "ended":
                raise SandboxRefused(f"{self._who(seen)} could not be started: {seen.why or 'no reason was given'}.")
            if time.monotonic() > until:
                raise SandboxRefused(
                    f"{self._who(seen)} was not started within {self.place.wait_s:.0f} s (COURSE_POD_WAIT_S): "
                    f"{seen.why or 'the cluster gives no reason'}."
                )
            time.sleep(LOOK_S)

    def _who(self, seen: Seen) -> str:
        what = f"pod {seen.name}" if seen.name else f"the pod of Job {self.name}"
        return f"{what} (namespace {self.place.namespace}, image {self.place.image})"

    def _greet(self) -> None:
        """Hear the pod's first word, and refuse an image or a cluster that does not do."""
        hello = self.relay.wait(b"H", self.place.start_s)
        if hello is None:
            said = f"it sent {self.relay.fault}" if self.relay.fault else self.relay.words()
            raise SandboxRefused(
                f"pod {self.pod} did not answer kubectl exec ({said}): is {self.place.image} an image of "
                "deploy/kubernetes/Dockerfile?"
            )
        ours = list(sys.version_info[:2])
        if hello["python"] != ours:
            theirs = ".".join(str(part) for part in hello["python"])
            raise SandboxRefused(
                f"the image {self.place.image} has Python {theirs} and the grader {ours[0]}.{ours[1]}: build it with "
                f"--build-arg PYTHON={ours[0]}.{ours[1]}, since tests are sent as compiled code."
            )
        if hello["network"]:
            raise SandboxRefused(
                f"a submission's pod reaches the cluster's API at {hello['network'][:60]}: the cluster has a network "
                "policy but nothing that enforces it; use a network plugin that does, such as Calico or Cilium."
            )

    def _send_files(self) -> None:
        self.relay.send(b"T", f"{CODE}\0".encode() + code(self.hidden))
        if self.folder is not None:
            packed = packed_folder(self.folder, self.limits.disk_bytes)
            self.relay.send(b"T", f"{SUBMISSION}\0".encode() + packed)

    # -- while it runs ---------------------------------------------------------------------------------------------
    def interrupt(self) -> None:
        if self.relay is not None:
            self.relay.send(b"I")

    def kill(self) -> None:
        """End the pod by deleting its Job; what comes back from the pod plays no part in it."""
        self.killed = True
        if self.made:
            self.kubectl.ask("delete", "job", self.name, "--ignore-not-found", "--cascade=background", "--wait=false")

    def exit_code(self, patience: float = 1.0) -> int | None:
        """See `Sandbox`. Raises SandboxRefused where the cluster lost the pod, Forged for what no honest pod sends."""
        if self.relay is None or not (self.fate or self.relay.ended(patience)):
            return None
        if self.fate is None:
            self.fate = (self._find_fate(),)
        return self.fate[0]

    def _find_fate(self) -> int | None:
        if self.relay.fault:
            raise Forged(f"the pod with the student's code sent {self.relay.fault}")
        if last := self.relay.last:
            self._note(last)
            if last["reason"] == "memory":
                self._went_past(f"it used more than {gib(self.limits.memory_bytes)} of memory")
            elif last["reason"] == "processes":
                self._went_past(f"it started more than {self.limits.processes} processes")
            return last["code"]
        return -9 if self.killed else self._ask_cluster()

    def _went_past(self, reason: str) -> None:
        self.ended_because = self.ended_because or reason

    def _ask_cluster(self) -> int | None:
        """What the cluster says of a pod whose connection ended without a last word."""
        self.relay.process.wait(5)
        inside = "terminated with exit code" in self.relay.words()  # what ran there ended, not the connection
        until = time.monotonic() + FATE_S
        seen = self.kubectl.pod(self.name)
        while seen.state in ("running", "waiting") and not inside and time.monotonic() < until:
            time.sleep(LOOK_S)
            seen = self.kubectl.pod(self.name)
        if seen.memory:
            self._went_past(f"it used more than {gib(self.limits.memory_bytes)} of memory")
        elif "DeadlineExceeded" in seen.why:
            self._went_past(f"its pod ran for more than {self.place.deadline_s:.0f} s")
        elif seen.own:
            self._went_past(f"the cluster ended its pod ({seen.why})")
        elif seen.why or seen.state == "absent":
            raise SandboxRefused(f"the cluster took pod {self.pod} away ({seen.why or 'it is gone'}): grade it again.")
        elif seen.state == "running" and not inside:
            raise SandboxRefused(f"the connection to pod {self.pod} broke ({self.relay.words()}): grade it again.")
        return -9 if inside or seen.memory or seen.code in (None, KILLED) else seen.code

    def usage(self) -> Usage:
        if self.relay is not None and not self.relay.over:
            self._note(self.relay.usage(2.0) or {})
        elif self.relay is not None:
            self._note(self.relay.last or {})
        return Usage(self.used["memory"], self.used["processes"], self.used["loopback"])

    def _note(self, told: dict[str, int]) -> None:
        """Keep the highest of each figure."""
        self.used = {name: max(value, told.get(name, 0)) for name, value in self.used.items()}

    # -- ending ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        if self.relay is not None and self.channel is None:
            self.relay.close_channel()
        elif self.channel is not None and self.channel.sock.fileno() >= 0:
            self.channel.close()
        if self.relay is not None:
            self.relay.close()
        if not self.made:
            return
        self.made = False
        words = ["delete", "job", self.name, "--ignore-not-found", "--cascade=foreground", f"--timeout={GONE_S}s"]
        done = self.kubectl.ask(*words, limit=GONE_S + 20)
        if done.returncode:
            raise RuntimeError(
                f"Job {self.name} in the namespace {self.place.namespace} could not be removed "
                f"({done.stderr.strip()[:300]}): kubectl delete job {self.name}."
            )

    def describe(self) -> str:
        return (
            f"pod ({self.place.namespace}): a Job of its own, no network, no token, read-only, no privileges, "
            "limits held by the cluster"
        )


@lru_cache(maxsize=4)
def code(hidden: tuple[str, ...]) -> bytes:
    """`utils` as a tar, less what is hidden and what was compiled."""
    held = {REPO / path for path in hidden}

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = REPO / entry.name
        return None if path in held or path.name == "__pycache__" else _plain(entry)

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        archive.add(REPO / "utils", "utils", filter=wanted)
    return data.getvalue()


def packed_folder(folder: Path, most: int) -> bytes:
    """The files, folders and links of a submission as a tar. Raises SandboxRefused for more than `most` bytes."""
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    if size > most:
        raise SandboxRefused(f"the files of {folder.name} are {gib(size)}, more than the {gib(most)} that a pod holds.")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, ".", filter=lambda entry: _plain(entry) if entry.isfile() or entry.isdir() or entry.issym()
                    else None)  # fmt: skip
    return data.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without an owner, readable by whoever unpacks it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry
