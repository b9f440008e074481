"""Which GPUs of a cluster behave alike, so that one of each kind can be simulated for all.

Ranks lie tp first, then cp, dp, pp (`utils.planner.spec`), nodes are runs of gpus_per_node ranks. GPUs of one stage and
replica work in lock-step and are one from the start. Replicas are alike when their stages lie on alike nodes, and
nodes are alike when they hold as many GPUs of alike replicas for the same stages: the coarsest such colouring is found
by refinement (Weisfeiler and Leman 1968; equitable partitions). A slow GPU, a slow link or a lost node begins with a
colour of its own, and only what it touches is told apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Layout:
    """`dp` replicas of `pp` stages, each stage on `width` (tp * cp) GPUs, in nodes of gpus_per_node GPUs.

    slow_gpus: GPU -> how many times longer it computes; slow_links: node -> how many times slower its links are;
    lost: a node that dies, or None. ValueError where these name a GPU or node that is not there.

    >>> layout = Layout(dp=4, pp=2, width=2, gpus_per_node=4)
    >>> layout.gpus, layout.ranks(stage=1, replica=2), layout.nodes_of(1, 2)
    (16, range(12, 14), range(3, 4))
    """

    dp: int
    pp: int
    width: int
    gpus_per_node: int
    slow_gpus: Mapping[int, float] = field(default_factory=dict)
    slow_links: Mapping[int, float] = field(default_factory=dict)
    lost: int | None = None

    def __post_init__(self) -> None:
        nodes = -(-self.gpus // self.gpus_per_node)
        for gpu, factor in self.slow_gpus.items():
            _there("GPU", gpu, self.gpus, factor)
        for node, factor in self.slow_links.items():
            _there("node", node, nodes, factor)
        if self.lost is not None:
            _there("node", self.lost, nodes, 1)

    @property
    def gpus(self) -> int:
        """All GPUs in use."""
        return self.dp * self.pp * self.width

    def ranks(self, stage: int, replica: int) -> range:
        """The GPUs of one stage of one replica."""
        first = (stage * self.dp + replica) * self.width
        return range(first, first + self.width)

    def nodes_of(self, stage: int, replica: int) -> range:
        """The nodes on which they are."""
        ranks = self.ranks(stage, replica)
        return range(ranks[0] // self.gpus_per_node, ranks[-1] // self.gpus_per_node + 1)

    def slowness(self, stage: int, replica: int) -> float:
        """How much longer this stage computes: its GPUs wait for the slowest among them."""
        if not self.slow_gpus:
            return 1.0
        return max(self.slow_gpus.get(gpu, 1.0) for gpu in self.ranks(stage, replica))

    @property
    def regular(self) -> bool:
        """No GPU and no node is special, and the nodes of every stage are full of it alone: all replicas are alike."""
        special = self.slow_gpus or self.slow_links or self.lost is not None
        fits = self.gpus_per_node % self.width == 0 or self.width % self.gpus_per_node == 0
        return not special and fits and self.dp * self.width % self.gpus_per_node == 0


def _there(what: str, number: int, count: int, factor: float) -> None:
    if not 0 <= number < count:
        raise ValueError(f"{what} {number} is not there: the {count} in use are numbered from 0 to {count - 1}")
    if factor < 1:
        raise ValueError(f"{what} {number} is {factor} times slower; a factor is 1 or more")


@dataclass(frozen=True)
class Classes:
    """Replicas and nodes by kind: `replicas[d]` and `nodes[n]` are the kind of each, numbered as first met.

    >>> fold(Layout(dp=1000, pp=8, width=8, gpus_per_node=8)).counts
    [1000]
    >>> fold(Layout(dp=1000, pp=8, width=8, gpus_per_node=8, slow_gpus={40: 1.5})).counts
    [999, 1]
    """

    layout: Layout
    replicas: Sequence[int]
    nodes: Mapping[int, int]

    @cached_property
    def counts(self) -> list[int]:
        """How many replicas there are of each kind."""
        counts = [0] * (max(self.replicas) + 1)
        for kind in self.replicas:
            counts[kind] += 1
        return counts

    @cached_property
    def examples(self) -> list[int]:
        """The first replica of each kind."""
        first: dict[int, int] = {}
        for replica, kind in enumerate(self.replicas):
            first.setdefault(kind, replica)
        return list(first.values())

    def crossing(self, node: int, stage: int, kind: int, shift: int) -> int:
        """How many GPUs on `node` work for `stage` in replicas of `kind` and have their partner `shift` ranks
        further on another node: as many equal messages leave the node at once."""
        layout, count = self.layout, 0
        g = layout.gpus_per_node
        for rank in range(node * g, min((node + 1) * g, layout.gpus)):
            its_stage, replica = divmod(rank // layout.width, layout.dp)
            here = its_stage == stage and self.replicas[replica] == kind
            count += here and (rank + shift) // g != node
        return count


def fold(layout: Layout, rounds: int = 3) -> Classes:
    """The fewest kinds of replicas and nodes that can be told apart after some rounds of refinement.

    A round lets a difference reach the neighbours on a node. Where stages fill their nodes it settles in two; where
    they end inside a node it would wander through the whole cluster: what neighbours of neighbours do is left out.
    Colours are compared by sums of 64-bit hashes.
    """
    if layout.regular:
        per_stage = layout.dp * layout.width // layout.gpus_per_node
        return Classes(layout, [0] * layout.dp, {stage * per_stage: stage for stage in range(layout.pp)})
    stage, replica, node, ranks = _places(layout)
    count = -(-layout.gpus // layout.gpus_per_node)
    replicas = _first_colors(layout.dp, [(d, s, layout.slow_gpus[g]) for g, s, d in _slow_places(layout)])
    links = [(n, 0, factor) for n, factor in layout.slow_links.items() if factor > 1]
    nodes = _first_colors(count, links + ([(layout.lost, 1, 1.0)] if layout.lost is not None else []))
    for _ in range(rounds):
        before = replicas.max(), nodes.max()
        nodes = _numbered(_hash(nodes, 1) + _summed(count, node, _hash(replicas[replica], stage, ranks)))
        replicas = _numbered(_hash(replicas, 2) + _summed(layout.dp, replica, _hash(nodes[node], stage, ranks)))
        if (replicas.max(), nodes.max()) == before:
            break
    return Classes(layout, replicas.tolist(), dict(enumerate(nodes.tolist())))


def unfolded(layout: Layout) -> Classes:
    """Every replica and every node a kind of its own: what `fold` must agree with."""
    count = -(-layout.gpus // layout.gpus_per_node)
    return Classes(layout, list(range(layout.dp)), {node: node for node in range(count)})


def _places(layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(stage, replica, node, how many GPUs) wherever GPUs of a stage and replica lie on a node."""
    g, slots = layout.gpus_per_node, np.arange(layout.pp * layout.dp)
    first = slots * layout.width
    parts = []
    for k in range(-(-layout.width // g) + 1):
        node = first // g + k
        ranks = np.minimum(first + layout.width, (node + 1) * g) - np.maximum(first, node * g)
        parts.append(np.stack([slots // layout.dp, slots % layout.dp, node, ranks])[:, ranks > 0])
    stage, replica, node, ranks = np.concatenate(parts, axis=1)
    return stage, replica, node, ranks


def _slow_places(layout: Layout) -> list[tuple[int, int, int]]:
    """(GPU, its stage, its replica) of those that are slow: of each stage and replica the slowest."""
    slowest: dict[tuple[int, int], int] = {}
    for gpu, factor in layout.slow_gpus.items():
        place = divmod(gpu // layout.width, layout.dp)
        if factor > layout.slow_gpus.get(slowest.get(place, -1), 1.0):
            slowest[place] = gpu
    return [(gpu, stage, replica) for (stage, replica), gpu in slowest.items()]


def _first_colors(count: int, special: list[tuple[int, int, float]]) -> np.ndarray:
    """0 for all but those that (index, where, factor) sets apart."""
    marks: dict[int, list] = {}
    for index, where, factor in special:
        marks.setdefault(index, []).append((where, factor))
    colors, numbers = np.zeros(count, dtype=np.int64), {}
    for index, mark in marks.items():
        colors[index] = numbers.setdefault(tuple(sorted(mark)), len(numbers) + 1)
    return colors


def _hash(*columns: np.ndarray | int) -> np.ndarray:
    """One 64-bit number for each row (splitmix64, Steele et al. 2014, between the columns)."""
    state = np.uint64(0x9E3779B97F4A7C15)
    for column in columns:
        state = (np.asarray(column).astype(np.uint64) + state) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(32))
    return state


def _summed(count: int, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums by index, modulo 2**64: equal for equal multisets."""
    totals = np.zeros(count, dtype=np.uint64)
    np.add.at(totals, index, values)
    return totals


def _numbered(colors: np.ndarray) -> np.ndarray:
    """The same partition in numbers from 0, in the order of first appearance."""
    _, first, inverse = np.unique(colors, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]
