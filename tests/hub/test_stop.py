"""A hub that is killed comes back to the same servers, and one that is stopped leaves nothing. Named to run last."""

from __future__ import annotations

import json
import os
import signal

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="make test-hub has an environment with a browser")

from autograder.hub.api import Hub  # noqa: E402
from tests.hub.a_class import RunningClass, processes_of  # noqa: E402
from tests.hub.browsing import Student, open_browser, pictures_folder, until  # noqa: E402

pytestmark = [pytest.mark.hub, pytest.mark.timeout(400)]


def test_a_killed_hub_comes_back_to_the_same_servers(klass: RunningClass) -> None:
    with playwright.sync_playwright() as driver:
        browser = open_browser(driver)
        ada = Student(browser, klass.url, "ada", klass.passwords["ada"], pictures_folder(keep=True))
        ada.log_in()
        started = json.loads(ada.ask("GET", "/user/ada/api/status"))["started"]
        pid = int((klass.layout.hub / "hub.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        until("the hub was started again", lambda: not os.path.exists(f"/proc/{pid}") and Hub(klass.layout).runs(), 120)
        until("ada's server is reached", lambda: reached(ada, started), 120)
        browser.close()


def reached(ada: Student, started: str) -> bool:
    """Whether the server that ran before the hub was killed answers through the new proxy."""
    try:
        return json.loads(ada.ask("GET", "/user/ada/api/status"))["started"] == started
    except (AssertionError, ValueError, playwright.Error):
        return False


def test_stopping_leaves_no_process(klass: RunningClass) -> None:
    """Runs last: the class that was used is stopped, with servers and kernels running."""
    assert any("singleuser" in line for line in processes_of(klass.layout.folder))
    assert "nothing of it is left" in klass.stop()
    assert klass.process.returncode == 0
    assert processes_of(klass.layout.folder) == []
