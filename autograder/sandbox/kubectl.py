"""The cluster as `kubectl` shows it: commands with a time limit, and what became of a Job's pod, in words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from .base import SandboxRefused

COMMAND_S = 60
HOPELESS = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError",
}  # fmt: skip
NEEDED = (("create", "jobs.batch"), ("delete", "jobs.batch"), ("list", "pods"), ("create", "pods/exec"))
OWN_FAULT = re.compile(r"exceeds the (total )?limit", re.IGNORECASE)  # of the pod itself, not of its node


@dataclass(frozen=True)
class Seen:
    """A pod at one moment.

    state: absent, waiting, running, ended. code: of its first process, where it ended. why: the cluster's reason.
    own: the reason is a limit that the pod itself went past.
    """

    state: str
    name: str = ""
    code: int | None = None
    why: str = ""
    own: bool = False
    hopeless: bool = False
    memory: bool = False


class Kubectl:
    """Commands in one namespace; `program` is kubectl's name or path, `context` one of its configuration, or ""."""

    def __init__(self, program: str, namespace: str, context: str = "") -> None:
        path = shutil.which(program)
        if path is None:
            raise SandboxRefused(
                f"{program} is not on PATH, and pods are made by it: install kubectl (Debian: kubernetes-client), or "
                'name another sandbox: "bubblewrap".'
            )
        self.namespace = namespace
        self.base = [path, *(["--context", context] if context else []), "--namespace", namespace]

    def ask(self, *words: str, text: str = "", limit: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """Run one command. Raises SandboxRefused where it takes longer than `limit` seconds."""
        try:
            return subprocess.run(
                [*self.base, *words], input=text, capture_output=True, text=True, errors="replace", timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise SandboxRefused(
                f"kubectl {words[0]} took more than {limit:.0f} s: does the cluster answer (kubectl cluster-info)?"
            ) from None

    def need(self, *words: str, text: str = "") -> str:
        """The output of a command that has to succeed. Raises SandboxRefused with what kubectl said."""
        done = self.ask(*words, text=text)
        if done.returncode:
            raise SandboxRefused(f"kubectl {words[0]} was refused: {last_line(done.stderr)}")
        return done.stdout

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The objects of `kubectl get WORDS -o json`. Raises SandboxRefused."""
        said = self.need("get", *words, "-o", "json")
        try:
            found = json.loads(said)["items"]
        except (ValueError, KeyError, TypeError):
            raise SandboxRefused(f"kubectl get {words[0]} did not answer with a list: {said[:200]!r}") from None
        return found

    def need_access(self) -> None:
        """Refuse, in words, a cluster that does not answer or where this user may not do what a sandbox needs."""
        for verb, what in NEEDED:
            done = self.ask("auth", "can-i", verb, what)
            answer = done.stdout.strip()
            if answer == "no":
                raise SandboxRefused(
                    f"this user may not {verb} {what} in the namespace {self.namespace}: "
                    "apply deploy/kubernetes/grading.yaml, and run the grader with its service account."
                )
            if answer != "yes":
                raise SandboxRefused(
                    f"the cluster does not answer ({last_line(done.stderr)}): see `kubectl config current-context`."
                )

    def pod(self, job: str) -> Seen:
        """What became of the pod of a Job."""
        pods = self.items("pods", "--selector", f"job-name={job}")
        return seen(pods[0]) if pods else Seen("absent", why=self.why_absent(job))

    def why_absent(self, job: str) -> str:
        """Why a Job has no pod: a condition of the Job, or the last warning about it; "" where nothing was said."""
        for one in self.items("jobs", "--field-selector", f"metadata.name={job}"):
            for condition in one.get("status", {}).get("conditions") or []:
                if condition.get("type") == "Failed" and condition.get("status") == "True":
                    return f"{condition.get('reason', 'Failed')}: {condition.get('message', '')}".strip(": ")
        events = self.items("events", "--field-selector", f"involvedObject.name={job},type=Warning")
        return str(events[-1].get("message", "")) if events else ""


def seen(pod: dict[str, Any]) -> Seen:
    """Read a pod's status.

    >>> seen({"metadata": {"name": "a"}, "status": {"phase": "Failed", "reason": "Evicted", "message": "no room"}}).why
    'Evicted: no room'
    """
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    state = states[0] if states else {}
    why = _joined(status.get("reason"), status.get("message"))
    if ended := state.get("terminated"):
        reason = ended.get("reason", "")
        memory = reason == "OOMKilled"
        plain = reason in ("Completed", "Error", "")
        why = why or ("" if plain else _joined(reason, ended.get("message")))
        return Seen("ended", name, ended.get("exitCode"), why, bool(OWN_FAULT.search(why)), memory=memory)
    if status.get("phase") in ("Failed", "Succeeded"):
        return Seen("ended", name, None, why, bool(OWN_FAULT.search(why)))
    if "running" in state and not pod["metadata"].get("deletionTimestamp"):
        return Seen("running", name)
    if waiting := state.get("waiting"):
        reason = waiting.get("reason", "")
        return Seen("waiting", name, why=_joined(reason, waiting.get("message")), hopeless=reason in HOPELESS)
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Seen("waiting", name, why=_joined(condition.get("reason"), condition.get("message")))
    return Seen("waiting", name, why=why)


def _joined(reason: Any, message: Any) -> str:
    return ": ".join(" ".join(str(part).split())[:500] for part in (reason, message) if part)


def last_line(said: str) -> str:
    """The last line that a program said, cut."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"
