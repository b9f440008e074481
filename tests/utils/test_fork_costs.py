"""What makes ranks cheap: memory in large pages, and gloo threads that take no core from the thread they work for."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from pathlib import Path

import pytest

from utils import launch
from utils.ranks import pages
from utils.ranks.scheduling import patient_threads

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


def huge_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:")) * 1024


@linux
def test_memory_is_gathered_and_keeps_what_it_holds() -> None:
    size = 4 * pages.HUGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(os.urandom(4096) * (size // 4096))
    held, before = memory[:], huge_bytes()
    gathered = pages.gather()
    assert memory[:] == held
    assert gathered == 0 or huge_bytes() >= before  # 0: this system knows no such thing


def test_what_the_system_refuses_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MADV_COLLAPSE", 9999)
    assert pages.gather() == 0


@linux
def test_only_threads_started_meanwhile_are_patient() -> None:
    seen = []
    before = os.sched_getscheduler(0)
    with patient_threads():
        thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
    assert (seen, os.sched_getscheduler(0)) == ([os.SCHED_BATCH], before)


@linux
def test_gloos_threads_are_patient_and_the_ranks_own_is_not() -> None:
    def policies() -> dict[str, list[int]]:
        import torch.distributed as dist

        dist.new_group([0, 1])
        found: dict[str, set[int]] = {"main": {os.sched_getscheduler(os.getpid())}}
        for task in Path("/proc/self/task").iterdir():
            found.setdefault((task / "comm").read_text().strip(), set()).add(os.sched_getscheduler(int(task.name)))
        return {name: sorted(seen) for name, seen in found.items()}

    for value in launch(policies, ranks=2, timeout=20).values:
        assert value["gloo_tcp_loop"] == [os.SCHED_BATCH], value
        assert value["main"] == [os.SCHED_OTHER], value
    for value in launch(policies, ranks=2, trace=False, timeout=20).values:
        assert os.SCHED_BATCH in value["gloo_tcp_loop"], value  # the group of all ranks; others torch makes by itself
