"""What the hub itself loads: logins held to the list of people, and servers that run shielded.

Imported by jupyterhub_config.py. Works with JupyterHub 5.5 and 6.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyterhub.auth import Authenticator
from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import AnyTimeoutError
from tornado import web
from traitlets import Unicode

from autograder.hub import shield
from autograder.hub.layout import Layout
from autograder.hub.passwords import Passwords
from autograder.hub.people import Enrolled, active, places
from autograder.hub.turns import Turns, at_once

BUSY_S = 600.0  # for so long a server may compute and answer nothing when the hub comes back: nbgrader's Validate does
ASK_S = 5.0


class OnlyEnrolled(Authenticator):
    """For any authenticator: who it names may enter if, and only if, people.csv has them as active."""

    class_folder = Unicode(help="The class's folder.").tag(config=True)

    def check_allowed(self, username: str, authentication: Any = None) -> bool:
        return username in active(Layout(Path(self.class_folder)))


class PasswordLogin(OnlyEnrolled):
    """A password each, kept hashed in the class's folder."""

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        layout = Layout(Path(self.class_folder))
        name = self.normalize_username(data["username"])
        return name if Passwords(layout.secrets / "passwords.json").right(name, data["password"]) else None


def only_enrolled(login: type[Authenticator]) -> type[Authenticator]:
    """An authenticator (of OAuth, LTI, ...) held to the list of people."""
    return type(login.__name__, (OnlyEnrolled, login), {})


class ShieldedSpawner(LocalProcessSpawner):
    """A person's server in bubblewrap, as a user id of their own where the hub may give one."""

    class_folder = Unicode(help="The class's folder.").tag(config=True)
    turns = Turns(at_once())

    @property
    def layout(self) -> Layout:
        return Layout(Path(self.class_folder))

    @property
    def person(self) -> Enrolled:
        found = active(self.layout).get(self.user.name)
        if found is None:
            raise web.HTTPError(403, f"{self.user.name} is not enrolled in this course.")
        return found

    async def start(self) -> tuple[str, int]:
        try:
            await self.turns.wait(self, 0.9 * self.start_timeout)
        except TimeoutError:
            raise web.HTTPError(503, "Too many servers are starting: please try again in some minutes.") from None
        layout, person = self.layout, self.person
        places(layout, person)
        shield.write_names(layout)
        self.cmd = [*shield.command(layout, person), "jupyterhub-singleuser"]
        return await super().start()

    async def poll(self) -> int | None:
        """None while the server lives, else its exit code.

        A hub that comes back asks this once of each server that it knows, then waits for its answer, and ends a server
        that gives none in time. Here it waits for one that is only busy, and no longer than it lives: a server that
        was starting when the hub was killed ends by itself if it cannot find the hub for three quarters of a minute.
        """
        status, until = await super().poll(), time.monotonic() + BUSY_S
        while status is None and self.pending == "check" and time.monotonic() < until:
            try:
                await self.server.wait_up(timeout=ASK_S, http=True, extra_path="api")
                break
            except AnyTimeoutError:
                status = await super().poll()
        return status

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        layout, uid = self.layout, self.person.uid

        def become() -> None:
            most = layout.spec.limits.processes
            if layout.separate:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        return become

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        return env | shield.environment(self.layout, self.person)

    async def move_certs(self, paths: dict[str, str]) -> dict[str, str]:
        raise NotImplementedError("internal_ssl moves certificates into homes, which servers see elsewhere")
