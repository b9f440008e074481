"""A stand-in for kubectl and the cluster behind it, for tests on a machine that has none.

    kubectl [--context C] --namespace N create|get|exec|delete|auth ...

Jobs and pods are JSON files in the folder STANDIN. A pod really runs: its first process in bubblewrap with the mounts,
the user and the environment of the manifest, `exec` by joining its namespaces. What a cluster does besides (schedule,
pull, evict, forbid) is told by the file `does.json` there; see `does`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(os.environ["STANDIN"])
PYTHON = sys.executable  # the image's
POLICY = {
    "metadata": {"name": "submissions-have-no-network"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}


def does(what: str, otherwise: Any = None) -> Any:
    """What the cluster does out of the ordinary: waiting, absent, garbage, hang, cannot, policies, evict, ..."""
    path = HERE / "does.json"
    return json.loads(path.read_text()).get(what, otherwise) if path.exists() else otherwise


def stop(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    raise SystemExit(code)


def option(words: list[str], name: str) -> str:
    """The value of an option, "" where it is not there."""
    for i, word in enumerate(words):
        if word == name:
            return words[i + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return ""


def create() -> None:
    job = json.load(sys.stdin)
    if does("refused"):
        stop(does("refused"))
    name = job["metadata"]["name"]
    (HERE / f"{name}.job").write_text(json.dumps(job))
    if not does("absent"):
        write(name, {"waiting": does("waiting") or {"reason": "ContainerCreating"}}, "Pending")
    if not does("waiting") and not does("absent") and not does("unschedulable"):
        with open(HERE / f"{name}.log", "wb") as log:
            subprocess.Popen(
                [sys.executable, __file__, "kubelet", name], start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
    print(f"job.batch/{name} created")


def write(name: str, state: dict[str, Any], phase: str, **more: Any) -> None:
    """Write a pod's file, whole."""
    status: dict[str, Any] = {"phase": phase, "containerStatuses": [{"name": "answers", "state": state}], **more}
    if reason := does("unschedulable"):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}
        status = {"phase": phase, "conditions": [condition]}
    pod = {"metadata": {"name": f"{name}-x1y2z", "labels": {"job-name": name}}, "status": status}
    part = HERE / f"{name}.part"
    part.write_text(json.dumps(pod))
    part.replace(HERE / f"{name}.pod")


def kubelet(name: str) -> None:
    """Run a Job's pod until it ends."""
    job = json.loads((HERE / f"{name}.job").read_text())
    read, told = os.pipe()
    os.set_inheritable(told, True)
    words = [*place(job), "--info-fd", str(told), "--as-pid-1", "--", *command(job)]
    process = subprocess.Popen(words, pass_fds=[told], env={"PATH": os.environ["PATH"]}, cwd="/")
    os.close(told)
    info = b""
    while b"}" not in info:
        info += os.read(read, 4096)
    (HERE / f"{name}.init").write_text(str(json.loads(info)["child-pid"]))
    write(name, {"running": {}}, "Running")
    code = process.wait()
    end = json.loads((HERE / f"{name}.end").read_text()) if (HERE / f"{name}.end").exists() else {}
    ended = {"exitCode": 128 - code if code < 0 else code, "reason": end.pop("terminated", "Completed")}
    write(name, {"terminated": ended}, "Failed" if code or end else "Succeeded", **end)


def place(job: dict[str, Any]) -> list[str]:
    """The bubblewrap command that makes a pod's surroundings, after its manifest."""
    from autograder.sandbox.mounts import interpreter_folders, system_folders  # seconds, and the pod's alone

    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    uid = str(spec["securityContext"]["runAsUser"])
    argv = ["bwrap", "--unshare-user", "--uid", uid, "--gid", uid, "--unshare-ipc", "--unshare-pid", "--unshare-uts"]
    argv += [] if does("network") else ["--unshare-net"]
    argv += ["--hostname", spec["hostname"], "--clearenv", *system_folders(), "--dir", "/etc", "--proc", "/proc"]
    argv += ["--dev", "/dev"]
    for path in interpreter_folders():
        argv += ["--ro-bind", str(path), str(path)]
    volumes = {one["name"]: one["emptyDir"] for one in spec["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        assert volume["medium"] == "Memory"
        argv += ["--perms", "1777", "--size", volume["sizeLimit"], "--tmpfs", mount["mountPath"]]
    argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", container["workingDir"]]
    return argv


def command(job: dict[str, Any]) -> list[str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = [f"{one['name']}={one['value']}" for one in container["env"]]
    return ["/usr/bin/env", "-i", f"PATH={Path(PYTHON).parent}:/usr/bin:/bin", *does("env", []), *env,
            *container["command"]]  # fmt: skip


def execute(words: list[str]) -> None:
    """`exec -i POD -c answers -- WORDS`: what kubectl does, and its words where what ran there failed."""
    name = words[words.index("-i") + 1].rpartition("-")[0]
    if does("garbage"):
        os.write(1, does("garbage").encode())
        time.sleep(30)
    if does("hang"):
        time.sleep(does("hang"))
        raise SystemExit(1)
    init = (HERE / f"{name}.init").read_text()
    job = json.loads((HERE / f"{name}.job").read_text())
    env = command(job)
    env = env[: next(i for i, word in enumerate(env) if word == "python")]
    inside = ["nsenter", "--target", init, "--user", "--preserve-credentials", "--mount", "--pid", "--net", "--ipc",
              "--uts", "--wd=/", "setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]  # fmt: skip
    code = subprocess.run([*inside, *env, *words[words.index("--") + 1 :]]).returncode
    if does("broken"):
        stop("error: unexpected EOF")
    if code:
        stop(f"command terminated with exit code {128 - code if code < 0 else code}", 128 - code if code < 0 else code)


def get(words: list[str]) -> None:
    kind = words[0]
    chosen = (option(words, "--selector") or option(words, "--field-selector")).partition("=")[2].partition(",")[0]
    if kind == "networkpolicies":
        found = does("policies", [POLICY])
    elif kind == "events":
        found = [{"message": does("absent")}] if does("absent") else []
    elif kind == "jobs":
        found = [{"status": {"conditions": does("job", [])}}]
    else:
        path = HERE / f"{chosen}.pod"
        found = [json.loads(path.read_text())] if path.exists() else []
    print(json.dumps({"items": found}))


def delete(words: list[str]) -> None:
    name = words[1]
    init, pod = HERE / f"{name}.init", HERE / f"{name}.pod"
    if init.exists():
        end(int(init.read_text()))
    until = time.monotonic() + 30
    while "foreground" in option(words, "--cascade") and running(pod) and time.monotonic() < until:
        time.sleep(0.05)
    for path in (pod, HERE / f"{name}.job"):
        path.unlink(missing_ok=True)
    if does("stuck"):
        stop("error: timed out waiting for the condition on jobs/" + name)


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def running(pod: Path) -> bool:
    try:
        return json.loads(pod.read_text())["status"]["phase"] == "Running"
    except (OSError, ValueError):
        return False


def main(words: list[str]) -> None:
    while words[0].startswith("--"):
        words = words[2:]
    with open(HERE / "log", "a") as log:
        log.write(" ".join(words) + "\n")
    verb, rest = words[0], words[1:]
    if verb == "auth":
        print(does("can", "yes")) if does("can", "yes") in ("yes", "no") else stop(does("can"))
        raise SystemExit(does("can", "yes") != "yes")
    if verb == "create":
        create()
    elif verb == "kubelet":
        kubelet(*rest)
    else:
        {"get": get, "exec": execute, "delete": delete}[verb](rest)


if __name__ == "__main__":
    main(sys.argv[1:])
