"""The search: against every plan priced, the published plans, and what its sentences say against prices."""

import doctest
import itertools
import random
import re
import time
from dataclasses import replace

import numpy as np
import pytest

from utils.cost import AlphaBeta
from utils.planner import candidate, explain, search
from utils.planner.candidate import price
from utils.planner.efficiency import A100
from utils.planner.explain import Setting, changed, differs, gains, limits
from utils.planner.memory import ledger
from utils.planner.published import gpt, ptdp_table_1, selene
from utils.planner.refusal import refuse
from utils.planner.search import Space, bounded, front
from utils.planner.spec import Cluster, Efficiency, Model, Plan, Workload
from utils.planner.timing import step

LINK, SLOW = AlphaBeta(3e-6, 1 / 300e9), AlphaBeta(6e-6, 1 / 25e9)
DENSE = Model("dense", layers=12, hidden=1536, heads=12, kv_heads=6, vocabulary=32000, gated=True)
EXPERTS = replace(DENSE, experts=8, top_k=2, expert_ffn=1536, dense_layers=0)


def cluster_of(gpus: int, gigabytes: float = 80, node: int = 8) -> Cluster:
    return Cluster("test", gpus, node, 312e12, gigabytes * 1e9, 2e12, LINK, SLOW)


def every_plan(model, workload, cluster):
    """All plans that `refuse` lets pass, from nothing but ranges."""
    n, found = cluster.gpus, []
    for tp, pp, cp in itertools.product(range(1, n + 1), repeat=3):
        if n % (tp * pp * cp):
            continue
        dp = n // (tp * pp * cp)
        for ep, zero, parallel, v in itertools.product(range(1, dp + 1), range(4), (False, True), range(1, 13)):
            if dp % ep or (zero and dp * cp == 1):
                continue
            for name in ("gpipe", "1f1b") if v == 1 else ("interleaved",):
                try:
                    plan = Plan(dp, tp, pp, cp, ep, zero, parallel, name, v)
                except ValueError:
                    continue
                for rows, checkpoint in itertools.product(range(1, 17), ("none", "selective", "full")):
                    work = replace(workload, micro_batch=rows, checkpoint=checkpoint)
                    if refuse(model, work, cluster, plan) is None:
                        found.append(price(model, work, cluster, plan, A100))
    return found


@pytest.mark.parametrize("module", [candidate, explain, search])
def test_examples_in_docstrings(module):
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.attempted and not results.failed


@pytest.mark.parametrize("model, gpus, gigabytes", [(DENSE, 4, 80), (DENSE, 6, 10), (EXPERTS, 4, 20), (DENSE, 8, 6.5)])
def test_it_finds_what_pricing_every_plan_finds(model, gpus, gigabytes):
    workload, cluster = Workload(24, seq=512), cluster_of(gpus, gigabytes, node=2 if gpus % 4 else 4)
    every = every_plan(model, workload, cluster)
    fits = [one for one in every if one.memory.total <= 0.9 * cluster.memory_bytes]
    assert 0 < len(fits) <= len(every)
    quickest = min(one.time.seconds for one in fits)
    found = search.search(model, workload, cluster, A100)
    assert found.best.time.seconds == pytest.approx(quickest, rel=1e-12)
    assert found.best.memory.total == pytest.approx(
        min(one.memory.total for one in fits if one.time.seconds <= quickest * (1 + 1e-12)))  # fmt: skip


def test_the_front_is_that_of_every_plan():
    workload, cluster = Workload(12, seq=512), cluster_of(4, node=4)
    every = every_plan(DENSE, workload, cluster)
    pairs = {(one.time.seconds, one.memory.total) for one in every}
    undominated = {p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)}
    limit = 3 * min(seconds for seconds, _ in undominated)
    wanted = sorted(pair for pair in undominated if pair[0] <= limit)
    got = [(one.time.seconds, one.memory.total) for one in front(DENSE, workload, cluster, A100)]
    assert np.allclose(got, wanted, rtol=1e-12)


def test_gpipe_is_never_quicker_and_never_smaller():
    draw, tried = random.Random(0), 0
    while tried < 200:
        plan = Plan(draw.choice([1, 2, 4]), draw.choice([1, 2]), draw.choice([2, 3, 4]), zero=draw.randrange(4))
        workload = Workload(48, draw.choice([1, 2, 4]), 512, checkpoint=draw.choice(["none", "full"]))
        if refuse(DENSE, workload, None, plan):
            continue
        tried += 1
        cluster = cluster_of(plan.gpus, node=plan.gpus)
        one, other = (price(DENSE, workload, cluster, replace(plan, schedule=name), A100) for name in ("1f1b", "gpipe"))
        assert one.time == other.time and one.memory.total <= other.memory.total


@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_no_step_is_shorter_than_its_bound(model):
    workload, cluster = Workload(48, seq=512), cluster_of(12, node=4)
    bounds, shapes = bounded(model, workload, cluster, A100, Space())
    assert len(shapes) > 100
    for bound, (plan, work) in zip(bounds, shapes, strict=True):
        for zero in range(4) if plan.shards > 1 else (0,):
            seconds = step(model, work, cluster, replace(plan, zero=zero), A100).seconds
            assert bound <= seconds * (1 + 1e-12)


def test_the_bound_is_tight_where_nothing_is_sent():
    """One GPU: all but the optimizer is in it."""
    for model in (DENSE, EXPERTS):
        bounds, shapes = bounded(model, Workload(8, seq=512), cluster_of(1), A100, Space())
        for bound, (plan, work) in zip(bounds, shapes, strict=True):
            time_ = step(model, work, cluster_of(1), plan, A100)
            assert bound == pytest.approx(time_.seconds - time_.optimizer, rel=1e-12)


def test_what_may_not_fit_is_what_does_not_fit():
    """The stages of ZeRO that are left out from one look at the first stage are those that do not fit."""
    workload, cluster = Workload(48, seq=512), cluster_of(12, 4, node=4)
    _, shapes = bounded(DENSE, workload, cluster, A100, Space(largest_micro_batch=4))
    room, left_out = 0.9 * cluster.memory_bytes, 0
    for plan, work in shapes:
        stages = search._worth_a_look(ledger(DENSE, work, plan, stage=0), room)
        for zero in set(range(4)) - stages:
            left_out += 1
            assert ledger(DENSE, work, replace(plan, zero=zero)).total > room
    assert left_out > 50


def test_published_plans_are_not_better_under_this_model():
    """Runs of table 1 against the search on the same GPUs, batch and efficiency; what differs is said."""
    for run in ptdp_table_1()[::3]:
        efficiency = replace(A100, tp_overlap=run.tp_overlap)
        theirs = price(run.model, run.workload, run.cluster, run.plan, efficiency)
        found = search.search(run.model, run.workload, run.cluster, efficiency, usable=1.0).best
        assert theirs.memory.total < 80e9, run.model.name  # it ran, so it fits
        assert found.time.seconds <= theirs.time.seconds * (1 + 1e-12)
        sentences = differs(found, theirs)
        assert found.text() == theirs.text() or sentences[0] != "ours / theirs: the same plan."
        assert "quicker" in sentences[1]


def test_a_given_choice_is_kept():
    space = Space(tp=2, micro_batch=2, checkpoint="full", zero=1)
    best = search.search(DENSE, Workload(48, seq=512), cluster_of(12, node=4), A100, space).best
    assert (best.plan.tp, best.workload.micro_batch, best.workload.checkpoint, best.plan.zero) == (2, 2, "full", 1)


def test_nothing_fits_and_the_smallest_is_named():
    found = search.search(DENSE, Workload(12, seq=512), cluster_of(4, 0.5, node=4), A100)
    every = every_plan(DENSE, Workload(12, seq=512), cluster_of(4, 0.5, node=4))
    assert found.best is None
    assert found.smallest.memory.total == pytest.approx(min(one.memory.total for one in every))


def test_a_large_search_takes_seconds():
    """The budget is 1 s on a quiet machine (benchmarks/planner.py measures it); here only that it is not minutes."""
    begun = time.perf_counter()
    found = search.search(gpt("GPT-3 175B", 96, 12288, 96), Workload(1920), selene(3840), A100)
    assert time.perf_counter() - begun < 30
    assert found.considered > 20_000 and found.best.plan.gpus == 3840


# Sentences.


@pytest.fixture(scope="module")
def case():
    model, workload, cluster = gpt("GPT-3 175B", 96, 12288, 96), Workload(1536), selene(1536)
    return Setting(model, cluster, A100), search.search(model, workload, cluster, A100).best


def test_sentences_say_what_prices_say(case):
    setting, best = case
    sentences = explain.explain(setting, best)
    assert len(sentences) >= 5
    by_name = {re.match(r"[A-Za-z -]+?(?= (?:\d|on|off|none|selective|full))", text)[0]: text for text in sentences}
    fits = {name: re.findall(r"(\w+) does not fit \(([\d.]+) GB of ([\d.]+)", text) for name, text in by_name.items()}
    slower = {name: re.findall(r"(\w+) would be ([\d.]+)% slower", text) for name, text in by_name.items()}
    assert any(fits.values()) and any(slower.values())
    for said, field in {shown: field for field, shown in explain.NAMES.items()}.items():
        convert = {"checkpoint": str, "sequence_parallel": lambda word: word == "on"}.get(field, int)
        for value, need, room in fits.get(said, ()):
            other = setting.price(*changed(best, field, convert(value)))
            assert other.memory.total / 1e9 == pytest.approx(float(need), abs=0.051) and float(need) > float(room)
        for value, percent in slower.get(said, ()):
            other = setting.price(*changed(best, field, convert(value)))
            assert other.memory.total <= setting.room
            assert other.time.seconds / best.time.seconds - 1 == pytest.approx(float(percent) / 100, abs=6e-4)


def test_no_neighbour_of_the_best_is_better(case):
    setting, best = case
    assert "quicker" not in " ".join(explain.explain(setting, best))


def test_limits_add_up_and_name_the_largest(case):
    setting, best = case
    spent, most, memory = limits(setting, best)
    shares = [float(x) for x in re.findall(r"([\d.]+)%", spent)]
    assert sum(shares) == pytest.approx(100, abs=1)
    name, saved = gains(setting, best)[0]
    assert name in most and f"{saved:.1%}" in most
    assert f"{best.memory.total / 1e9:.1f} of 72.0 GB" in memory


def test_what_limits_depends_on_the_machine(case):
    """Links a hundred times slower: then they limit."""
    setting, best = case
    slow = AlphaBeta(6e-6, 1 / 0.25e9)
    far = replace(setting, cluster=replace(setting.cluster, between=slow))
    assert gains(setting, best)[0][0] == "FLOP/s"
    assert gains(far, far.price(best.plan, best.workload))[0][0] == "bandwidth between nodes"


def test_a_perfect_machine_leaves_nothing_below_peak():
    model, cluster = gpt("1.7B", 24, 2304, 24), cluster_of(1)
    setting = Setting(model, replace(cluster, memory_bandwidth=1e30), Efficiency())
    one = setting.price(Plan(), Workload(1))
    assert one.time.mfu == pytest.approx(1.0)
