"""A hub that comes back waits for servers that are busy, and no longer than they live."""

from __future__ import annotations

import asyncio
import http.server
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jupyterhub", reason="make test-hub has an environment with JupyterHub")

from jupyterhub.objects import Server

from autograder.hub import spawner as ours
from autograder.hub.spawner import ShieldedSpawner

pytestmark = [pytest.mark.hub, pytest.mark.timeout(60)]


def known(port: int, lives_s: float) -> ShieldedSpawner:
    """A spawner as a hub that comes back has it: a process, an address, and the question whether it lives."""
    found = ShieldedSpawner(class_folder=str(Path("/nowhere")))
    found.proc = subprocess.Popen(["sleep", str(lives_s)])
    found._server = Server(proto="http", ip="127.0.0.1", port=port, base_url="/")
    found._check_pending = True
    return found


def asked(spawner: ShieldedSpawner) -> tuple[int | None, float]:
    """What the hub is told, and after how many seconds."""
    start = time.monotonic()
    status = asyncio.run(spawner.poll())
    return status, time.monotonic() - start


@pytest.fixture
def address() -> Iterator[socket.socket]:
    """A port that is taken and answers nothing."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def test_a_server_that_ends_while_it_is_waited_for_is_told_at_once(address: socket.socket) -> None:
    status, seconds = asked(known(address.getsockname()[1], lives_s=1.5))
    assert status == 0 and 1 < seconds < 20


def test_a_server_that_answers_late_is_told_alive(address: socket.socket) -> None:
    port = address.getsockname()[1]
    address.close()
    spawner = known(port, lives_s=50)

    def later() -> None:
        time.sleep(2)
        with http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler) as serving:
            serving.timeout = 20
            serving.handle_request()

    thread = threading.Thread(target=later, daemon=True)
    thread.start()
    try:
        status, seconds = asked(spawner)
    finally:
        spawner.proc.kill()
        spawner.proc.wait()
    thread.join(20)
    assert status is None and 1.5 < seconds < 20


def test_the_wait_has_a_limit_and_only_a_check_waits(
    address: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "ASK_S", 0.5)
    monkeypatch.setattr(ours, "BUSY_S", 1.0)
    spawner = known(address.getsockname()[1], lives_s=50)
    try:
        status, seconds = asked(spawner)
        assert status is None and 0.9 < seconds < 10
        spawner._check_pending = False
        status, seconds = asked(spawner)
        assert status is None and seconds < 0.5
    finally:
        spawner.proc.kill()
        spawner.proc.wait()
