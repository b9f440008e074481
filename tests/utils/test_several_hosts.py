"""Several machines, as far as one can tell: Slurm's variables, network cards, traces as files."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from utils import launch
from utils.ranks import hosts
from utils.trace.saved import load, save


def test_lists_of_nodes_are_read() -> None:
    assert hosts.expand("gpu[03-05,09],login") == ["gpu03", "gpu04", "gpu05", "gpu09", "login"]
    assert hosts.expand("node1") == ["node1"] and hosts.expand("") == []
    assert hosts.expand("r[1-2]n[8-10]") == ["r1n8", "r1n9", "r1n10", "r2n8", "r2n9", "r2n10"]
    assert hosts.tasks_per_node("2(x3),1") == [2, 2, 2, 1] and hosts.tasks_per_node("4") == [4]


def test_a_step_of_a_job_is_read() -> None:
    env = {"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}
    env |= {"SLURM_JOB_NODELIST": "gpu[01-04]", "SLURM_STEP_NODELIST": "gpu[03-04]", "SLURM_JOB_ID": "7"}
    read = hosts.read_slurm({**env, "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_STEP_ID": "3"})
    assert read["MASTER_ADDR"] == "gpu03" and read["LOCAL_WORLD_SIZE"] == "1"
    ports = {hosts.read_slurm({**env, "SLURM_STEP_ID": step})["MASTER_PORT"] for step in ("0", "3", "4294967292")}
    assert len(ports) == 2  # the batch step's number is not one


def card_and_address() -> tuple[str, str]:
    """A card of this machine that others can know, and its address."""
    for card in hosts.outward_cards():
        for one in psutil.net_if_addrs()[card]:
            if one.family.name == "AF_INET":
                return card, one.address
    pytest.skip("this machine has no network card besides loopback")


def test_the_card_is_the_one_that_leads_to_rank_0() -> None:
    card, address = card_and_address()
    env = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": address}
    assert hosts.network_card(env) == card  # `ip route get` would say "lo": it is this machine's own address
    assert hosts.network_card(env | {"GLOO_SOCKET_IFNAME": "eth9"}) is None
    assert hosts.network_card(env | {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}) in ("lo", "lo0")


def test_a_name_that_means_only_this_machine_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    card, address = card_and_address()
    env = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.1.1"}
    assert hosts.network_card(env | {"SLURM_JOB_NODELIST": address}) == card
    monkeypatch.setattr(hosts, "outward_cards", lambda: ["a", "b"])
    with pytest.raises(SystemExit, match=r"it is 127\.0\.1\.1, which is this machine alone"):
        hosts.network_card(env)
    with pytest.raises(SystemExit, match="no-such-host cannot be reached"):
        hosts.network_card(env | {"MASTER_ADDR": "no-such-host"})
    monkeypatch.setattr(hosts, "outward_cards", lambda: ["a"])
    assert hosts.network_card(env) == "a"


def test_a_card_that_came_up_a_moment_ago_is_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says `running` up to a second later than `up`."""
    inet = SimpleNamespace(family=socket.AF_INET, address="10.1.1.1")
    flags = {"eth0": "up,broadcast,multicast", "eth1": "broadcast"}
    stats = {card: SimpleNamespace(isup=False, flags=its) for card, its in flags.items()}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: stats)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": [inet], "eth1": [inet], "eth2": [inet]})
    assert hosts.outward_cards() == ["eth0"]
    stats["eth2"] = SimpleNamespace(isup=True, flags="up,broadcast,running")
    assert hosts.outward_cards() == ["eth2"]


def test_shell_scripts_can_ask() -> None:
    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "utils.ranks.hosts", *words], capture_output=True, text=True)

    assert ask("expand", "n[1-2]").stdout.split() == ["n1", "n2"]
    assert ask("address", "127.0.0.1").stdout.strip() == "127.0.0.1"
    refused = ask("address", "no-such-host")
    assert refused.returncode == 1 and "no-such-host cannot be reached" in refused.stderr


def talk() -> None:
    import torch
    import torch.distributed as dist

    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3), group=group)
    if dist.get_rank():
        dist.send(torch.ones(2, 2), 0, tag=3)
    else:
        dist.recv(torch.ones(2, 2), 1, tag=3)


def test_a_trace_comes_back_from_its_file(tmp_path: Path) -> None:
    trace = launch(talk, ranks=2, show=False).trace
    back = load(save(trace, tmp_path / "trace.json"))
    assert back.events == trace.events and len(back.events) > 5
    assert back == trace and back.bytes_sent(1) == trace.bytes_sent(1) and back.peers(1) == {0}
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="not a trace of this version"):
        load(tmp_path / "other.json")
