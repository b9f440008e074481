"""A step simulated GPU by GPU, without symmetry, streams or a heap: slow, and written apart from the package.

Everything is a list of things that wait, run or move. Again and again: find the fair rates of all that moves, find
what ends first, let that much time pass. tp = width; the rings of dp go once through every node of a stage.
"""

from __future__ import annotations

INF = float("inf")


class Thing:
    def __init__(self, name, seconds, nbytes=0.0, limit=INF, links=(), needs=()):
        self.name, self.seconds, self.left, self.limit = name, seconds, nbytes, limit
        self.links, self.needs, self.end = list(links), list(needs), None
        self.moves = nbytes > 0


def rates_of(moving, capacity):
    """Water filling, by raising one common level until somebody stops."""
    rates, open_ = {}, list(moving)
    while open_:
        level = min(thing.limit for thing in open_)
        for link, whole in capacity.items():
            users = [thing for thing in open_ for used in thing.links if used == link]
            taken = sum(rates[thing] for thing in rates for used in thing.links if used == link)
            if users:
                level = min(level, (whole - taken) / len(users))
        stopped = []
        for thing in open_:
            full = thing.limit <= level * (1 + 1e-9)
            for link in thing.links:
                users = sum(other.links.count(link) for other in open_)
                taken = sum(rates[other] * other.links.count(link) for other in rates)
                full = full or (capacity[link] - taken) / users <= level * (1 + 1e-9)
            if full:
                stopped.append(thing)
        for thing in stopped:
            rates[thing] = level
            open_.remove(thing)
    return rates


def play(things, capacity):
    """When the last thing ends; sets `end` of each."""
    now, running, moving = 0.0, {}, []
    waiting = list(things)
    while waiting or running or moving:
        ready = [thing for thing in waiting if all(need.end is not None for need in thing.needs)]
        for thing in ready:
            waiting.remove(thing)
            running[thing] = now + thing.seconds
        rates = rates_of(moving, capacity)
        moments = [*running.values(), *(now + thing.left / rates[thing] for thing in moving)]
        then = min(moments)
        for thing in moving:
            thing.left -= rates[thing] * (then - now)
        now = then
        for thing in [thing for thing in moving if thing.left <= 1e-9 * (1 + rates[thing])]:
            moving.remove(thing)
            thing.end = now
        for thing in [thing for thing, moment in running.items() if moment <= now * (1 + 1e-12)]:
            del running[thing]
            if thing.moves:
                moving.append(thing)
            else:
                thing.end = now
    return now


def step_seconds(costs, layout, schedule, node_bandwidth, *, blocking=True, buckets=4):
    """The seconds of one step of `play_step`, every GPU by itself. ZeRO-0 and ZeRO-1, overlapped."""
    dp, pp, tp, g = layout.dp, layout.pp, layout.width, layout.gpus_per_node
    stages = 1 + max(stage for actions in schedule for _, stage, _ in actions)
    last = max(k for actions in schedule for _, _, k in actions)
    things, last_of, did, arrived, pieces = [], {}, {}, {}, {}

    def gpu(stage, replica, t):
        return (stage % pp * dp + replica) * tp + t

    def add(thing, stream=None):
        if stream is not None:
            if stream in last_of:
                thing.needs.append(last_of[stream])
            last_of[stream] = thing
        things.append(thing)
        return thing

    for d in range(dp):
        for r, actions in enumerate(schedule):
            for op, stage, k in actions:
                cost = (costs.forward if op == "F" else costs.backward)[stage]
                cut = buckets if op == "B" and k == last and costs.reduce[r] is not None else 1
                for piece in range(cut):
                    works = []
                    for t in range(tp):
                        slow = layout.slow_gpus.get(gpu(stage, d, t), 1.0)
                        works.append(add(Thing((op, stage, k), cost.work * slow / cut), ("gpu", gpu(stage, d, t))))
                    for t in range(tp):  # a collective: all of the group have arrived, then it takes its time
                        together = Thing((op, stage, k, "tp"), cost.waits / cut)
                        together.needs += works
                        done = add(together, ("gpu", gpu(stage, d, t)))
                        if op == "B" and k == last:
                            pieces.setdefault((stage, t, piece), []).append(done)
                        did[op, stage, k, d, t] = done
                        if piece == 0:
                            did[op, stage, k, d, t, "works"] = works
                towards = stage + (1 if op == "F" else -1)
                if pp > 1 and 0 <= towards < stages:
                    for t in range(tp):
                        here, there = gpu(stage, d, t) // g, gpu(towards, d, t) // g
                        stream = ("gpu", gpu(stage, d, t)) if blocking else ("hop", gpu(stage, d, t), towards % pp)
                        links = [("out", here), ("in", there)] if here != there else []
                        slow = max(layout.slow_links.get(here, 1.0), layout.slow_links.get(there, 1.0))
                        limit = costs.hop.limit / slow if links else costs.hop.limit
                        hop = Thing("hop", costs.hop.latency, costs.hop.nbytes, limit, links)
                        hop.needs.append(did[op, stage, k, d, t])
                        arrived[op, stage, k, d, t] = add(hop, stream)
    for (op, stage, k, d, t, *rest), works in did.items():
        if not rest:
            continue
        before = stage - 1 if op == "F" else stage + 1
        if 0 <= before < stages:
            works[t].needs.append(arrived.get((op, before, k, d, t), did[op, before, k, d, t]))
        if op == "B":
            works[t].needs.append(did["F", stage, k, d, t])
    for r, actions in enumerate(schedule):
        if costs.reduce[r] is None:
            continue
        own = [stage for op, stage, k in actions if op == "B" and k == last]
        nodes = sorted({gpu(r, d, t) // g for d in range(dp) for t in range(tp)})
        slow = max(layout.slow_links.get(node, 1.0) for node in nodes)
        for t in range(tp):
            for stage in own:
                for piece in range(buckets):
                    wire, parts = costs.reduce[r], buckets * len(own)
                    links = [(way, node) for node in nodes for way in ("out", "in")] if wire.leaves else []
                    flow = Thing("reduce", wire.latency, wire.nbytes / parts, wire.limit / slow, links)
                    flow.needs += pieces[stage, t, piece]
                    add(flow, ("dp", r, t))
    nodes = -(-dp * pp * tp // g)
    capacity = {(way, n): node_bandwidth / layout.slow_links.get(n, 1.0) for way in ("out", "in") for n in range(nodes)}
    return play(things, capacity)
