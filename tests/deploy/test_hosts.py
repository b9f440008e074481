"""Labs on two machines, made of namespaces: the same values and traffic as on one, and what is said when a machine
is lost. The kernel's count of bytes on the card between them is held against our own trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import on_hosts
from tests.deploy.hosts import Host, Hosts, missing
from utils import launch

REPO = Path(__file__).resolve().parents[2]
LAB01 = REPO / "solutions" / "lab01_allreduce" / "lab01_allreduce.ipynb"
LAB07 = REPO / "solutions" / "lab07_mesh" / "lab07_mesh.ipynb"
LARGE = 300_000  # elements: what the protocol adds to their bytes is then little

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    with Hosts(tmp_path) as both:
        yield list(both)


def same_as_on_one_machine(hosts: list[Host], target: str, folder: Path) -> tuple[int, list[int]]:
    """Run a target on both hosts and on one machine, hold them to each other; the bytes that left each card."""
    before = [host.sent_bytes() for host in hosts]
    values, trace = on_hosts.run(hosts, 2, target, folder, 600)
    left = [host.sent_bytes() - count for host, count in zip(hosts, before, strict=True)]
    alone = launch(on_hosts.here, target, ranks=4, timeout=300, show=False)
    assert values == alone.values
    for rank in range(4):
        assert on_hosts.said_by(trace, rank) == on_hosts.said_by(alone.trace, rank), f"rank {rank}'s traffic differs"
    assert len(trace.events) == len(alone.trace.events) > 0
    return on_hosts.crossing(trace, 2, 0), left


def test_the_all_reduce_lab_is_the_same_on_two_hosts(hosts: list[Host], tmp_path: Path) -> None:
    small = "[(12, float32, 0, 0), (7, float64, 9, 2**40), (5, int64, 8, 2**53)]"
    parts = [
        f"probe_ring_sum({small})", f"probe_ring_sum([({LARGE}, float32, 0, 0)])[0]['x'].sum()",
        "probe_broadcast_reduce([(1, 4, float32, 0), (3, 7, bfloat16, 1)])",
        "probe_all_gather([([4, 1, 0, 2], int64, 4)])", "probe_reduce_scatter([(13, float64, 5)])",
    ]  # fmt: skip
    crossed, left = same_as_on_one_machine(hosts, f"{LAB01}:[{', '.join(parts)}]", tmp_path)
    # ranks 0, 1 on node1 and 2, 3 on node2: one of the ring's links crosses in each direction
    assert crossed > 1.5 * 4 * LARGE
    for count in left:
        assert 1.0 < count / crossed < 1.08, f"{count} bytes on the card, {crossed} by the trace"


def test_the_mesh_lab_is_the_same_on_two_hosts(hosts: list[Host], tmp_path: Path) -> None:
    parts = [
        "probe_make_groups([(2, 2), (1, 4)])", "probe_norm_tp(TIED, (2, 1, 2), 2)",
        "probe_norm_pp(TIED, (1, 2, 2), 2)", "probe_zero_one((2, 1, 2), 2)",
        "probe_step_losses(TIED, (2, 1, 2), text(2), 2, 0.6, torch.float64)",
        "probe_step_gradients(TIED, (2, 2, 1), text(1), 3)",
    ]  # fmt: skip
    same_as_on_one_machine(hosts, f"{LAB07}:[{', '.join(parts)}]", tmp_path)


STUCK = """
import torch, torch.distributed as dist

def waits():
    if dist.get_rank() == 0:
        print("waiting", flush=True)
        dist.recv(torch.zeros(3), 1)
    else:
        import time
        time.sleep(600)
"""


def waiting(hosts: list[Host], folder: Path, *options: str) -> on_hosts.Started:
    """Two ranks, of which rank 0 waits for a message that rank 1 never sends."""
    (folder / "stuck.py").write_text(STUCK)
    started = on_hosts.start(hosts, 1, f"{folder}/stuck.py:waits", folder, *options)
    until = time.monotonic() + 120
    while "waiting" not in started.text(0):
        assert time.monotonic() < until and started.processes[0].poll() is None, started.text(0)
        time.sleep(0.1)
    return started


def only_sentence(text: str) -> str:
    """What a rank said, when that was one line."""
    lines = [line for line in text.splitlines() if line != "waiting"]
    assert len(lines) == 1, text
    return lines[0]


def test_a_host_that_dies_is_named(hosts: list[Host], tmp_path: Path) -> None:
    started = waiting(hosts, tmp_path)
    hosts[1].off()
    assert started.processes[0].wait(30) == 1
    said = only_sentence(started.text(0))
    assert "rank 0 on node1 lost rank 1 on node2 in recv #1 from rank 1" in said
    assert "line 7 of stuck.py" in said


def test_a_host_that_falls_silent_is_given_up(hosts: list[Host], tmp_path: Path) -> None:
    started = waiting(hosts, tmp_path, "--timeout", "4")
    hosts[1].pull_the_plug()
    assert started.processes[0].wait(30) == 1
    said = only_sentence(started.text(0))
    assert "rank 0 on node1 lost rank 1 on node2 in recv #1" in said and "--timeout, is 4 s" in said


CASES = {  # what is wrong -> variables of both ranks, those of rank 1, and what a rank says
    "port": ({}, {"MASTER_PORT": "29600"}, {0: "rank 1 of 2 did not come", 1: "nobody at node1:29600 within 5 s"}),
    "card": ({"GLOO_SOCKET_IFNAME": "lo"}, {}, {0: "the network card lo: ", 1: "the network card lo: "}),
    "address": ({}, {"MASTER_ADDR": "10.213.7.9"}, {1: "reached nobody at 10.213.7.9:"}),
    "name": ({}, {"MASTER_ADDR": "no-such-host"}, {1: "reached nobody at no-such-host:"}),
}


def test_who_cannot_meet_says_so_in_time(hosts: list[Host], tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("def waits():\n    pass\n")
    started = {}
    for at, (name, (env, of_one, said)) in enumerate(CASES.items()):
        (tmp_path / name).mkdir()
        env = {"MASTER_PORT": str(on_hosts.PORT + at), **env}
        options = {"env": env, "of_rank": {1: of_one}, "only": set(said)}
        target = f"{tmp_path}/stuck.py:waits"
        started[name] = on_hosts.start(hosts, 1, target, tmp_path / name, "--meet", "5", "--timeout", "5", **options)
    until = time.monotonic() + 120
    for name, (_, _, said) in CASES.items():
        assert started[name].finish(until - time.monotonic()) == [1] * len(said), name
        for rank, words in said.items():
            assert words in only_sentence(started[name].text(rank))
