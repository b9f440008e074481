"""Which machine this is, of several: what Slurm says of them, and the network card that leads to the others.

gloo announces one address to its partners, that of the card in GLOO_SOCKET_IFNAME. Unset, it takes what the host's own
name resolves to, which on many machines is 127.0.0.1 or 127.0.1.1: ranks on other machines then call themselves. gloo
knows no `^lo` and no lists, as NCCL does: it needs one card's name, which differs from machine to machine.

    python -m utils.ranks.hosts expand "gpu[03-05,09]"       # gpu03 gpu04 gpu05 gpu09
    python -m utils.ranks.hosts address gpu04                # this machine's address on the way to gpu04
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping

import psutil


def expand(nodes: str) -> list[str]:
    """The names in a list of Slurm's.

    >>> expand("gpu[03-05,09],login")
    ['gpu03', 'gpu04', 'gpu05', 'gpu09', 'login']
    """
    names = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        head, bracket, rest = part.partition("[")
        if not bracket:
            names.append(head)
            continue
        ranges, _, tail = rest.partition("]")
        for one in ranges.split(","):
            low, _, high = one.partition("-")
            numbers = range(int(low), int(high or low) + 1)
            names += [head + str(n).zfill(len(low)) + end for n in numbers for end in (expand(tail) or [""])]
    return names


def tasks_per_node(text: str) -> list[int]:
    """How many tasks each node has: `2(x3),1` is [2, 2, 2, 1]."""
    counts = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(number)] * int(times or 1)
    return counts


def read_slurm(env: Mapping[str, str]) -> dict[str, str]:
    """What torchrun would have set, from srun's variables; empty when torchrun set it or there is no Slurm."""
    if "RANK" in env or "SLURM_PROCID" not in env:
        return {}
    nodes = expand(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "localhost")
    # two steps of one job may run at once on the same node
    port = 20000 + (int(env.get("SLURM_JOB_ID", "0")) + 97 * _step(env)) % 20000
    counts = tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = int(env.get("SLURM_NODEID", "0"))
    here = {"LOCAL_WORLD_SIZE": str(counts[node])} if node < len(counts) else {}
    return here | {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": env["SLURM_NTASKS"],
        "LOCAL_RANK": env.get("SLURM_LOCALID", "0"),
        "MASTER_ADDR": env.get("MASTER_ADDR", nodes[0]),
        "MASTER_PORT": env.get("MASTER_PORT", str(port)),
    }


def _step(env: Mapping[str, str]) -> int:
    step = env.get("SLURM_STEP_ID", "0")
    return int(step) if step.isdigit() and int(step) < 10**6 else 0  # batch steps have names or huge numbers


def own_address(host: str) -> str:
    """The address that this machine has on the way to `host`; nothing is sent, the kernel only chooses a route.

    Raises:
        OSError: the name is unknown, or there is no route.
    """
    reasons: list[OSError] = []
    for family, kind, _, _, address in sorted(socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)):  # IPv4 first
        with socket.socket(family, kind) as probe:
            try:
                probe.connect(address)
                return str(probe.getsockname()[0])
            except OSError as error:
                reasons.append(error)
    raise reasons[0]


def card_of(address: str) -> str | None:
    """The network card that has this address."""
    for card, addresses in psutil.net_if_addrs().items():
        if address in [one.address.partition("%")[0] for one in addresses]:
            return card
    return None


def outward_cards() -> list[str]:
    """The cards that carry something and have an IPv4 address that others can know.

    Where none does yet, those that are switched on: the kernel takes a second to see that a card carries something.
    """
    stats = psutil.net_if_stats()
    cards = sorted(
        card
        for card, addresses in psutil.net_if_addrs().items()
        if card in stats and any(a.family == socket.AF_INET and not is_loopback(a.address) for a in addresses)
    )
    carrying = [card for card in cards if stats[card].isup]
    return carrying or [card for card in cards if "up" in stats[card].flags.split(",")]


def is_loopback(address: str) -> bool:
    """Whether only this machine can be meant."""
    return address.startswith("127.") or address == "::1"


def network_card(env: Mapping[str, str]) -> str | None:
    """The card for GLOO_SOCKET_IFNAME: the one that leads to MASTER_ADDR; None where gloo's own choice is as good.

    `ip -4 route get MASTER_ADDR` would answer "lo" on the machine that has this address, which is no use to the
    others: here the card is found by the address that the way begins with. Where the name of this very machine is
    loopback (Debian writes `127.0.1.1 NAME` into /etc/hosts), another node of Slurm's list shows the way, or there is
    only one card.

    Raises:
        SystemExit: in a sentence, when there is none and ranks are on several machines.
    """
    if env.get("GLOO_SOCKET_IFNAME"):
        return None
    master = env.get("MASTER_ADDR", "")
    several = int(env.get("LOCAL_WORLD_SIZE") or env["WORLD_SIZE"]) < int(env["WORLD_SIZE"])
    others = expand(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or "")
    why = f"it is {master or 'empty'}, which is this machine alone"
    for host in [master, *(node for node in others if node != master)]:
        try:
            address = own_address(host) if host else "127.0.0.1"
        except OSError as error:
            why = f"{host} cannot be reached ({error.strerror or error})"
            continue
        card = card_of(address)
        if card and (not is_loopback(address) or not several):
            return card
    if not several:
        return None
    if len(cards := outward_cards()) == 1:
        return cards[0]
    raise SystemExit(
        f"no network card leads to the other ranks: by MASTER_ADDR, {why}. Set MASTER_ADDR to the name or address "
        "that rank 0's machine has for the others, or GLOO_SOCKET_IFNAME to this machine's card (see `ip -br address`)."
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["expand", text]:
            print(*expand(text))
        case ["address", other]:
            try:
                print(own_address(other))
            except OSError as error:
                raise SystemExit(f"{other} cannot be reached from here: {error.strerror or error}.") from None
        case _:
            raise SystemExit("write: python -m utils.ranks.hosts expand LIST, or address HOST")
