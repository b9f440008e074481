"""What hostile code of a student looks for: the same lines run in the grader, in a student's server, and outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from autograder.course import REPO
from tests.hub.a_class import RunningClass

SPY = """import glob, json, os, urllib.error, urllib.request
def _ask(url):
    _head = {"Authorization": "token " + os.environ.get("JUPYTERHUB_API_TOKEN", "none")}
    _open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    try:
        return _open(urllib.request.Request(url, headers=_head), timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
def _names(path):
    try:
        return [word.split(b"=")[0].decode() for word in open(path, "rb").read().split(b"\\0")]
    except OSError:
        return []
_set = list(os.environ) + [name for path in glob.glob("/proc/[0-9]*/environ") for name in _names(path)]
print("SEEN", json.dumps({
    "tokens": sorted({name for name in _set if "TOKEN" in name or "JUPYTERHUB" in name}),
    "paths": [path for path in PATHS if os.path.exists(path)],
    "answers": [_ask(url) for url in URLS],
}))
"""
OPEN, CLOSED = "hub/health", 403


def secrets(klass: RunningClass) -> list[str]:
    """Files that no student's code may see: each exists by the time that submissions are graded."""
    layout = klass.layout
    found = [
        layout.folder, layout.people, layout.config, layout.secrets / "enrol_token", layout.hub / "jupyterhub.sqlite",
        layout.data / "gradebook.db", layout.data / "submitted" / "ada", layout.exchange, layout.home("ada"),
        layout.inbound("ada"), REPO / "solutions", REPO / "tests",
    ]  # fmt: skip
    return [str(path) for path in found]


def doors(klass: RunningClass) -> list[str]:
    """Addresses: one that is open to whoever reaches the hub, then those that only others' tokens open."""
    at, course = klass.layout.spec.address, klass.layout.spec.course
    api = f"http://127.0.0.1:{at.hub}/hub/api"
    closed = [f"{api}/{name}" for name in ("users", "users/ada", f"groups/formgrade-{course}", "proxy", "services")]
    closed += [f"http://127.0.0.1:{at.proxy}/api/routes", f"{at.url}user/ada/api/contents"]
    closed += [f"http://127.0.0.1:{at.grader}/services/{course}/api/contents"]
    return [at.url + OPEN, *closed]


def spy(klass: RunningClass) -> str:
    """The lines, for a cell."""
    return SPY.replace("PATHS", repr(secrets(klass))).replace("URLS", repr(doors(klass)))


def seen(printed: str) -> dict[str, list]:
    """What the lines printed."""
    return json.loads(re.search(r"SEEN (\{.*\})", printed).group(1))


def seen_outside(klass: RunningClass) -> dict[str, list]:
    """What the lines see where nothing hides anything: or that they see nothing elsewhere would mean nothing."""
    env = {"JUPYTERHUB_API_TOKEN": "none", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", spy(klass)], env=env, capture_output=True, text=True, timeout=240)
    return seen(done.stdout)
