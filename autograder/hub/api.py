"""Talks to a class's hub on this machine, with the enrolment token."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from autograder.course import UserError
from autograder.hub.layout import Layout

PAGE = 100


class Refused(UserError):
    """The hub answered, and said no."""


class Hub:
    """The hub's REST interface; `None` answers stand for an empty reply."""

    def __init__(self, layout: Layout, token: str = "enrol_token", timeout: float = 20.0) -> None:
        self.base = f"http://127.0.0.1:{layout.spec.address.hub}/hub/api"
        self.token, self.timeout = layout.secret(token), timeout
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def runs(self) -> bool:
        """Whether a hub answers."""
        try:
            with self.opener.open(self.base + "/", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, method: str, path: str, content: Any = None, fine: tuple[int, ...] = ()) -> Any:
        """Send a request; statuses in `fine` are no error.

        Raises:
            Refused: the hub said no, with what it said.
        """
        data = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with self.opener.open(request, timeout=self.timeout) as reply:
                text = reply.read()
        except urllib.error.HTTPError as error:
            if error.code in fine:
                return None
            said = error.read().decode(errors="replace")[:300]
            raise Refused(f"The hub refused {method} {path}: {error.code} {said}") from None
        except OSError as error:
            raise Refused(f"The hub at {self.base} did not answer {method} {path} ({error}).") from None
        return json.loads(text) if text else None

    def users(self) -> list[dict[str, Any]]:
        """All users that the hub has; it gives them in pages."""
        found: list[dict[str, Any]] = []
        while page := self.ask("GET", f"/users?offset={len(found)}&limit={PAGE}"):
            found += page
        return found
