"""One training step as it runs: every stage, message and gradient of a mesh, simulated in discrete events.

Stages work through their schedules (`utils.schedules`), activations travel from stage to stage, gradients are reduced
over the replicas while the last backward passes run (Li et al. 2020, arXiv 2006.15704), and all that leaves a node
shares its network adapters. GPUs that behave alike are simulated once (`symmetry.fold`), so that 100,000 of them take
a second. It agrees with the closed formulas where they apply, and says what they cannot: who waits for a slow GPU,
where a link is full, when the rest stands still after a node is lost.

Left out: variation from step to step, input, the inside of a node's network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from utils.planner.events import INFINITE, Simulation
from utils.planner.model import Model
from utils.planner.refusal import check
from utils.planner.spec import Cluster, Efficiency, Plan, Workload
from utils.planner.stage_costs import Pass, StepCosts, Wire, step_costs
from utils.planner.symmetry import Classes, Layout, fold, unfolded
from utils.schedules import Schedule, Span, Timeline


class SchedulesMissing(ValueError):
    """No schedule was given, and what makes schedules is not among the student's files yet."""


@dataclass(frozen=True)
class Simulated:
    """A step that was played. seconds: until the last task that can end has ended; whole: whether all did.

    classes: kinds of replicas, `classes.counts` how many there are of each. spans: kind -> actions of its stages, as
    `utils.schedules.Span`, rank being the place in the pipeline. sends: ("hop" | "reduce" | ..., start, end) of all
    messages. tasks: how many were simulated.
    """

    seconds: float
    whole: bool
    classes: Classes
    spans: dict[int, list[Span]]
    sends: list[tuple[str, float, float]]
    tasks: int

    def timeline(self, kind: int = 0) -> Timeline:
        """One kind of replica's pipeline, as `utils.pictures.schedule.draw_schedule` takes it."""
        return Timeline(self.classes.layout.pp, self.spans[kind])

    @property
    def slowest(self) -> Timeline:
        """The pipeline of the kind of replica that takes longest."""
        return max(map(self.timeline, range(len(self.classes.counts))), key=lambda line: line.seconds)

    @property
    def computed(self) -> float:
        """When the last backward pass has ended."""
        return max((span.end for spans in self.spans.values() for span in spans), default=0.0)

    @property
    def after_backward(self) -> float:
        """Seconds of the step after that: gradients that nothing hid, the optimizer, gathered parameters."""
        return self.seconds - self.computed

    def gpus_of(self, kind: int) -> int:
        """How many GPUs the replicas of a kind have."""
        return self.classes.counts[kind] * self.classes.layout.pp * self.classes.layout.width


def simulate(
    model: Model, workload: Workload, cluster: Cluster, plan: Plan, efficiency: Efficiency, *,
    slow_gpus: Mapping[int, float] | None = None, slow_links: Mapping[int, float] | None = None,
    lost_node: int | None = None, lost_at: float = INFINITE, node_bandwidth: float | None = None,
    blocking: bool = True, buckets: int = 4, folded: bool = True, schedule: Schedule | None = None,
) -> Simulated:  # fmt: skip
    """Play one step of a plan.

    slow_gpus: GPU -> how many times longer it computes; slow_links: node -> how many times slower its adapters are;
    lost_node: one that dies lost_at seconds into the step. node_bandwidth: bytes a second that leave a node, one way;
    None for one adapter a GPU, gpus_per_node * cluster.between.bandwidth. blocking: a stage sends before it works on.
    buckets: into how many parts the gradients of a chunk are cut. folded: simulate one GPU of each kind, not all.
    schedule: actions by rank; None makes the plan's. ValueError with one sentence for a plan that cannot be.
    """
    check(model, workload, cluster, plan)
    layout = Layout(plan.dp, plan.pp, plan.tp * plan.cp, cluster.gpus_per_node, slow_gpus or {}, slow_links or {},
                    lost_node)  # fmt: skip
    bandwidth = node_bandwidth or cluster.gpus_per_node * efficiency.link(cluster, "between").bandwidth
    costs = step_costs(model, workload, cluster, plan, efficiency)
    actions = schedule or _schedule(plan, plan.micro_batches(workload))
    return play_step(costs, layout, actions, bandwidth, groups=plan.tp, blocking=blocking, buckets=buckets,
                     folded=folded, lost_at=lost_at)  # fmt: skip


def _schedule(plan: Plan, micro_batches: int) -> Schedule:
    if plan.pp == 1:  # no pipeline: micro-batches one after the other, whatever the name
        return [[(op, 0, k) for k in range(micro_batches) for op in "FB"]]
    try:
        from utils.planner.schedules import make_schedule
    except ImportError:
        sentence = "schedules are made in lab 05, and come when a later lab is out"
        raise SchedulesMissing(f"{sentence}; give `schedule=`, a list of actions for each rank") from None
    return make_schedule(plan.schedule, plan.pp, micro_batches, plan.chunks)


def play_step(
    costs: StepCosts, layout: Layout, schedule: Schedule, node_bandwidth: float, *, groups: int = 1,
    blocking: bool = True, buckets: int = 4, folded: bool = True, lost_at: float = INFINITE,
) -> Simulated:  # fmt: skip
    """Play one step from its ingredients; `groups`: how many rings of dp a node takes part in (tp of the plan)."""
    step = _Step(costs, layout, schedule, node_bandwidth, groups, blocking, buckets, folded)
    step.build()
    dead = () if layout.lost is None else ("lost",)
    seconds = step.sim.run(dead=dead, dies_at=lost_at)
    return step.result(seconds)


class _Step:
    """The tasks of one step: streams ("gpu", kind, rank), and messages between and beside them."""

    def __init__(
        self, costs: StepCosts, layout: Layout, schedule: Schedule, node_bandwidth: float, groups: int,
        blocking: bool, buckets: int, folded: bool,
    ) -> None:  # fmt: skip
        self.costs, self.layout, self.schedule = costs, layout, schedule
        self.groups, self.blocking, self.buckets = groups, blocking, buckets
        self.classes = fold(layout) if folded else unfolded(layout)
        self.kinds = range(len(self.classes.counts))
        example: dict[int, int] = {}
        for node, kind in self.classes.nodes.items():
            example.setdefault(kind, node)
        self.slow_nodes = {kind: layout.slow_links.get(node, 1.0) for kind, node in example.items()}
        speeds = {kind: node_bandwidth / factor for kind, factor in self.slow_nodes.items()}
        self.sim = Simulation({(way, kind): speed for kind, speed in speeds.items() for way in ("out", "in")})
        self.paths: dict[tuple[int, int, int], tuple[dict, float, frozenset]] = {}
        self.stages = 1 + max((action[1] for actions in schedule for action in actions), default=-1)
        self.last_micro_batch = max((action[2] for actions in schedule for action in actions), default=-1)
        self.done: dict[tuple, int] = {}  # (kind, action) -> its last task
        self.began: dict[tuple, int] = {}  # (kind, action) -> its first task
        self.parts: dict[tuple, list[list[int]]] = {}  # rank -> for each chunk and bucket one task of each kind

    def build(self) -> None:
        for kind in self.kinds:
            for rank, actions in enumerate(self.schedule):
                for action in actions:
                    self._action(kind, rank, action)
        self._dependencies()
        for rank, actions in enumerate(self.schedule):
            self._replicas(rank, actions)

    def _action(self, kind: int, rank: int, action: tuple) -> None:
        op, stage, micro_batch = action
        cost: Pass = (self.costs.forward if op == "F" else self.costs.backward)[stage]
        replica = self.classes.examples[kind]
        seconds = cost.seconds(self.layout.slowness(rank, replica))
        reduces = op == "B" and self._reduces(rank) and (self.costs.each_pass or micro_batch == self.last_micro_batch)
        pieces = self.buckets if reduces and self.costs.overlap and not self.costs.each_pass else 1
        where = {"stream": ("gpu", kind, rank), "owners": self._owners(rank, replica)}
        tasks = [self.sim.work(seconds / pieces, label=(kind, rank, action), **where) for _ in range(pieces)]
        self.began[kind, action], self.done[kind, action] = tasks[0], tasks[-1]
        if reduces:
            own = self.parts.setdefault((rank, action), [[] for _ in tasks])
            for bucket, task in zip(own, tasks, strict=True):
                bucket.append(task)
        towards = stage + (1 if op == "F" else -1)
        if self.costs.hop is not None and 0 <= towards < self.stages and len(self.schedule) > 1:
            self._hop(kind, rank, action, towards)

    def _reduces(self, rank: int) -> bool:
        return bool(self.costs.reduce) and self.costs.reduce[rank] is not None

    def _hop(self, kind: int, rank: int, action: tuple, towards: int) -> None:
        """The message to the next stage; the action of that stage will wait for it."""
        peer = towards % len(self.schedule)
        if (kind, rank, peer) not in self.paths:
            self.paths[kind, rank, peer] = self._path(kind, rank, peer)
        uses, slowest, owners = self.paths[kind, rank, peer]
        stream = ("gpu", kind, rank) if self.blocking else ("hop", kind, rank, peer)
        after = [self.done[kind, action]]
        self.done[kind, (*action, "sent")] = self._flow(self.costs.hop, uses, slowest, after, "hop", stream, owners)

    def _flow(self, wire: Wire, uses, slowest, after, name: str, stream, owners) -> int:
        limit = wire.limit / slowest
        return self.sim.flow(wire.nbytes, latency=wire.latency, limit=limit, uses=uses if wire.leaves else None,
                             after=after, stream=stream, label=(name,), owners=owners)  # fmt: skip

    def _path(self, kind: int, rank: int, peer: int) -> tuple[dict, float, frozenset]:
        """link -> equal messages on it when all replicas of a kind send, the slowest adapter's factor, and owners."""
        replica, uses, slowest = self.classes.examples[kind], {}, 1.0
        shift = (peer - rank) * self.layout.dp * self.layout.width
        for way, stage, step in (("out", rank, shift), ("in", peer, -shift)):
            for node in self.layout.nodes_of(stage, replica):
                weight = self.classes.crossing(node, stage, kind, step)
                if weight:
                    uses[way, self.classes.nodes[node]] = weight
                    slowest = max(slowest, self.slow_nodes[self.classes.nodes[node]])
        return uses, slowest, self._owners(rank, replica) | self._owners(peer, replica)

    def _owners(self, rank: int, replica: int) -> frozenset:
        return frozenset({"lost"} if self.layout.lost in self.layout.nodes_of(rank, replica) else ())

    def _dependencies(self) -> None:
        """F needs the stage before it, B its own F and the stage after it (`utils.schedules.needs`)."""
        for (kind, action), task in self.began.items():
            op, stage, micro_batch = action
            if op == "B":
                self.sim.needs(task, self.done[kind, ("F", stage, micro_batch)])
            before = stage - 1 if op == "F" else stage + 1
            if 0 <= before < self.stages:
                source = (op, before, micro_batch)
                self.sim.needs(task, self.done.get((kind, (*source, "sent")), self.done[kind, source]))

    def _replicas(self, rank: int, actions: list[tuple]) -> None:
        """What all replicas do together for one stage: fetch parameters, reduce gradients, update, gather."""
        uses, slowest, owners = self._ring_links(rank)
        costs, stream = self.costs, ("dp", rank)
        ends = [self.done[kind, actions[-1]] for kind in self.kinds]
        for index, action in enumerate(actions):
            if costs.fetch and costs.fetch[rank] is not None:
                # Fetched while the action before the last one runs: one chunk ahead.
                after = [self.done[kind, actions[index - 2]] for kind in self.kinds] if index > 1 else []
                fetch = self._flow(costs.fetch[rank], uses, slowest, after, "fetch", ("fetch", rank), owners)
                for kind in self.kinds:
                    self.sim.needs(self.began[kind, action], fetch)
            for bucket in self.parts.get((rank, action), ()):
                pieces = 1 if costs.each_pass else self._pieces(rank, actions)
                after = bucket if costs.overlap else bucket + ends
                ends.append(self._flow(costs.reduce[rank].part(pieces), uses, slowest, after, "reduce", stream, owners))
        if costs.tied is not None and rank in (0, len(self.schedule) - 1):
            ends.append(self._flow(costs.tied, None, 1.0, ends, "tied", stream, owners))
        update = self.sim.work(costs.optimizer, after=ends, label=("optimizer",), owners=owners)
        if costs.gather and costs.gather[rank] is not None:
            self._flow(costs.gather[rank], uses, slowest, [update], "gather", stream, owners)

    def _pieces(self, rank: int, actions: list[tuple]) -> int:
        return sum(len(self.parts.get((rank, action), ())) for action in actions)

    def _ring_links(self, rank: int) -> tuple[dict, float, frozenset]:
        """Rings over all replicas of a stage enter and leave every node of it once for each of its groups."""
        nodes = {node for kind in self.kinds for node in self.layout.nodes_of(rank, self.classes.examples[kind])}
        kinds = {self.classes.nodes[node] for node in nodes}
        weight = min(self.groups, self.layout.gpus_per_node)
        uses = {(way, kind): weight for kind in kinds for way in ("out", "in")}
        owners = [self._owners(rank, self.classes.examples[kind]) for kind in self.kinds]
        return uses, max(self.slow_nodes[kind] for kind in kinds), frozenset().union(*owners)

    def result(self, seconds: float) -> Simulated:
        spans: dict[int, list[Span]] = {kind: [] for kind in self.kinds}
        for (kind, action), first in self.began.items():
            start, end = self.sim.tasks[first].start, self.sim.tasks[self.done[kind, action]].end
            if end < INFINITE:
                spans[kind].append(Span(action[1] % len(self.schedule), *action, start, end))
        sends = [(task.label[0], task.start, task.end) for task in self.sim.tasks
                 if len(task.label) == 1 and task.label != ("optimizer",)]  # fmt: skip
        whole = all(task.end < INFINITE for task in self.sim.tasks)
        return Simulated(seconds, whole, self.classes, spans, sends, len(self.sim.tasks))
