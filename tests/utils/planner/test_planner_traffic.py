"""Bytes of collectives held to the papers' formulas and to rings walked step by step."""

import pytest

from utils.cost import AlphaBeta
from utils.planner import published
from utils.planner.model import Model
from utils.planner.shards import rank_parameters
from utils.planner.spec import Efficiency, Plan, Workload
from utils.planner.traffic import messages, ring_seconds

GPT = published.gpt("small", 8, 512, 8)
MOE = Model("moe", 8, 64, 8, vocabulary=104, gated=True, tied=False, biases=False, experts=4, top_k=2)


def sent(model, workload, plan, axis, phases=("forward", "backward", "recompute", "step"), stage=None):
    """Bytes that one rank sends on an axis in one step."""
    cluster = published.selene(plan.gpus if plan.gpus <= 8 else -(-plan.gpus // 8) * 8)
    found = messages(model, workload, plan, cluster, stage=stage)
    return sum(one.total_sent for one in found if one.axis == axis and one.phase in phases)


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("sp", [False, True])
def test_tensor_parallelism_sends_8_bsh_t_minus_1_over_t_values_a_layer(t, sp):
    b, s, m, p = 2, 64, 6, 2
    plan = Plan(tp=t, pp=p, sequence_parallel=sp)
    layers, values = GPT.layers // p, 8 * b * s * GPT.hidden * (t - 1) / t
    ours = sent(GPT, Workload(b * m, b, s), plan, "tp")
    again = 2 * b * s * GPT.hidden * (t - 1) / t if sp else 0  # the input gathered once more, twice a layer
    assert ours == pytest.approx(m * layers * 2 * (values + again))


@pytest.mark.parametrize("checkpoint, times", [("none", 1.0), ("selective", 1.0), ("full", 1.5)])
def test_full_recomputation_sends_the_forward_pass_again(checkpoint, times):
    base = sent(GPT, Workload(8, seq=64), Plan(tp=4), "tp")
    assert sent(GPT, Workload(8, seq=64, checkpoint=checkpoint), Plan(tp=4), "tp") == pytest.approx(times * base)


@pytest.mark.parametrize("zero, values", [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_data_parallelism_sends_2_or_3_values_a_parameter(zero, values):
    """ZeRO, section 7: 2P, with stage 3 3P, times (N - 1)/N, in one micro-batch of 2-byte numbers."""
    n = 16
    ours = sent(GPT, Workload(n, seq=64), Plan(dp=n, zero=zero), "dp")
    assert ours == pytest.approx(values * 2 * GPT.parameters * (n - 1) / n)


@pytest.mark.parametrize("zero, values", [(0, 2), (1, 2), (2, 5), (3, 12)])
def test_micro_batches_multiply_what_is_not_kept(zero, values):
    """4 micro-batches: stage 2 reduces each, 4 + 1 values; stage 3 gathers twice and reduces for each, 12."""
    ours = sent(GPT, Workload(4 * 4, seq=64), Plan(dp=4, zero=zero), "dp")
    assert ours == pytest.approx(values * 2 * GPT.parameters * 3 / 4)


def test_gradients_kept_in_fp32_travel_in_fp32():
    ours = sent(GPT, Workload(4, seq=64, gradient_bytes=4), Plan(dp=4), "dp")
    assert ours == pytest.approx(2 * 4 * GPT.parameters * 3 / 4)


@pytest.mark.parametrize("t, v", [(1, 1), (8, 1), (8, 2)])
def test_a_pipeline_sends_bsh_over_t_each_way_for_each_chunk(t, v):
    b, s, m, p = 2, 64, 8, 4
    plan = Plan(tp=t, pp=p, schedule="interleaved" if v > 1 else "1f1b", chunks=v)
    cluster = published.selene(plan.gpus)
    for stage, ways in ((0, 2 * v - 1), (1, 2 * v), (p - 1, 2 * v - 1)):
        found = messages(GPT, Workload(b * m, b, s), plan, cluster, stage=stage)
        across = sum(one.total_sent for one in found if one.axis == "pp" and one.op == "send")
        assert across == ways * m * b * s * GPT.hidden * 2 / t


def test_a_tied_embedding_is_summed_between_the_ends():
    found = messages(GPT, Workload(8, seq=64), Plan(tp=2, pp=4), published.selene(8), stage=3)
    ends = [one for one in found if one.axis == "pp" and one.phase == "step"]
    assert [(one.op, one.nbytes, one.count) for one in ends] == [("all_reduce", 51200 // 2 * 512 * 2, 1)]
    untied = messages(MOE, Workload(8, seq=64), Plan(pp=4), published.selene(4), stage=3)
    assert not [one for one in untied if one.phase == "step"]


def test_experts_send_each_token_out_and_back():
    b, s, m, ep = 2, 16, 3, 4
    plan = Plan(dp=4, ep=ep)
    ours = sent(MOE, Workload(b * m * 4, b, s), plan, "ep")
    assert ours == pytest.approx(m * 8 * 4 * (b * s * 2 * 64 * 2) * 3 / 4)
    shared, expert = rank_parameters(MOE, plan, 0)
    assert sent(MOE, Workload(b * m * 4, b, s), plan, "dp") == pytest.approx(2 * 2 * shared * 3 / 4)  # ep = dp: whole
    half = Plan(dp=4, ep=2)
    twice = rank_parameters(MOE, half, 0)[1]
    assert twice == 2 * expert
    assert sent(MOE, Workload(8, 1, s), half, "dp") == pytest.approx(2 * 2 * (shared * 3 / 4 + twice / 2))


def test_ring_attention_sends_keys_and_values_round():
    cp, s, b = 4, 64, 1
    model = Model("gqa", 2, 64, 8, kv_heads=2, biases=False)
    ours = sent(model, Workload(2, b, s), Plan(cp=cp), "cp")
    keys_and_values = 2 * (s // cp) * 16 * 2
    assert ours == 2 * 2 * (cp - 1) * keys_and_values * 3  # 2 micro-batches, 2 layers, forward and twice backward


def walked(op, nbytes, ranks, link):
    """Seconds of a ring in which each rank sends a piece to the next one, until all hold what they should."""
    pieces, clock = [[{rank} for _ in range(ranks)] for rank in range(ranks)], 0.0
    phases = {"all_reduce": (0, 1), "reduce_scatter": (0,), "all_gather": (1,)}[op]
    for phase in phases:
        for k in range(ranks - 1):
            moves = [(rank, (rank + phase - k) % ranks) for rank in range(ranks)]
            moving = [set(pieces[rank][piece]) for rank, piece in moves]
            for (rank, piece), data in zip(moves, moving, strict=True):
                pieces[(rank + 1) % ranks][piece] |= data
            clock += link.time(nbytes / ranks)
    if op == "all_reduce":
        assert all(piece == set(range(ranks)) for row in pieces for piece in row)
    return clock


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_seconds_are_those_of_a_ring_walked_through(op, ranks):
    link = AlphaBeta(2e-5, 3e-9)
    assert ring_seconds(op, 1.2e6, ranks, link) == pytest.approx(walked(op, 1.2e6, ranks, link))


def test_levels_follow_the_layout_of_ranks():
    plan = Plan(dp=4, tp=4, pp=2, cp=2)
    found = messages(GPT, Workload(8, seq=64), plan, published.selene(32))
    levels = {(one.axis, one.op): one.level for one in found}
    assert levels[("tp", "all_reduce")] == "node" and levels[("cp", "send")] == "node"
    assert levels[("dp", "all_reduce")] == "between" and levels[("pp", "send")] == "between"
    assert levels[("pp", "all_gather")] == "node"
    crossing = messages(GPT, Workload(8, seq=64), Plan(dp=2, pp=8), published.selene(16), stage=3)
    assert {one.level for one in crossing if one.axis == "pp"} == {"between"}  # stages 3 and 4 are on two nodes
    small = messages(GPT, Workload(8, seq=64), Plan(dp=4, tp=2), published.selene(8))
    assert {one.level for one in small} == {"node"}


def test_efficiency_stretches_bytes_and_not_latency():
    plan, cluster = Plan(dp=16), published.selene(16)
    (peak,) = messages(GPT, Workload(16, seq=64), plan, cluster)
    (half,) = messages(GPT, Workload(16, seq=64), plan, cluster, Efficiency(between=0.5))
    latency = 2 * 15 * cluster.between.alpha
    assert half.seconds - latency == pytest.approx(2 * (peak.seconds - latency))


def test_one_gpu_sends_nothing():
    assert messages(GPT, Workload(4, seq=64), Plan(), published.selene(1)) == []
