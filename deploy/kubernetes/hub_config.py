"""What the hub of the Zero to JupyterHub chart loads for this course: who may enter, and how each person's pod is made.

The chart mounts this file into /usr/local/etc/jupyterhub/jupyterhub_config.d and people.csv beside it (README.md has
the command). It stands alone: the chart's hub image has none of the course's code. The names of folders are those of
`autograder.hub`, which makes and owns the class's volume; tests/deploy holds the two together.

Each person has a user id of their own, for good: the one that `hub init` gave them in people.csv. A pod runs as it, and
of the volume it mounts the person's parts alone, so that neither a mount nor a permission leads to anybody else's.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from tornado import web

PEOPLE = Path(os.environ.get("COURSE_PEOPLE", "/usr/local/etc/jupyterhub/people.csv"))
EXCHANGE, LECTURES, STUDENT, SETTINGS = "/srv/exchange", "/srv/lectures.git", "/srv/course", "/srv/settings"
VOLUME = "class"
GROUPS = {"student": "nbgrader", "instructor": "formgrade"}


def people() -> dict[str, dict[str, str]]:
    """The rows of people.csv of those who may log in, by name."""
    with PEOPLE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file) if row["active"] == "yes"}


def mounts(course: str, person: dict[str, str]) -> list[dict[str, Any]]:
    """What one person's pod mounts of the class's volume, in the manifest's words; all but two are read-only."""
    name, here = person["name"], f"{EXCHANGE}/{course}"
    shown = [
        (f"homes/{name}", f"/home/{name}", False),
        (f"exchange/{course}/inbound/{name}", f"{here}/inbound", False),
        (f"exchange/{course}/outbound", f"{here}/outbound", True),
        (f"exchange/{course}/feedback/{name}", f"{here}/feedback", True),
        ("student", STUDENT, True),
        ("lectures.git", LECTURES, True),
        (f"config/{person['role']}", SETTINGS, True),
        *[(f"config/names/{name}/{file}", f"/etc/{file}", True) for file in ("passwd", "group", "gitconfig")],
    ]
    return [{"name": VOLUME, "subPath": part, "mountPath": path, "readOnly": only} for part, path, only in shown]


def shape(spawner: Any, pod: Any) -> Any:
    """KubeSpawner's modify_pod_hook: the pod of whoever logs in, as their user, with their folders and no others'."""
    person = people().get(spawner.user.name)
    if person is None:
        raise web.HTTPError(403, f"{spawner.user.name} is not enrolled in this course.")
    course, claim = setting("course"), setting("claim")
    uid, home = int(person["uid"]), f"/home/{person['name']}"
    container = pod.spec.containers[0]
    pod.spec.volumes = [
        *(pod.spec.volumes or []),
        {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim}},
        {"name": "exchange", "emptyDir": {"sizeLimit": "1Mi"}},  # nbgrader wants to write its root, and writes nothing
    ]
    container.volume_mounts = [
        *(container.volume_mounts or []), {"name": "exchange", "mountPath": EXCHANGE}, *mounts(course, person),
    ]  # fmt: skip
    # no fsGroup: it would give the whole volume to one group
    pod.spec.security_context = {
        "runAsUser": uid, "runAsGroup": uid, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    container.security_context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container.working_dir = home
    named = {"HOME": home, "USER": person["name"], "LOGNAME": person["name"]}
    container.env = [one for one in container.env or [] if _name(one) not in named]
    container.env += [{"name": key, "value": value} for key, value in named.items()]
    return pod


def _name(variable: Any) -> str:
    return variable["name"] if isinstance(variable, dict) else str(variable.name)


def setting(name: str) -> str:
    """A value of `custom.course` in values.yaml."""
    from z2jh import get_config as of_the_chart

    return str(of_the_chart(f"custom.course.{name}"))


def configure(c: Any) -> None:
    """Set the hub up: the people of people.csv, their groups, and the shape of their pods."""
    everybody = people()
    c.Authenticator.allowed_users = set(everybody)
    c.Authenticator.allow_existing_users = False  # who once was enrolled and is no more stays out
    c.JupyterHub.load_groups = {
        f"{group}-{setting('course')}": {"users": [n for n, row in everybody.items() if row["role"] == role]}
        for role, group in GROUPS.items()
    }
    c.KubeSpawner.modify_pod_hook = shape
    c.KubeSpawner.enable_user_namespaces = False


if "c" in globals():  # the chart runs this file among the names of its own configuration
    configure(c)  # noqa: F821
