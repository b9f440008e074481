"""Pods as the chart's own spawner makes them from deploy/kubernetes, a hub that takes its configuration, and all
manifests under Kubernetes' own schemas. The tools are in an environment of their own; the test says how to make it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autograder.course import REPO
from autograder.sandbox import Limits, job

pytestmark = pytest.mark.deploy
PYTHON = REPO / ".venv-k8s" / "bin" / "python"
# As autograder.hub.people writes it: cy has left.
PEOPLE = """name,role,uid,active,first,last,email
ada,student,500001,yes,Ada,Lovelace,ada@example.org
bo,student,500002,yes,,,
grace,instructor,500003,yes,,,
cy,student,500004,no,,,
"""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not PYTHON.exists():
        pytest.fail(
            "The chart's spawner and Kubernetes' schemas are not here: python3 -m venv .venv-k8s && "
            ".venv-k8s/bin/pip install --no-deps -r deploy/kubernetes/requirements-test.lock",
            pytrace=False,
        )
    folder = tmp_path_factory.mktemp("rendered")
    (folder / "people.csv").write_text(PEOPLE)
    made = json.dumps(job.manifest("answers-1", job.Place("image.example/course:1"), Limits()))
    words = [PYTHON, Path(__file__).with_name("render_pods.py"), folder / "people.csv"]
    done = subprocess.run(words, input=made, capture_output=True, text=True, timeout=240, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_every_manifest_and_pod_is_one_that_kubernetes_takes(rendered: dict[str, Any]) -> None:
    assert rendered["refused"] == []
    kinds = {"Deployment", "Job", "NetworkPolicy", "Role", "RoleBinding", "PersistentVolumeClaim", "ResourceQuota"}
    assert kinds <= set(rendered["kinds"])


def test_a_real_hub_takes_people_groups_and_roles(rendered: dict[str, Any]) -> None:
    hub = rendered["hub"]
    assert (hub["allowed"], hub["existing"]) == (["ada", "bo", "grace"], False)
    assert hub["roles"] == {
        "instructors": {"scopes": ["access:services!service=llm"], "holders": ["formgrade-llm"]},
        "grading": {"scopes": [], "holders": ["llm"]},
        "members": {"nbgrader-llm": ["ada", "bo"], "formgrade-llm": ["grace"]},
    }


@pytest.mark.parametrize(("name", "uid", "role"), [("ada", 500_001, "student"), ("grace", 500_003, "instructor")])
def test_a_pod_is_its_persons_and_mounts_nobody_elses(
    rendered: dict[str, Any], name: str, uid: int, role: str
) -> None:
    spec = rendered["pods"][f"{name}/cpu"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsUser": uid, "runAsGroup": uid, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert spec["automountServiceAccountToken"] is False and "initContainers" not in spec
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {m["subPath"]: m for m in container["volumeMounts"] if m["name"] == "class"}
    assert all("subPath" in m for m in container["volumeMounts"] if m["name"] == "class"), "the whole volume is mounted"
    others = {"ada", "bo", "grace", "cy"} - {name}
    assert not [path for path in mounts if set(path.split("/")) & others]
    writable = sorted(path for path, mount in mounts.items() if not mount["readOnly"])
    assert writable == [f"exchange/llm/inbound/{name}", f"homes/{name}"]
    assert f"config/{role}" in mounts and not [path for path in mounts if path.startswith(("course", "secrets", "hub"))]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (env["HOME"], env["JUPYTERHUB_USER"], env["OMP_NUM_THREADS"]) == (f"/home/{name}", name, "1")
    assert container["workingDir"] == mounts[f"homes/{name}"]["mountPath"] == f"/home/{name}"


def test_shared_memory_counts_in_the_limit_and_profiles_add_a_gpu(rendered: dict[str, Any]) -> None:
    for profile, memory, extra in (
        ("cpu", 4 << 30, {}),
        ("gpu", 16 << 30, {"nvidia.com/gpu": "1"}),
        ("mig", 8 << 30, {"nvidia.com/mig-1g.10gb": "1"}),
    ):
        spec = rendered["pods"][f"bo/{profile}"]["spec"]
        (container,) = spec["containers"]
        limits = dict(container["resources"]["limits"])
        assert (limits.pop("memory"), limits.pop("cpu") > 0, limits) == (memory, True, extra)
        (shm,) = [v["emptyDir"] for v in spec["volumes"] if v["name"] == "shm"]
        assert shm == {"medium": "Memory", "sizeLimit": "1Gi"}, "without a limit it is sized by the node"
        assert [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "shm"] == ["/dev/shm"]


def test_who_has_left_or_never_came_gets_no_pod(rendered: dict[str, Any]) -> None:
    for name in ("cy", "mallory"):
        assert f"403: Forbidden ({name} is not enrolled in this course.)" in rendered["pods"][name]


def test_kubectl_itself_reads_the_job() -> None:
    """`--local` decodes a manifest as the client does, without a server."""
    if shutil.which("kubectl") is None:
        pytest.fail("kubectl is not here: apt-get install kubernetes-client.", pytrace=False)
    made = json.dumps(job.manifest("answers-1", job.Place("image.example/course:1"), Limits()))
    words = ["kubectl", "set", "image", "--local", "-f", "-", "answers=image.example/course:2", "-o", "json"]
    done = subprocess.run(words, input=made, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    pod = json.loads(done.stdout)["spec"]["template"]["spec"]
    before = json.loads(made)["spec"]["template"]["spec"]
    assert pod["containers"][0].pop("image") == "image.example/course:2"
    before["containers"][0].pop("image")
    assert pod == before, "kubectl dropped or changed a field"
