"""The sandbox of a cluster up to where a pod runs: its Job, what is refused and why; and the values of the hub's chart.

No cluster runs where this was written: what a cluster itself does is told to the stand-in (standin_kubectl.py).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autograder.course import REPO
from autograder.sandbox import Limits, SandboxRefused, job, kubectl, open_sandbox, pod, why_not
from autograder.sandbox.kubectl import seen

HERE = REPO / "deploy" / "kubernetes"
TOY = "lab90_toy"
needs_bubblewrap = pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why")


# -- the Job -----------------------------------------------------------------------------------------------------------
def test_the_job_asks_for_nothing_that_a_submission_needs_not() -> None:
    made = job.manifest("answers-1", job.Place("image:1", cpu="2"), Limits(memory_bytes=3 << 30, shm_bytes=7 << 20))
    spec, template = made["spec"], made["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert (spec["backoffLimit"], template["spec"]["restartPolicy"]) == (0, "Never")
    assert spec["activeDeadlineSeconds"] == 3600 and spec["ttlSecondsAfterFinished"] == 60
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert 10_000 <= template["spec"]["securityContext"]["runAsUser"] < 65_000
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    wanted = {"cpu": "2", "memory": str(3 << 30), "ephemeral-storage": str(64 << 20)}
    assert container["resources"] == {"limits": wanted, "requests": wanted}
    sizes = {v["name"]: v["emptyDir"] for v in template["spec"]["volumes"]}
    assert all(volume["medium"] == "Memory" for volume in sizes.values())
    paths = {mount["mountPath"]: sizes[mount["name"]]["sizeLimit"] for mount in container["volumeMounts"]}
    assert paths["/dev/shm"] == str(7 << 20) and {"/tmp", "/home/student", "/course", "/submission"} < set(paths)
    assert "configMap" not in json.dumps(made) and "secret" not in json.dumps(template["spec"]["volumes"])


def test_the_network_policy_of_the_folder_cuts_a_submission_off_and_others_do_not() -> None:
    documents = list(yaml.safe_load_all((HERE / "grading.yaml").read_text()))
    (policy,) = [one for one in documents if one["kind"] == "NetworkPolicy"]
    assert job.why_open([policy]) == ""
    assert "forbids a submission's pod its ingress and egress" in job.why_open([])
    half = {"metadata": {"name": "half"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
    assert "its ingress" in job.why_open([half])
    dns = {"metadata": {"name": "dns"}, "spec": {"podSelector": {"matchLabels": job.LABELS}, "egress": [{"ports": []}],
           "policyTypes": ["Egress"]}}  # fmt: skip
    assert job.why_open([policy, dns]) == "the network policy dns allows a submission's pod some egress"
    other = {"metadata": {"name": "x"}, "spec": {"podSelector": {"matchLabels": {"app": "x"}}, "egress": [{}]}}
    assert job.why_open([policy, other]) == ""


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
          "message": "0/3 nodes are available: 3 Insufficient memory."}]},
         {"state": "waiting", "why": "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."}),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
         {"state": "waiting", "hopeless": False}),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff",
          "message": "not found"}}}]}, {"state": "waiting", "hopeless": True, "why": "ImagePullBackOff: not found"}),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, {"state": "running"}),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled",
          "exitCode": 137}}}]}, {"state": "ended", "memory": True, "code": 137}),
        ({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed",
          "exitCode": 0}}}]},
         {"state": "ended", "code": 0, "why": ""}),
        ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
         {"state": "ended", "own": False, "why": "Evicted: The node was low on resource: memory."}),
        ({"phase": "Failed", "reason": "Evicted", "message": 'Usage of EmptyDir volume "tmp" exceeds the limit "1Gi".'},
         {"state": "ended", "own": True}),
        ({}, {"state": "waiting"}),
    ],
)  # fmt: skip
def test_a_pods_status_is_read_as_the_cluster_writes_it(status: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = seen({"metadata": {"name": "a"}, "status": status})
    assert {key: getattr(found, key) for key in wanted} == wanted


def test_settings_are_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "set COURSE_POD_IMAGE" in why_not("pod")
    monkeypatch.setenv("COURSE_POD_IMAGE", "image:1")
    monkeypatch.setenv("COURSE_POD_KUBECTL", "no-such-kubectl")
    assert "no-such-kubectl is not on PATH" in why_not("pod")
    monkeypatch.setenv("COURSE_POD_WAIT_S", "soon")
    assert why_not("pod") == "COURSE_POD_WAIT_S is 'soon': a number of seconds above 0."
    monkeypatch.delenv("COURSE_POD_WAIT_S")
    extra = tmp_path / "extra.yaml"
    monkeypatch.setenv("COURSE_POD_EXTRA", str(extra))
    assert "cannot be read" in why_not("pod")
    extra.write_text("hostNetwork: true\n")
    assert "COURSE_POD_EXTRA has 'hostNetwork': a submission's pod may be given affinity" in why_not("pod")
    extra.write_text("runtimeClassName: gvisor\nnodeSelector: {pool: grading}\n")
    made = job.manifest("a", job.Place.from_environment(), Limits())
    assert made["spec"]["template"]["spec"]["runtimeClassName"] == "gvisor"


def test_what_goes_into_a_pod_holds_nothing_hidden(tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(pod.code(("utils/engine", "utils/cost.py")))) as archive:
        names = archive.getnames()
    assert "utils/answering/serve.py" in names and "utils/planner/schedules.py" in names
    assert not [name for name in names if name.startswith("utils/engine") or name == "utils/cost.py" or "pyc" in name]
    (tmp_path / "data.txt").write_text("7")
    (tmp_path / "link").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "pipe")
    with tarfile.open(fileobj=io.BytesIO(pod.packed_folder(tmp_path, 1 << 20))) as held:
        assert sorted(held.getnames()) == [".", "./data.txt", "./link"] and held.getmember("./link").issym()
    with pytest.raises(SandboxRefused, match="more than the 0 MiB that a pod holds"):
        pod.packed_folder(tmp_path, 3)


# -- refusals ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("does", "told"),
    [
        ({"can": "no"}, "may not create jobs.batch in the namespace course-grading: apply deploy/kubernetes/grading"),
        ({"can": "The connection to the server localhost:8080 was refused"}, "cluster does not answer (The connection"),
        ({"policies": []}, "no network policy forbids"),
        ({"refused": 'Error from server (Forbidden): jobs.batch "a" is forbidden: exceeded quota'}, "exceeded quota"),
        ({"waiting": {"reason": "ErrImagePull", "message": "course:1: no such"}}, "ErrImagePull: course:1: no such"),
        ({"unschedulable": "0/3 nodes are available: 3 Insufficient cpu."}, "3 Insufficient cpu."),
        ({"absent": 'Error creating: pods "a" is forbidden: violates PodSecurity'}, "violates PodSecurity"),
        ({"absent": "-", "job": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}, "DeadlineExc"),
    ],
)  # fmt: skip
def test_no_pod_is_refused_with_the_clusters_reason(cluster, monkeypatch, does: dict[str, Any], told: str) -> None:
    cluster(**does)
    monkeypatch.setenv("COURSE_POD_WAIT_S", "1.5")
    with pytest.raises(SandboxRefused) as refused, open_sandbox("pod") as box:
        box.start()
    assert told in str(refused.value) and "\n" not in str(refused.value)


@needs_bubblewrap
@pytest.mark.parametrize(
    ("does", "told"),
    [
        ({"garbage": "a banner of the image, in no frame of ours"}, "it sent bytes that are no frame of ours"),
        ({"garbage": "H\x02\x00\x00\x00{}"}, "it sent a word of kind H that the program in the pod does not say"),
        ({"hang": 20}, "did not answer kubectl exec"),
    ],
)
def test_a_pod_that_does_not_speak_is_refused(cluster, monkeypatch, does: dict[str, Any], told: str) -> None:
    cluster(**does)
    monkeypatch.setenv("COURSE_POD_START_S", "3")
    with pytest.raises(SandboxRefused, match=told), open_sandbox("pod") as box:
        box.start()


@needs_bubblewrap
def test_a_cluster_that_does_not_enforce_its_policy_is_refused(cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api:
        port = api.getsockname()[1]
        env = ["KUBERNETES_SERVICE_HOST=127.0.0.1", f"KUBERNETES_SERVICE_PORT={port}"]
        cluster(network=True, env=env)
        told = f"reaches the cluster's API at 127.0.0.1:{port}"
        with pytest.raises(SandboxRefused, match=told), open_sandbox("pod") as box:
            box.start()


@needs_bubblewrap
def test_another_python_in_the_image_is_refused(cluster, monkeypatch) -> None:
    cluster()
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    with pytest.raises(SandboxRefused, match=r"the grader 3\.99: build it with --build-arg PYTHON=3\.99"), \
            open_sandbox("pod") as box:  # fmt: skip
        box.start()


def test_a_job_that_cannot_be_removed_is_said(cluster) -> None:
    cluster(stuck=True, unschedulable="no node")
    box = open_sandbox("pod")
    box.made = True
    with pytest.raises(RuntimeError, match=f"Job {box.name} in the namespace course-grading could not be removed"):
        box.close()


# -- the chart's values ------------------------------------------------------------------------------------------------
def test_values_have_only_keys_that_the_chart_takes() -> None:
    keys = yaml.safe_load(Path(__file__).with_name("chart_keys.yaml").read_text())
    assert unknown(values(), keys) == []
    wrong = {"singleuser": {"memmory": {}, "cpu": {"limits": 1}}}
    assert unknown(wrong, keys) == ["singleuser.memmory", "singleuser.cpu.limits"]


def values() -> dict[str, Any]:
    return yaml.safe_load((HERE / "values.yaml").read_text())


def unknown(given: Any, known: Any, path: str = "") -> list[str]:
    if not isinstance(known, dict) or not isinstance(given, dict):
        return []
    found = [f"{path}{key}" for key in given if key not in known]
    return found + [name for key in given if key in known for name in unknown(given[key], known[key], f"{path}{key}.")]


def test_values_keep_students_apart_and_to_their_limits() -> None:
    single = values()["singleuser"]
    policy = single["networkPolicy"]
    assert policy["enabled"] and not policy["egressAllowRules"]["privateIPs"]
    assert not policy["egressAllowRules"]["cloudMetadataServer"] and "ingress" not in policy and "egress" not in policy
    (shm,) = [v for v in single["storage"]["extraVolumes"] if v["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in single["storage"]["extraVolumeMounts"]
    assert single["uid"] is None and single["fsGid"] is None, "a pod takes its person's id, and no group for the volume"
    assert single["memory"] == {"guarantee": "2G", "limit": "4G"}
    assert {name: single["extraEnv"][name] for name in ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME")} == {
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip


def test_the_folder_agrees_with_itself_and_with_the_hub_of_one_machine(tmp_path: Path) -> None:
    from autograder.hub import shield
    from autograder.hub.layout import FIRST_UID, Layout

    spec = importlib.util.spec_from_file_location("hub_config", HERE / "hub_config.py")
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    assert (config.EXCHANGE, config.LECTURES, config.STUDENT, config.SETTINGS) == (
        shield.EXCHANGE, shield.LECTURES, shield.STUDENT, shield.SETTINGS)  # fmt: skip
    shutil.copy(HERE / "class.yaml", tmp_path / "class.yaml")
    (tmp_path / "roster.csv").write_text("name,first,last,email\nada,,,\n")
    layout = Layout.of(tmp_path)
    course, names = layout.spec.course, layout.settings("names") / "ada"
    mounted = {m["subPath"]: m["mountPath"] for m in config.mounts(course, {"name": "ada", "role": "student"})}
    own = [layout.home("ada"), layout.inbound("ada"), layout.feedback("ada"), layout.outbound, layout.student]
    own += [layout.lectures, layout.settings("student"), *(names / file for file in ("passwd", "group", "gitconfig"))]
    assert set(mounted) == {str(path.relative_to(layout.folder)) for path in own}
    assert mounted["homes/ada"] == shield.home("ada") and course == values()["custom"]["course"]["course"]
    single, hub = values()["singleuser"], values()["hub"]
    for name, value in shield.common(layout).items():
        if name != "PATH":
            assert single["extraEnv"][name] == value, f"{name} is another on one machine"
    documents = [d for path in HERE.glob("*.yaml") for d in yaml.safe_load_all(path.read_text())]
    (grader,) = [d for d in documents if d.get("kind") == "Deployment"]
    spec = grader["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsUser"] == FIRST_UID
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    (service,) = hub["services"]
    assert env["JUPYTERHUB_SERVICE_NAME"] == service == values()["custom"]["course"]["course"]
    assert env["JUPYTERHUB_SERVICE_PREFIX"] == f"/services/{service}/"
    assert env["COURSE_POD_NAMESPACE"] == job.Place("x").namespace
    (role,) = [d for d in documents if d.get("kind") == "Role"]
    allowed = {(verb, f"{r}.{g}" if g else r) for rule in role["rules"] for g in rule["apiGroups"]
               for r in rule["resources"] for verb in rule["verbs"]}  # fmt: skip
    assert set(kubectl.NEEDED) <= allowed and ("list", "networkpolicies.networking.k8s.io") in allowed
    assert "sandbox = \"pod\"" in str([d for d in documents if d.get("kind") == "ConfigMap"])


def test_the_image_of_submissions_has_no_file_of_the_course() -> None:
    text = (HERE / "Dockerfile").read_text()
    course, _, grader = text.partition(" AS grader")
    copied = [line for line in course.splitlines() if line.startswith(("COPY", "ADD"))]
    assert copied == ["COPY requirements.lock deploy/requirements-hub.lock /tmp/"]
    assert "COPY . /srv/repo" in grader and course.count("USER 1000") == grader.count("USER 1000") == 1
    ignored = (HERE / "Dockerfile.dockerignore").read_text().split()
    assert {".git", "course_data", "hub_data"} <= set(ignored)
    assert "/opt/venv/bin" in text and pod.PATH[0] == "/opt/venv/bin"


def test_repo2docker_finds_an_exact_python() -> None:
    entries = yaml.safe_load((REPO / "environment.yml").read_text())["dependencies"]
    pythons = [entry for entry in entries if isinstance(entry, str) and entry.startswith("python")]
    assert pythons[0].count("=") == 1 and pythons[0].startswith("python=3."), "a range makes it build for 3.10"
