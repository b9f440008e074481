"""Jupyter's settings for each role, as files: which extensions run, where nbgrader finds its exchange.

A folder for each role, read-only for whoever's server it is and first in JUPYTER_CONFIG_PATH: switching nbgrader's
extensions by `jupyter labextension disable` locks them for everybody (JupyterLab 4.1 and newer).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from autograder.course import REPO
from autograder.hub.layout import Layout
from autograder.hub.shield import EXCHANGE

EXTENSIONS = ("formgrader", "assignment_list", "validate_assignment", "course_list", "create_assignment")
RUNS = {
    "student": {"assignment_list", "validate_assignment"},
    "instructor": {"assignment_list", "validate_assignment"},
    "grader": {"formgrader"},
}

STUDENT_NBGRADER = """import os
from pathlib import Path

c = get_config()
c.CourseDirectory.course_id = {course!r}
c.CourseDirectory.student_id = os.environ["JUPYTERHUB_USER"]  # never the name that the operating system has
c.Exchange.root = {exchange!r}
labs = Path.home() / "course" / "labs"  # beside the lectures, whose index links there
c.Exchange.assignment_dir = str(labs) if labs.is_dir() else "."
c.ExecutePreprocessor.timeout = 120
"""

GRADER_NBGRADER = """from pathlib import Path

from autograder.course import nbgrader_config
from autograder.hub import exchange
from autograder.hub.layout import Layout

c = get_config()
here = Layout.of(Path({folder!r}))
c.merge(nbgrader_config(here.course))  # submissions run in the project's sandbox
c.CourseDirectory.course_id = {course!r}
c.Exchange.root = str(here.exchange)
c.ExchangeFactory.release_assignment = exchange.ReleaseAssignment
c.ExchangeFactory.release_feedback = exchange.ReleaseFeedback
c.ExchangeFactory.collect = exchange.Collect
"""


def write_settings(layout: Layout) -> None:
    """Write the settings of all three roles."""
    for role in RUNS:
        folder = layout.settings(role)
        (folder / "labconfig").mkdir(parents=True, exist_ok=True)
        _json(folder / "jupyter_server_config.json", _server(layout, role))
        # Nobody builds JupyterLab here: asking whether it should be costs each server a run of node.
        page = {"disabledExtensions": _hidden(role), "buildAvailable": False, "buildCheck": False}
        _json(folder / "labconfig" / "page_config.json", page)
        _json(folder / "labconfig" / "default_setting_overrides.json", _looks())
        text = GRADER_NBGRADER if role == "grader" else STUDENT_NBGRADER
        values = {"course": layout.spec.course, "exchange": EXCHANGE, "folder": str(layout.folder)}
        (folder / "nbgrader_config.py").write_text(text.format(**values), encoding="utf-8")


def _server(layout: Layout, role: str) -> dict[str, Any]:
    runs = {f"nbgrader.server_extensions.{name}": name in RUNS[role] for name in EXTENSIONS[:4]}
    extensions = runs | {"nbgitpuller": role != "grader", "jupyter_resource_usage": role != "grader"}
    server: dict[str, Any] = {"jpserver_extensions": extensions}
    # Kernels talk by sockets in their owner's folder: no ports to run out of, or to be listened on.
    settings: dict[str, Any] = {"ServerApp": server, "KernelManager": {"transport": "ipc"}}
    settings["LabApp"] = {"extension_manager": "readonly"}  # the other asks PyPI what there is
    if role == "grader":
        server |= {"allow_root": True, "root_dir": str(layout.data), "default_url": "/formgrader/"}
        settings["HubOAuth"] = {"cache_max_age": 30}  # seconds that one who is taken out may still look
        # JupyterLab shows formgrader in a frame of the same address; the hub's default forbids frames altogether.
        server["tornado_settings"] = {"headers": {"Content-Security-Policy": "frame-ancestors 'self'"}}
    else:
        settings["ResourceUseDisplay"] = {"mem_warning_threshold": 0.1, "track_cpu_percent": True}
    return settings


def _hidden(role: str) -> dict[str, bool]:
    """Parts of the page that this role does not have, and the news prompt, which would ask the network."""
    names = [name for name in EXTENSIONS if name not in RUNS[role]]
    hidden = {f"@jupyter/nbgrader:{name.replace('_', '-')}": True for name in names}
    return hidden | {"@jupyterlab/apputils-extension:announcements": True}


def _looks() -> dict[str, Any]:
    return {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def _json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def grader_environment(layout: Layout) -> dict[str, str]:
    """The grading service's environment, less what the hub adds."""
    from autograder.hub.shield import common

    return common(layout) | {
        "HOME": str(layout.data / "home"), "USER": "grader", "LOGNAME": "grader", "COURSE_DATA": str(layout.data),
        "PYTHONPATH": str(REPO), "JUPYTER_CONFIG_PATH": str(layout.settings("grader")),
    }  # fmt: skip


def run_as_grader(layout: Layout, *words: str, timeout: float, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these words as the grading service's user, in the course's folder; what it said is kept."""
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=timeout, cwd=layout.data,
        env=grader_environment(layout), **layout.run_as(layout.grader_uid), **more,
    )  # fmt: skip
