"""Renders pods from deploy/kubernetes by the chart's own spawner and holds all manifests to Kubernetes' schemas.

    .venv-k8s/bin/python tests/deploy/render_pods.py PEOPLE.csv < JOB.json

Prints one JSON object: pods (by person and profile), how the hub was configured, and what was refused by which version.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import yaml
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from traitlets.config import Config

# Declared by deploy/kubernetes/requirements-test.lock alone: the project itself needs none of them.
kubernetes_validate = import_module("kubernetes_validate")
kubespawner = import_module("kubespawner.spawner")
ApiClient = import_module("kubernetes_asyncio.client").ApiClient

HERE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VALUES = yaml.safe_load((HERE / "values.yaml").read_text())
VERSIONS = ("1.31", "1.34", "1.37")
# How the chart's own jupyterhub_config.py hands `singleuser` on to KubeSpawner: trait, path of the value.
TRAITS = {
    "start_timeout": "startTimeout", "uid": "uid", "fs_gid": "fsGid", "mem_limit": "memory.limit",
    "mem_guarantee": "memory.guarantee", "cpu_limit": "cpu.limit", "cpu_guarantee": "cpu.guarantee",
    "environment": "extraEnv", "profile_list": "profileList", "volumes": "storage.extraVolumes",
    "volume_mounts": "storage.extraVolumeMounts", "default_url": "defaultUrl", "cmd": "cmd",
    "allow_privilege_escalation": "allowPrivilegeEscalation",
}  # fmt: skip


def value(path: str, start: Any = VALUES) -> Any:
    for part in path.split("."):
        start = start.get(part) if isinstance(start, dict) else None
    return start


def configured() -> Config:
    """The configuration of the chart, then that of hub_config.py."""
    c = Config()
    for trait, path in TRAITS.items():
        given = value(path, VALUES["singleuser"])
        if given is not None:
            c.KubeSpawner[trait] = given
    image = VALUES["singleuser"]["image"]
    c.KubeSpawner.image = f"{image['name']}:{image['tag']}"
    sys.modules["z2jh"] = ModuleType("z2jh")
    sys.modules["z2jh"].get_config = value
    text = (HERE / "hub_config.py").read_text()
    exec(compile(text, "hub_config.py", "exec"), {"c": c, "get_config": value, "__name__": "config"})  # as the chart
    return c


async def roles(c: Config) -> dict[str, Any]:
    """What a real hub makes of the configuration, with the services and roles of values.yaml: who has which rights."""
    hub = VALUES["hub"]
    c.JupyterHub.services = [one | {"name": name, "api_token": "x" * 32} for name, one in hub["services"].items()]
    c.JupyterHub.load_roles = [one | {"name": name} for name, one in hub["loadRoles"].items()]
    c.JupyterHub.spawner_class, c.JupyterHub.authenticator_class = "simple", "shared-password"
    c.JupyterHub.db_url, c.JupyterHub.cookie_secret = "sqlite://", bytes(32)
    c.SharedPasswordAuthenticator.user_password = "only-for-this-test"
    app = JupyterHub(config=c)
    await app.initialize([])
    told = {}
    for role in app.db.query(orm.Role):
        if role.name in hub["loadRoles"]:
            holders = [*(g.name for g in role.groups), *(s.name for s in role.services)]
            told[role.name] = {"scopes": sorted(role.scopes), "holders": holders}
    told["members"] = {group.name: sorted(user.name for user in group.users) for group in app.db.query(orm.Group)}
    app.db.close()
    return told


def spawner(c: Config, name: str) -> Any:
    user = Mock()
    user.name = user.escaped_name = name
    user.url, user.server = f"/user/{name}/", Mock(base_url=f"/user/{name}/")
    hub = Mock(public_host="", base_url="/hub/", api_url="http://hub:8081/hub/api", cookie_name="x")
    known = Mock(server=None)
    known.name = ""
    made = kubespawner.KubeSpawner(config=c, user=user, orm_spawner=known, hub=hub, _mock=True)
    made.api_token, made.oauth_client_id, made.hub_connect_url = "token", "client", None
    made.public_url = made.public_hub_url = ""
    return made


async def render(c: Config, name: str, profile: str) -> Any:
    made = spawner(c, name)
    made.user_options = {"profile": profile}
    await made.load_user_options()
    pod = made.modify_pod_hook(made, await made.get_pod_manifest())
    async with ApiClient() as client:
        return client.sanitize_for_serialization(pod)


def documents() -> list[tuple[str, Any]]:
    """All manifests of the folder."""
    made = []
    for path in sorted(HERE.glob("*.yaml")):
        if path.name not in ("values.yaml", "class.yaml"):
            text = re.sub(r"[A-Z]+(?=[:/-][A-Za-z])|STORAGE-CLASS|\bTAG\b", "x", path.read_text())
            made += [(path.name, one) for one in yaml.safe_load_all(text)]
    return made


def refused(name: str, manifest: Any) -> list[str]:
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            found.append(f"{name} under {version}: {error.message}")
    return found


def main() -> None:
    kubespawner.load_config = lambda **_: None  # of a cluster, which is not asked for anything
    os.environ["COURSE_PEOPLE"] = sys.argv[1]
    job = json.load(sys.stdin)
    c = configured()
    pods, wrong = {}, refused("the Job of a submission", job)
    for name in ("ada", "bo", "grace"):
        for profile in ("cpu", "gpu", "mig"):
            pods[f"{name}/{profile}"] = pod = asyncio.run(render(c, name, profile))
            wrong += refused(f"pod of {name}, {profile}", pod)
    for name in ("cy", "mallory"):  # one who has left, one who never came
        try:
            asyncio.run(render(c, name, "cpu"))
            pods[name] = "given"
        except Exception as error:
            pods[name] = str(error)
    checked = documents()
    for file, document in checked:
        wrong += refused(f"{file}: {document['kind']} {document['metadata']['name']}", document)
    hub = {"groups": c.JupyterHub.load_groups, "allowed": sorted(c.Authenticator.allowed_users),
           "existing": c.Authenticator.allow_existing_users}  # fmt: skip
    kinds = sorted(document["kind"] for _, document in checked)
    hub["roles"] = asyncio.run(roles(c))
    print(json.dumps({"pods": pods, "refused": wrong, "hub": hub, "kinds": kinds}))


if __name__ == "__main__":
    main()
