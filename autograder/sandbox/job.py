"""The Job that a submission is answered in, as data; where it goes; and whether that place keeps it off the network."""

from __future__ import annotations

import os
import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from . import porter
from .base import HOME, Limits, SandboxRefused
from .mounts import SUBMISSION

LABELS = {"app.kubernetes.io/name": "course-answers"}  # what the network policy of grading.yaml selects
CONTAINER = "answers"
CODE = "/course"  # inside: `utils` as the grader has it
START = "import os; exec(os.environ['PORTER'])"
CODE_BYTES = 64 << 20
LOG_BYTES = 64 << 20  # of the node's disk; the pod writes only to memory
# A user id for each submission: the limit of processes counts a user's, and a node may hold several submissions.
# Below 65536, so that a pod with user namespaces of its own (hostUsers: false) can have it too.
UIDS = range(10_000, 65_000)
EXTRA = {
    "affinity", "hostUsers", "imagePullSecrets", "nodeSelector", "priorityClassName", "runtimeClassName", "tolerations",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where pods are made, and of what. Read from the environment, since a grader's workers inherit that.

    image (COURSE_POD_IMAGE): has Python and the course's packages. namespace (COURSE_POD_NAMESPACE), kubectl
    (COURSE_POD_KUBECTL), context (COURSE_POD_CONTEXT). cpu (COURSE_POD_CPU): cores of each. wait_s (COURSE_POD_WAIT_S):
    how long a pod may wait for a node and its image. start_s (COURSE_POD_START_S): how long the answering process may
    take to load torch there. deadline_s (COURSE_POD_DEADLINE_S): after which the cluster ends the pod.
    extra (COURSE_POD_EXTRA, a YAML file): more of the pod's specification, such as nodeSelector or tolerations.
    """

    image: str
    namespace: str = "course-grading"
    kubectl: str = "kubectl"
    context: str = ""
    cpu: str = "1"
    wait_s: float = 300.0
    start_s: float = 180.0
    deadline_s: float = 3600.0
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.image:
            raise SandboxRefused(
                "no image is named for pods: set COURSE_POD_IMAGE to the one built from deploy/kubernetes/Dockerfile."
            )
        if unknown := sorted(set(self.extra) - EXTRA):
            raise SandboxRefused(
                f"COURSE_POD_EXTRA has {unknown[0]!r}: a submission's pod may be given {', '.join(sorted(EXTRA))}."
            )

    @classmethod
    def from_environment(cls) -> Place:
        """The place that the variables name. Raises SandboxRefused."""
        given = {name: os.environ.get(f"COURSE_POD_{name.upper()}", "") for name in cls.__dataclass_fields__}
        plain: dict[str, Any] = {name: text for name, text in given.items() if text and name not in ("image", "extra")}
        for name in ("wait_s", "start_s", "deadline_s"):
            if name in plain:
                plain[name] = _seconds(f"COURSE_POD_{name.upper()}", plain[name])
        return cls(image=given["image"], extra=_extra(given["extra"]), **plain)


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise SandboxRefused(f"{name} is {text!r}: a number of seconds above 0.")
    return value


def _extra(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SandboxRefused(f"COURSE_POD_EXTRA names {path}, which cannot be read ({error}).") from None
    if not isinstance(found, dict):
        raise SandboxRefused(f"COURSE_POD_EXTRA names {path}, which has no `key: value` pairs.")
    return found


def job_name() -> str:
    """A name for one Job."""
    return f"answers-{uuid.uuid4().hex[:12]}"


def manifest(name: str, place: Place, limits: Limits) -> dict[str, Any]:
    """The Job of one answering process: no network, no token, no privileges, nothing writable but memory.

    Example:
        manifest("answers-1", Place("registry.example.org/course:1"), Limits())["spec"]["backoffLimit"]      # 0
    """
    uid = random.choice(UIDS)
    pod = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1, "hostname": "sandbox",
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": uid, "runAsGroup": uid, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(place, limits)],
        "volumes": [_memory(volume, size) for volume, (_, size) in _folders(limits).items()],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": place.namespace, "labels": LABELS},
        "spec": {
            "backoffLimit": 0, "completions": 1, "parallelism": 1, "activeDeadlineSeconds": int(place.deadline_s),
            "ttlSecondsAfterFinished": 60, "template": {"metadata": {"labels": LABELS}, "spec": pod | place.extra},
        },
    }  # fmt: skip


def _folders(limits: Limits) -> dict[str, tuple[str, int]]:
    """Writable folders, all in memory, which the limit of memory counts: volume, where, bytes."""
    return {
        "tmp": ("/tmp", limits.disk_bytes), "home": (HOME, limits.disk_bytes), "shm": ("/dev/shm", limits.shm_bytes),
        "code": (CODE, CODE_BYTES), "submission": (SUBMISSION, limits.disk_bytes),
    }  # fmt: skip


def _memory(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(size)}}


def _container(place: Place, limits: Limits) -> dict[str, Any]:
    # requests as large as limits: a node short of memory then ends other pods first
    room = {"cpu": place.cpu, "memory": str(limits.memory_bytes), "ephemeral-storage": str(LOG_BYTES)}
    return {
        "name": CONTAINER,
        "image": place.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-P", "-s", "-c", START, "hold"],
        "env": [{"name": "PORTER", "value": Path(porter.__file__).read_text(encoding="utf-8")}],
        "workingDir": "/",
        "resources": {"limits": room, "requests": room},
        "securityContext": {
            "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": name, "mountPath": path} for name, (path, _) in _folders(limits).items()],
    }  # fmt: skip


def why_open(policies: list[dict[str, Any]]) -> str:
    """Why the network policies of a namespace do not cut off a submission's pod; "" where they do.

    Policies add up: one that selects the pod and allows something opens it, whatever another says.
    """
    cut = {"Ingress": False, "Egress": False}
    for policy in policies:
        spec = policy.get("spec") or {}
        if not _selects(spec.get("podSelector") or {}):
            continue
        for kind in spec.get("policyTypes") or ["Ingress"]:
            if spec.get(kind.lower()):
                return f"the network policy {policy['metadata']['name']} allows a submission's pod some {kind.lower()}"
            cut[kind] = True
    missing = [kind.lower() for kind, there in cut.items() if not there]
    return f"no network policy forbids a submission's pod its {' and '.join(missing)}" if missing else ""


def _selects(selector: dict[str, Any]) -> bool:
    """Whether a selector takes a submission's pod; one with expressions is taken for one that does."""
    wanted = selector.get("matchLabels") or {}
    return all(LABELS.get(key) == value for key, value in wanted.items())
