"""What a person does in the browser, one method an action; pictures are taken on the way."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, Playwright, expect

from tests.hub.needs import browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT_S = 90
FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"
ASK = """async ([method, path, kind, body]) => {
    const xsrf = document.cookie.split('; ').find(one => one.startsWith('_xsrf='))?.slice(6) ?? '';
    const reply = await fetch(path, {method, body, headers: {'Content-Type': kind, 'X-XSRFToken': xsrf}});
    return [reply.status, await reply.text()];
}"""


def open_browser(playwright: Playwright) -> Browser:
    """Debian's chromium, without a window and without traffic of its own."""
    return playwright.chromium.launch(executable_path=browser(), args=FLAGS)


def pictures_folder(keep: bool = False) -> Path:
    """Where pictures go: HUB_SCREENSHOTS, else build/hub_screenshots of the repository; emptied first, or kept."""
    folder = Path(os.environ.get("HUB_SCREENSHOTS") or Path(__file__).parents[2] / "build" / "hub_screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [] if keep else folder.glob("[0-9][0-9]_*.png"):
        old.unlink()
    return folder


class Person:
    """Somebody at a browser of their own. Pictures are numbered over all people."""

    taken = 0

    def __init__(self, browser: Browser, url: str, name: str, password: str, pictures: Path) -> None:
        self.url, self.name, self.password, self.pictures = url, name, password, pictures
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url.rstrip("/"))
        context.set_default_timeout(WAIT_S * 1000)
        self.page: Page = context.new_page()

    def picture(self, what: str, whole: bool = False) -> None:
        """Save what the page looks like now, or the whole of it, with what moves at its end."""
        Person.taken += 1
        path = self.pictures / f"{Person.taken:02d}_{self.name}_{what}.png"
        self.page.screenshot(path=path, animations="disabled", full_page=whole)

    def log_in(self) -> None:
        """Log in, and wait until the server is up, the lectures are pulled and their index is shown."""
        self.page.goto(self.url)
        self.page.fill("#username_input", self.name)
        self.page.fill("#password_input", self.password)
        self.page.click("#login_submit")
        self.page.wait_for_selector(f"{FRONT} .jp-RenderedHTMLCommon h1", timeout=2 * WAIT_S * 1000)
        self.kernel_idle()

    def ask(self, method: str, path: str, body: str = "", kind: str = "application/json") -> str:
        """A request of the page itself, with its cookies; the reply's text."""
        status, text = self.page.evaluate(ASK, [method, path, kind, body or None])
        assert status < 300, f"{method} {path}: {status} {text[:500]}"
        return text


class Student(Person):
    """What is done in JupyterLab."""

    def open(self, path: str) -> None:
        """Open a notebook of the home."""
        self.page.goto(f"{self.url}user/{self.name}/lab/tree/{path}")
        tab = self.page.locator(".lm-TabBar-tab.lm-mod-current .lm-TabBar-tabLabel", has_text=Path(path).name)
        tab.first.wait_for()
        self.kernel_idle()

    def kernel_idle(self, limit_s: float = 2 * WAIT_S) -> None:
        """Wait until the notebook has a kernel, and it has nothing to do: without one it counts as idle too."""
        name = self.page.locator(f"{FRONT} .jp-Toolbar-kernelName", has_text="Python 3")
        expect(name).to_be_visible(timeout=limit_s * 1000)
        state = self.page.locator(f"{FRONT} .jp-Notebook-ExecutionIndicator")
        expect(state).to_have_attribute("data-status", "idle", timeout=limit_s * 1000)

    def menu(self, *words: str) -> None:
        """Choose from the menu bar."""
        self.page.locator(".lm-MenuBar-item", has_text=re.compile(f"^{words[0]}$")).click()
        for word in words[1:]:
            self.page.locator(".lm-Menu-item", has_text=re.compile(f"^{word}")).last.click()

    def run_all(self, limit_s: float = 240) -> None:
        """Run all cells, and wait until none runs any more."""
        running = self.page.locator(f"{FRONT} .jp-InputPrompt", has_text="[*]")
        self.menu("Run", "Run All Cells")
        expect(running.first).to_be_attached()
        expect(running).to_have_count(0, timeout=limit_s * 1000)
        self.kernel_idle()

    def cell(self, text: re.Pattern[str]) -> Locator:
        """The code cell of the notebook in front that has a text."""
        found = self.page.locator(f"{FRONT} .jp-CodeCell", has_text=text)
        expect(found).to_have_count(1)
        return found

    def output(self, text: str, kind: str) -> Locator:
        """An output of the cell that has a text, in view: JupyterLab draws outputs when they come into view."""
        cell = self.cell(re.compile(text))
        cell.scroll_into_view_if_needed()
        output = cell.locator(kind).first
        output.scroll_into_view_if_needed()
        return output

    def paste(self, cell: Locator, text: str) -> None:
        """Replace a cell's source by what is on the clipboard."""
        self.page.evaluate("text => navigator.clipboard.writeText(text)", text)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.press("Control+V")

    def save(self) -> None:
        """Save the notebook, and wait until it is."""
        with self.page.expect_response(lambda reply: reply.request.method == "PUT" and "/api/contents/" in reply.url):
            self.page.keyboard.press("Control+S")

    def validate(self, limit_s: float = 300) -> str:
        """Press Validate; what the dialog says. The dialog stays for a picture."""
        bar = self.page.locator(f"{FRONT} .jp-Toolbar", has_text="Validate")
        bar.get_by_text("Validate").click()
        dialog = self.page.locator(".jp-Dialog", has_text="Validation Results")
        dialog.wait_for(timeout=limit_s * 1000)
        return dialog.inner_text()

    def close_dialog(self) -> None:
        """Close the dialog in front."""
        self.page.locator(".jp-Dialog button", has_text=re.compile("^Ok$", re.IGNORECASE)).first.click()
        expect(self.page.locator(".jp-Dialog")).to_have_count(0)

    def assignments(self, part: str) -> Locator:
        """Rows of nbgrader's list: released, fetched or submitted."""
        return self.page.locator(f"#{part}_assignments_list .list_item")

    def fetch(self, lab: str) -> None:
        """Fetch a released lab."""
        self.menu("Nbgrader", "Assignment List")
        self.assignments("released").filter(has_text=lab).get_by_text("Fetch").click()
        self.assignments("fetched").filter(has_text=lab).first.wait_for()

    def submit(self, lab: str) -> None:
        """Hand a fetched lab in."""
        self.menu("Nbgrader", "Assignment List")
        self.assignments("fetched").filter(has_text=lab).get_by_text("Submit").first.click()
        self.assignments("submitted").filter(has_text=lab).first.wait_for()

    def fetch_feedback(self, lab: str) -> None:
        """Fetch what came back."""
        self.page.goto(f"{self.url}user/{self.name}/lab")
        self.page.wait_for_selector(".lm-MenuBar-item")
        self.menu("Nbgrader", "Assignment List")
        self.page.locator("#submitted_assignments_list").get_by_text("Fetch Feedback").first.click()
        self.page.locator("#submitted_assignments_list").get_by_text("view feedback").first.wait_for()


class Instructor(Person):
    """What is done in formgrader."""

    kernel_idle = Student.kernel_idle

    def manage(self, course: str) -> None:
        """Open formgrader by the hub's menu of services, as an instructor finds it."""
        self.page.goto(f"{self.url}hub/home")
        self.page.get_by_text("Services").first.click()
        self.page.get_by_role("link", name=course, exact=True).click()
        self.page.wait_for_selector("tr .name")

    def formgrader(self, course: str, path: str) -> None:
        """Open a page of formgrader."""
        self.page.goto(f"{self.url}services/{course}/formgrader/{path}")

    def press(self, row: str, column: str, limit_s: float = 240) -> str:
        """Press a button of a table's row; what the dialog says when it is done. The dialog stays for a picture."""
        self.page.locator("tr", has_text=row).locator(f".{column} a").click()
        modal = self.page.locator(".modal.in, .modal.show").last
        expect(modal).to_contain_text(re.compile("Success|Error|Failed"), timeout=limit_s * 1000)
        return modal.inner_text()

    def close(self) -> None:
        """Close the dialog in front."""
        self.page.locator(".modal.in .close, .modal.show .close").last.click()
        expect(self.page.locator(".modal.in, .modal.show")).to_have_count(0)


def until(what: str, told: Callable[[], Any], limit_s: float = 60) -> Any:
    """Wait for something that no page shows; what it said."""
    end = time.monotonic() + limit_s
    while not (found := told()):
        assert time.monotonic() < end, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.3)
    return found
