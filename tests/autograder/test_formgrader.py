"""Formgrader on a running Jupyter server: its buttons grade in our sandbox and write our feedback page."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import nbformat
import pytest

from autograder.course import REPO, Course
from autograder.sandbox import why_not

TOY, TOKEN = "lab90_toy", "a-token-of-this-test"
CONFIG = """
from pathlib import Path
from autograder.course import Course, nbgrader_config
get_config().merge(nbgrader_config(Course(Path({solutions!r}), Path({releases!r}), Path({data!r}))))
"""

pytestmark = [
    pytest.mark.heavy, pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the sandbox's own tests say why"),
]  # fmt: skip


class Browser:
    """What a browser is to the server: cookies, and the token of forms in a header."""

    def __init__(self, port: int) -> None:
        self.base, self.cookies = f"http://127.0.0.1:{port}", CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies)
        )

    def ask(self, path: str, method: str = "GET") -> Any:
        xsrf = next((c.value for c in self.cookies if c.name == "_xsrf"), "")
        headers = {"Authorization": f"token {TOKEN}", "X-XSRFToken": xsrf}
        request = urllib.request.Request(self.base + path, b"" if method == "POST" else None, headers, method=method)
        with self.opener.open(request, timeout=300) as reply:
            return reply.read().decode()


@pytest.fixture
def server(toy_course: Course, answered: Callable[..., Any], tmp_path: Path) -> Iterator[tuple[Browser, Path]]:
    data = tmp_path / "data"
    place = data / "submitted" / "Bo" / TOY
    place.mkdir(parents=True)
    nbformat.write(answered(answer_steps="def answer_steps(p):\n    return 5"), place / f"{TOY}.ipynb")
    places = {"solutions": toy_course.solutions, "releases": toy_course.releases, "data": data}
    (data / "nbgrader_config.py").write_text(CONFIG.format(**{name: str(path) for name, path in places.items()}))
    from autograder.release import release

    release(Course(toy_course.solutions, toy_course.releases, data), TOY)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
         f"--ServerApp.root_dir={data}", f"--IdentityProvider.token={TOKEN}", "--ServerApp.port_retries=0"],
        cwd=data, env=os.environ | {"PYTHONPATH": str(REPO), "HOME": str(tmp_path)}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield started(Browser(port), process), data
    finally:
        process.terminate()
        process.wait(60)


def started(browser: Browser, process: subprocess.Popen[bytes]) -> Browser:
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        try:
            browser.ask("/formgrader/api/status")
            return browser
        except urllib.error.HTTPError as error:
            pytest.fail(f"formgrader does not answer: {error}")
        except OSError:
            time.sleep(0.3)
    raise AssertionError("the server did not start")


def test_its_buttons_grade_in_the_sandbox_and_write_our_page(server: tuple[Browser, Path]) -> None:
    browser, data = server
    (before,) = json.loads(browser.ask(f"/formgrader/api/submissions/{TOY}"))
    assert (before["student"], before["autograded"]) == ("Bo", False)
    assert "formgrader" in browser.ask(f"/formgrader/manage_submissions/{TOY}").lower()

    graded = json.loads(browser.ask(f"/formgrader/api/submission/{TOY}/Bo/autograde", "POST"))
    assert graded["success"], graded
    (after,) = json.loads(browser.ask(f"/formgrader/api/submissions/{TOY}"))
    told = [after[key] for key in ("autograded", "needs_manual_grade", "score", "max_score")]
    assert told == [True, False, 14, 20]
    notebook = nbformat.read(data / "autograded" / "Bo" / TOY / f"{TOY}.ipynb", as_version=4)
    assert notebook.metadata.grading.isolation.startswith("bubblewrap")

    written = json.loads(browser.ask(f"/formgrader/api/assignment/{TOY}/Bo/generate_feedback", "POST"))
    assert written["success"], written
    page = (data / "feedback" / "Bo" / TOY / f"{TOY}.html").read_text(encoding="utf-8")
    assert "5 messages: count both halves of the ring" in page and "secret_run" not in page
    assert browser.ask(f"/formgrader/gradebook/{TOY}/{TOY}")
