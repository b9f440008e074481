"""Ranks that never meet: gloo's initialisation would block for long, and the launch says whom the others wait for."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from utils import LaunchTimeout, RankFailed, launch
from utils.ranks import api


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list for one signal: rank 1 of the next launches gets that in place of its job; then its process number too."""
    told: list[int] = []
    send, begin = api._send, api.Supervisor.__init__

    def noting(self: Any, server: Any, ranks: list[Any], *args: Any) -> None:
        told[1:] = [ranks[1].pid]
        begin(self, server, ranks, *args)

    def sending(sock: Any, job: Any, fds: list[int]) -> None:
        os.kill(told[1], told[0]) if job.rank == 1 else send(sock, job, fds)

    launch(dist.get_rank, ranks=3)  # the server is up
    monkeypatch.setattr(api.Supervisor, "__init__", noting)
    monkeypatch.setattr(api, "_send", sending)
    return told


def test_a_rank_that_dies_before_the_meeting_is_named(stopped: list[int]) -> None:
    stopped.append(signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(RankFailed, match="rank 1 was ended by SIGKILL") as caught:
        launch(dist.get_rank, ranks=3, timeout=300)
    assert time.monotonic() - started < 150, "it waited for the time limit"
    assert "The other ranks:" in str(caught.value)


def test_a_rank_that_never_comes_is_named_at_the_time_limit(stopped: list[int]) -> None:
    stopped.append(signal.SIGSTOP)
    with pytest.raises(LaunchTimeout, match="rank 1 has not come to meet the others") as caught:
        launch(dist.get_rank, ranks=3, timeout=3)
    assert "within 3 s" in str(caught.value)
    assert not psutil.pid_exists(stopped[1]) or psutil.Process(stopped[1]).status() == psutil.STATUS_ZOMBIE
