"""The ranks behind a server: launched beside it, spoken to through one socket that rank 0 opens.

The server's process holds no weights. Rank 0 takes orders (add, cancel, stop) between two steps and sends what each
step brought. When a rank dies the launch ends with its report, and every answer that was being written fails with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from utils.engine.engine import Limits
from utils.engine.parts import Parts
from utils.serve.texts import Answer


class BackendGone(RuntimeError):
    """The ranks are no more; the text is the launch's report."""


class Refused(ValueError):
    """The engine cannot take this request; the text says why."""


def on_rank(address: str, key: bytes, limits: Limits, parts: Parts | None, threads: int) -> None:
    """What every rank runs: rank 0 serves orders, the others follow it."""
    import torch

    from utils.engine.engine import Engine
    from utils.engine.model import Model
    from utils.engine.parallel import place

    torch.set_num_threads(threads)
    engine = Engine(Model(parts=parts), limits)
    if place()[0]:
        return engine.follow()
    with Client(address, authkey=key) as line:
        line.send(("ready", os.getpid()))
        try:
            while _take_orders(engine, line):
                tokens = engine.step()
                line.send(("step", tokens, _state(engine)))
        except (EOFError, ConnectionError):
            pass  # the server has gone
    engine.stop()


def _take_orders(engine: Any, line: Connection) -> bool:
    """All orders that have come, or the next one where there is nothing to do; False when it is time to stop."""
    from utils.engine.sampling import Asked

    while engine.idle or line.poll():
        verb, order = line.recv()
        if verb == "stop":
            return False
        if verb == "cancel":
            engine.cancel(order)
            line.send(("step", {}, _state(engine)))
        else:
            try:
                engine.add(Asked(**order))
            except ValueError as error:
                line.send(("refused", order["id"], str(error)))
    return True


def _state(engine: Any) -> dict[str, int]:
    used = sum(count > 0 for count in engine.blocks.ref_count)
    waiting, running = len(engine.scheduler.waiting), len(engine.scheduler.running)
    return {"running": running, "waiting": waiting, "used_blocks": used, "num_blocks": engine.blocks.num_blocks}


class Backend:
    """The ranks, from the event loop's side. `on_end(report)` is called there when they end unasked.

    patience: seconds without a step, while someone waits, after which the launch is ended with its report.
    """

    def __init__(
        self, ranks: int, limits: Limits, on_end: Callable[[str], None], *, parts: Parts | None = None,
        patience: float = 60.0,
    ) -> None:  # fmt: skip
        self.ranks, self.limits, self.parts, self.patience, self.on_end = ranks, limits, parts, patience, on_end
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.answers: dict[int, Answer] = {}
        self.state = {"running": 0, "waiting": 0, "used_blocks": 0, "num_blocks": limits.num_blocks}
        self.report: str | None = None
        self.stopping, self._heard, self._next = False, time.monotonic(), 0
        self._line: Connection | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="serve-")
        self._address, self._key = str(Path(self._folder.name) / "rank0"), secrets.token_bytes(16)
        self._listener = Listener(self._address, authkey=self._key)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._launch, self._read)]
        for thread in self._threads:
            thread.start()

    # -- the event loop's side -------------------------------------------------------------------------------------
    def submit(self, answer: Answer, **order: Any) -> int:
        """Have a request served; its tokens go to `answer`. BackendGone where there are no ranks any more."""
        if self.report is not None or self._line is None:
            raise BackendGone(self.report or "The ranks are not ready yet.")
        self._next += 1
        if not self.answers:
            self._heard = time.monotonic()
        self.answers[self._next] = answer
        self._send(("add", {"id": self._next, **order}))
        return self._next

    def cancel(self, number: int) -> None:
        """The user has gone, or has enough: the request leaves and its blocks are free."""
        if self.answers.pop(number, None) is not None:
            self._send(("cancel", number))

    def overdue(self) -> bool:
        """Whether someone waits and no step has come for `patience` seconds."""
        return bool(self.answers) and time.monotonic() - self._heard > self.patience

    def interrupt(self) -> None:
        """End the launch as Ctrl-C would: its report says where each rank is."""
        thread = self._threads[0]
        if thread.is_alive() and thread.ident:
            raising = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), raising)

    def stop(self, limit: float = 10.0) -> None:
        """End the ranks and wait until they are gone."""
        from utils.ranks import client

        self.stopping = True
        self._send(("stop", None))
        self._threads[0].join(limit if self._line else 0.2)
        client.shutdown()  # ranks that did not stop die with the server that forked them
        self._threads[0].join(limit)
        self._listener.close()
        if self._line is not None:
            self._line.close()
        self._folder.cleanup()

    def _send(self, message: tuple[str, Any]) -> None:
        try:
            if self._line is not None:
                self._line.send(message)
        except OSError:
            pass  # the launch's end is reported by its own thread

    def _message(self, verb: str, *rest: Any) -> None:
        self._heard = time.monotonic()
        if verb == "ready" and not self.ready.done():
            self.ready.set_result(None)
        elif verb == "refused":
            answer = self.answers.pop(rest[0], None)
            if answer:
                answer.fail(Refused(rest[1]))
        elif verb == "step":
            self.state = rest[1]
            for number, token in rest[0].items():
                self._token(number, token)

    def _token(self, number: int, token: int) -> None:
        answer = self.answers.get(number)
        if answer is None:
            return
        answer.add_token(token)
        if answer.finish:
            enough = answer.tokens >= answer.max_new or token == answer.eos
            if not enough:  # a stop text: the engine knows nothing of it
                self._send(("cancel", number))
            del self.answers[number]

    def _ended(self, report: str) -> None:
        self.report = report
        if not self.ready.done():
            self.ready.set_exception(BackendGone(report))
        for answer in self.answers.values():
            answer.fail(BackendGone(report))
        self.answers.clear()
        if not self.stopping:
            self.on_end(report)

    # -- threads ---------------------------------------------------------------------------------------------------
    def _launch(self) -> None:
        from utils import launch
        from utils.ranks.errors import LaunchError

        threads = max(1, len(os.sched_getaffinity(0)) // self.ranks) if hasattr(os, "sched_getaffinity") else 1
        try:
            launch(
                on_rank, self._address, self._key, self.limits, self.parts, threads, ranks=self.ranks, timeout=None,
                show=False,
            )  # fmt: skip
            report = "The ranks have stopped."
        except LaunchError as error:
            report = str(error)
        except BaseException as error:  # whatever it was, who waits must hear of it
            report = f"{type(error).__name__}: {error}"
        self._call(self._ended, report)
        if self._line is None:
            self._wake_reader()

    def _read(self) -> None:
        try:
            self._line = line = self._listener.accept()
            while True:
                self._call(self._message, *line.recv())
        except (EOFError, OSError, TypeError):
            return  # the launch's thread knows more

    def _wake_reader(self) -> None:
        try:
            Client(self._address, authkey=self._key).close()
        except (OSError, EOFError):
            pass

    def _call(self, method: Callable[..., None], *rest: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(method, *rest)
        except RuntimeError:
            pass  # the loop is closed: nobody listens
