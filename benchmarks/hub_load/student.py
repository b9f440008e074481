"""One student's afternoon: log in, fetch lab 01, put an answer in, validate, save, submit. No kernel is kept."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.hub_load.answers import LAB, answered, fingerprint
from benchmarks.hub_load.browser import Browser, GaveUp, NotNow, Refused
from benchmarks.hub_load.plan import Plan

STEPS = ("server", "fetch", "validate", "submit")
VALIDATE_S = 600.0  # a kernel starts, imports torch and runs a lab's cells, beside those of others
NOTEBOOK = f"course/labs/{LAB}/{LAB}.ipynb"


@dataclass
class Board:
    """What students and the class around them tell each other."""

    stop: threading.Event = field(default_factory=threading.Event)
    down: threading.Event = field(default_factory=threading.Event)  # the hub was killed and nothing answers
    waiting: threading.Event = field(default_factory=threading.Event)  # the student who waits for that is ready
    submitted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    step: Callable[[], Any] = lambda: None

    def has_submitted(self) -> None:
        with self.lock:
            self.submitted += 1


class Student(threading.Thread):
    """A student at a browser. After it ended: seconds by step, fingerprints of what was handed in, what went wrong."""

    def __init__(self, plan: Plan, url: str, password: str, course: str, board: Board) -> None:
        super().__init__(name=plan.name, daemon=True)
        self.plan, self.password, self.course, self.board = plan, password, course, board
        self.browser = Browser(url, board.stop)
        self.seconds: dict[str, list[float]] = {step: [] for step in STEPS}
        self.handed_in: list[str] = []
        self.problem, self.servers = "", set[str]()
        self.refused_while_down = False

    @property
    def home(self) -> str:
        return f"user/{self.plan.name}/"

    def run(self) -> None:
        try:
            self._afternoon()
        except (GaveUp, NotNow, Refused) as error:
            self.problem = str(error)
        except Exception as error:  # a thread's own traceback would be lost among those of others
            self.problem = f"{type(error).__name__}: {error}"

    def _afternoon(self) -> None:
        self.browser.pause(self.plan.arrives_s)
        with self._timed("server"):
            self._log_in()
        self._open_lab_page()
        with self._timed("fetch"):
            self._fetch()
        released = self._ask("GET", f"api/contents/{NOTEBOOK}?content=1")["content"]
        for number, kind in enumerate(self.plan.work, start=1):
            notebook = answered(released, kind, self.plan.name, number)
            self._save(notebook)
            with self._timed("validate"):
                self._validate(kind)
            self._save(notebook)
            if self.plan.after_kill:
                self._wait_for_the_kill()
            with self._timed("submit"):
                self._submit(number)
            self.handed_in.append(fingerprint(notebook))
        self.board.has_submitted()
        self._note_server()

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[step].append(time.monotonic() - start)
        self.board.step()

    def _ask(self, method: str, path: str, body: Any = None, limit_s: float = 60.0) -> Any:
        """Ask one's own server, again while it cannot be reached."""
        return self.browser.patiently(lambda: self._once(method, path, body, limit_s))

    def _once(self, method: str, path: str, body: Any = None, limit_s: float = 60.0) -> Any:
        return self.browser.ask(method, self.home + path, f"/{self.home}", body, limit_s)

    def _log_in(self) -> None:
        """Fill in the form, ask for the server, and wait as the hub's page of progress does until it answers."""
        self.browser.patiently(self._fill_in)
        while not self.browser.patiently(self._at_server):
            self.browser.pause(0.5)
        self._note_server()

    def _fill_in(self) -> None:
        address, _ = self.browser.page("hub/login")
        form = {"username": self.plan.name, "password": self.password, "_xsrf": self.browser.guard("/hub/")}
        if address.startswith("hub/login"):
            address, _ = self.browser.page("hub/login?next=", form)
        if address.startswith("hub/login"):
            raise Refused(f"The login of {self.plan.name} was refused.")

    def _at_server(self) -> bool:
        address, _ = self.browser.page(f"hub/spawn/{self.plan.name}")
        return address.startswith(self.home)

    def _note_server(self) -> None:
        """Remember which server this is: one that was started anew has another start."""
        self.servers.add(self._ask("GET", "api/status")["started"])

    def _open_lab_page(self) -> None:
        """Pull the lectures as the first page does, then what JupyterLab asks for when it opens."""
        pull = urllib.parse.urlencode(
            {"repo": "/srv/lectures.git", "branch": "main", "targetpath": "course", "depth": 1}
        )
        told = self._ask("GET", f"git-pull/api?{pull}")
        if '"finished"' not in json.dumps(told).replace("\\", ""):
            raise Refused(f"The lectures were not pulled: {str(told)[-300:]}")
        self.browser.patiently(lambda: self.browser.page(f"{self.home}lab"))
        for path in ("lab/api/settings", "api/kernelspecs", "api/sessions", "api/contents/course/notebooks?content=1"):
            self._ask("GET", path)

    def _fetch(self) -> None:
        def fetched() -> bool:
            found = self._ask("GET", f"assignments?course_id={self.course}")["value"]
            return [one["status"] for one in found if one["assignment_id"] == LAB and "status" in one] == ["fetched"]

        if not fetched():
            self._ask("POST", "assignments/fetch", f"course_id={self.course}&assignment_id={LAB}")
            if not fetched():
                raise Refused(f"{LAB} is not among what {self.plan.name} fetched.")

    def _save(self, notebook: dict[str, Any]) -> None:
        content = {"type": "notebook", "format": "json", "content": notebook}
        self._ask("PUT", f"api/contents/{NOTEBOOK}", content)

    def _validate(self, kind: str) -> None:
        """Press Validate: the reference passes, a blank does not; hidden tests alone may see a wrong answer."""
        said = self._ask("POST", "assignments/validate", f"path={urllib.parse.quote(NOTEBOOK)}", VALIDATE_S)
        if not said["success"]:
            raise Refused(f"Validate broke for {self.plan.name}: {str(said['value'])[-300:]}")
        if kind in ("right", "blank") and bool(said["value"].get("failed")) != (kind == "blank"):
            raise Refused(f"Validate of a {kind} answer told {self.plan.name}: {json.dumps(said['value'])[:500]}")

    def _wait_for_the_kill(self) -> None:
        """Be ready to submit; when the hub is down, see that nothing answers."""
        self.board.waiting.set()
        while not self.board.down.is_set():
            self.browser.pause(0.05)
        try:
            self._once("GET", "api/status")
        except NotNow:
            self.refused_while_down = True

    def _submit(self, number: int) -> None:
        """Press Submit. When no answer comes, look whether it was handed in before pressing again."""
        while True:
            try:
                said = self._once("POST", "assignments/submit", f"course_id={self.course}&assignment_id={LAB}")
                if not said["success"]:
                    raise Refused(f"Submit broke for {self.plan.name}: {str(said['value'])[-300:]}")
            except NotNow:
                self.browser.pause(1.0)
            listed = self._listed()
            if listed > number:
                raise Refused(f"{self.plan.name} pressed Submit {number} times, and {listed} hand-ins are listed.")
            if listed == number:
                return

    def _listed(self) -> int:
        """How many hand-ins the list shows."""
        found = self._ask("GET", f"assignments?course_id={self.course}")["value"]
        return sum(len(one["submissions"]) for one in found if one["assignment_id"] == LAB and "submissions" in one)
