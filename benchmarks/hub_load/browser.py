"""HTTP as a browser does it: cookies, the hub's and Jupyter's guard against forged requests, and trying again.

Of the standard library alone: a browser for each of many students would need the machine for itself.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from typing import Any, TypeVar

Found = TypeVar("Found")
PATIENCE_S = 300.0  # how long a student tries again before giving up
LATER = {424, 429, 502, 503, 504}  # what the hub and its proxy answer while something is not up
TURNED_AWAY = 429  # too many servers start just now: a person sees an error and comes again
HUBS_PAGE = "<title>JupyterHub</title>"
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "same-origin"}
SCRIPT = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"}


class NotNow(Exception):
    """Nothing answered, or the answer was to come later."""


class Refused(Exception):
    """The answer was no; the text has what was asked and what was said."""


class GaveUp(Exception):
    """What a student tried did not work out within their patience, or everybody was told to stop."""


class _Stay(urllib.request.HTTPRedirectHandler):
    """For requests of a page's scripts: an answer that leads elsewhere (to the login) is no answer."""

    def redirect_request(self, *_: object) -> None:
        return None


class Browser:
    """One person's browser at one hub.

    Example:
        browser = Browser("http://127.0.0.1:8000/", threading.Event())
        address, text = browser.page("hub/login")                       # follows redirects
        browser.ask("GET", "user/ada/api/contents/course", "/user/ada/")    # a script's request: JSON or None
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.url, self.stop, self.turned_away = url, stop, 0
        self.cookies = CookieJar()
        shared = (urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(self.cookies))
        self.follows = urllib.request.build_opener(*shared)
        self.stays = urllib.request.build_opener(*shared, _Stay())

    def page(self, path: str, form: dict[str, str] | None = None) -> tuple[str, str]:
        """Open a page, or send a form; the address it led to, and the text."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        return self._send(self.follows, urllib.request.Request(self.url + path, data, PAGE), 60)

    def ask(self, method: str, path: str, guard: str, body: Any = None, limit_s: float = 60.0) -> Any:
        """A request of a page's script; `guard` is the path of the cookie that guards against forged requests.

        body: a dictionary goes as JSON, a text as a form's content. The answer is JSON, or text where it is none.
        """
        headers = SCRIPT | {"X-XSRFToken": self.guard(guard)}
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        form = isinstance(body, str)
        headers["Content-Type"] = "application/x-www-form-urlencoded" if form else "application/json"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        _, text = self._send(self.stays, request, limit_s)
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text

    def guard(self, path: str) -> str:
        """The value of the cookie `_xsrf` of a path."""
        return next((one.value or "" for one in self.cookies if one.name == "_xsrf" and one.path == path), "")

    def _send(
        self, opener: urllib.request.OpenerDirector, request: urllib.request.Request, limit_s: float
    ) -> tuple[str, str]:
        what = f"{request.get_method()} {urllib.parse.urlsplit(request.full_url).path}"
        try:
            with opener.open(request, timeout=limit_s) as reply:
                return reply.geturl().removeprefix(self.url), reply.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read().decode(errors="replace").split())[:300]
            self.turned_away += error.code == TURNED_AWAY
            # a proxy that has just started knows no way to anybody yet; servers and the hub sign what they say
            no_way = error.code == 404 and "X-JupyterHub-Version" not in error.headers
            # then the way to the hub, which for a moment is asked what was meant for a server, and says no
            no_way |= request.selector.startswith("/user/") and HUBS_PAGE in said
            kind = NotNow if error.code in LATER or no_way else Refused
            raise kind(f"{what} was answered {error.code}: {said}") from None
        except (OSError, http.client.HTTPException) as error:
            raise NotNow(f"{what} was not answered ({type(error).__name__}: {error})") from None

    def patiently(self, call: Callable[[], Found], pause_s: float = 1.0) -> Found:
        """Call until it is answered. Raises GaveUp, with what was said last."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except NotNow as error:
                if time.monotonic() > until:
                    raise GaveUp(f"For {PATIENCE_S:.0f} s: {error}") from None
            self.pause(pause_s)

    def pause(self, seconds: float) -> None:
        """Wait, unless everybody is told to stop: then GaveUp."""
        if self.stop.wait(seconds):
            raise GaveUp("told to stop")
