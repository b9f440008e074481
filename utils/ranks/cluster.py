"""A rank on a cluster: meeting the others, its journal, and one sentence for what goes wrong between machines.

torchrun or srun starts the process; there is no kernel beside it that watches. So each rank keeps its own journal, as
in a launch, gives up after a time, and says for itself what it was waiting for. Times of events count from the moment
the rank left the meeting, on its own machine's clock: compare them between machines with care.

Left out: proof of deadlocks, which needs all journals in one place; here a wait that cannot end runs into the limit.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ..trace import journal as jn
from ..trace import matching, report
from ..trace.diagnose import faults, label, unmatched
from ..trace.events import Event, Trace, read_events
from ..trace.install import NAME, install
from ..trace.saved import event_to_plain
from ..trace.sites import is_user_file
from .failures import CONSEQUENCES
from .rank import describe

PATIENCE_S = 0.2
MESH_S = 5.0  # to connect in, once all have met


class Lost(SystemExit):
    """A rank cannot go on; the text is one sentence."""


class Member:
    """This process as a rank of several: its journal, and who the others are."""

    def __init__(self, meet: float, timeout: float) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.host, self.meet, self.timeout = socket.gethostname(), meet, timeout
        self.fd = jn.create()
        self.writer, self.reader = jn.Writer.open(self.fd), jn.Reader(self.fd)
        self.hosts: list[str] = []

    @property
    def me(self) -> str:
        """`rank 3 on node2`."""
        return f"rank {self.rank} on {self.host}"

    # -- coming together -------------------------------------------------------------------------------------------
    def join(self, backend: str, traced: bool) -> None:
        """Meet the other ranks and form the world.

        Raises:
            Lost: rank 0 or others cannot be reached within `meet` seconds.
        """
        until = time.monotonic() + self.meet
        with hushed() as stderr:
            store = self.roll_call(self.open_store(), until)
            timer = threading.Timer(until - time.monotonic() + MESH_S, self.give_up, [stderr])
            timer.daemon = True
            timer.start()
            try:
                self.form_world(store, backend, traced)
            except RuntimeError as error:
                raise Lost(self.no_mesh(reason(error))) from None
            finally:
                timer.cancel()
        self.writer.put(jn.START_AT, time.monotonic_ns())

    def form_world(self, store: dist.Store, backend: str, traced: bool) -> None:
        """Connect to all others; gloo's own limit is that of an operation, which may be long."""
        install(self.writer, backend)
        dist.init_process_group(
            NAME if traced else backend, store=store, rank=self.rank, world_size=self.size,
            timeout=datetime.timedelta(seconds=self.timeout),
        )  # fmt: skip

    def open_store(self) -> dist.Store:
        """The table through which ranks find each other: kept by rank 0, or by torchrun's agent."""
        where, agent = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", "TORCHELASTIC_USE_AGENT_STORE"
        keeps = self.rank == 0 and os.environ.get(agent) != "True"
        limit = datetime.timedelta(seconds=self.meet)
        try:
            port = int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(os.environ["MASTER_ADDR"], port, None, keeps, limit, wait_for_workers=False)
        except (RuntimeError, ValueError) as error:
            if keeps:
                why = f"{reason(error)}; set MASTER_PORT to another"
                raise Lost(f"{self.me} cannot listen at {where}: {why}.") from None
            raise Lost(
                f"{self.me} reached nobody at {where} within {self.meet:g} s: is rank 0 there, with the same "
                "MASTER_ADDR and MASTER_PORT, and does no firewall stand between?"
            ) from None
        return dist.PrefixStore(f"course/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def roll_call(self, store: dist.Store, until: float) -> dist.Store:
        """Tell the others our host, and hear theirs."""
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        try:
            store.set(f"host/{self.rank}", self.host)
            while absent := [r for r in range(self.size) if not store.check([f"host/{r}"])]:
                if time.monotonic() > until:
                    ranks = "rank" if len(absent) == 1 else "ranks"
                    raise Lost(
                        f"{self.me} waited {self.meet:g} s at {where}, and {ranks} {', '.join(map(str, absent))} of "
                        f"{self.size} did not come."
                    )
                time.sleep(PATIENCE_S)
            self.hosts = [store.get(f"host/{r}").decode() for r in range(self.size)]
        except RuntimeError as error:
            raise Lost(f"{self.me} lost the table of ranks at {where}: {reason(error)}.") from None
        return store

    def give_up(self, stderr: int) -> None:
        """The meeting takes too long; what waits is C++, so the process ends from beside it."""
        os.write(stderr, f"{self.no_mesh('no answer')}\n".encode())
        os._exit(1)

    def no_mesh(self, why: str) -> str:
        """The ranks met, but their direct connections cannot be made."""
        card = os.environ.get("GLOO_SOCKET_IFNAME", "")
        through = f" through the network card {card}" if card else ""
        return (
            f"{self.me} met the others at {os.environ['MASTER_ADDR']}, but cannot connect to them{through}: {why}. "
            "GLOO_SOCKET_IFNAME has to be the card that leads to the other hosts, and their ports must be open."
        )

    # -- while it runs ---------------------------------------------------------------------------------------------
    def events(self) -> list[Event]:
        """What this rank did, so far."""
        return read_events(self.rank, self.reader.snapshot(), self.reader.get(jn.START_AT))

    def plain_events(self) -> list[dict[str, Any]]:
        """The same, to be sent to rank 0."""
        return [event_to_plain(event) for event in self.events()]

    @property
    def complete(self) -> bool:
        """Whether the journal still holds all of it."""
        return self.reader.get(jn.COUNT_AT) <= jn.CAPACITY

    def explain(self, error: BaseException) -> str:
        """What to print of an error: the student's own with its lines, one of the network in a sentence."""
        told = describe(error)
        if any(words in told["text"] for words in CONSEQUENCES):
            return self.lost_partner(reason(error))
        where = [frame for frame in told["frames"] if is_user_file(frame[0])] or told["frames"]
        at = f", {report.place(where[-1][0], where[-1][1], where[-1][3])}" if where else ""
        return f"{self.me} raised {told['kind']}{at}\n\n{told['traceback']}".rstrip()

    def lost_partner(self, why: str) -> str:
        """`rank 1 on node2 lost rank 0 on node1 in recv #3 ...`."""
        last = next((event for event in reversed(self.events()) if event.failed), None)
        if last is None:
            return f"{self.me} lost its partners: {why}."
        partner = last.peer if not last.collective else None
        others = "its partners" if partner is None else f"rank {partner} on {self.hosts[partner]}"
        late = f" (the limit of one operation, --timeout, is {self.timeout:g} s)" if "Timed out" in why else ""
        return f"{self.me} lost {others} in {label(last)}, {report.at(last)}: {why}{late}."


@contextmanager
def hushed() -> Iterator[int]:
    """While ranks meet, torch and gloo write of each try, with stacks: left out, unless TORCH_CPP_LOG_LEVEL asks for
    it. Gives the descriptor of the real stderr."""
    real = os.dup(2)
    try:
        if os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR") == "ERROR":
            sys.stderr.flush()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 2)
            os.close(nowhere)
        yield real
    finally:
        os.dup2(real, 2)
        os.close(real)


def reason(error: BaseException) -> str:
    """The words of a C++ error without its place in torch's source and its stack."""
    text = str(error).split("\nException raised from")[0].splitlines()[0] if str(error) else type(error).__name__
    text = text.split(". This is typically caused")[0].removeprefix("Gloo connectFullMesh failed with ")
    return re.sub(r"^(\[[^\]]*\]\s*)+|\[/[^\]]*\.cc:\d+\]\s*", "", text).strip().rstrip(".")


def checked(trace: Trace) -> str:
    """What was wrong with the operations of a run that ended, as a launch would say; notes are printed."""
    if not trace.complete:
        return ""
    pairing = matching.pair(trace.events)
    found = faults(pairing, finished=True)
    if found:
        return report.mismatch(found[0])
    for event in unmatched(pairing):
        print(f"note: rank {event.rank}: {label(event)} was never matched, {report.at(event)}", flush=True)
    return ""


def choose_backend() -> tuple[str, str]:
    """("nccl", "cuda:N") where each rank of this host has a GPU, else ("gloo", "cpu")."""
    local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= max(here, local + 1):
        return "nccl", f"cuda:{local}"
    return "gloo", "cpu"
