"""Seconds of a step: closed forms, and published runs that did not choose the parameters."""

from dataclasses import replace

import pytest

from utils.cost import AlphaBeta
from utils.planner import compare, efficiency, published
from utils.planner.efficiency import A100, NAMES, fit, predict, run_time
from utils.planner.flops import forward_flops, hardware_flops, model_flops
from utils.planner.model import Model
from utils.planner.spec import Cluster, Efficiency, Plan, Workload
from utils.planner.timing import layer_time, step
from utils.planner.traffic import messages

NO_WIRE = AlphaBeta(0.0, 0.0)
# No links, endless memory bandwidth: only FLOPs take time.
IDEAL = Cluster("ideal", 64, 8, 1e12, 1e12, 1e30, NO_WIRE, NO_WIRE)
THIN = Model("thin", 24, 256, 8, vocabulary=8, biases=False)  # next to no output product


def test_work_alone_takes_its_flops():
    work = Workload(8, 2, seq=64, checkpoint="full")
    time = step(THIN, work, replace(IDEAL, gpus=1, gpus_per_node=1), Plan(), Efficiency(gemm=0.5))
    assert time.seconds == pytest.approx(hardware_flops(THIN, work) / 0.5e12, rel=1e-9)
    assert time.compute == pytest.approx(model_flops(THIN, work) / 0.5e12, rel=1e-9)
    assert time.hfu == pytest.approx(0.5) and time.mfu < 0.38
    assert time.tokens_per_second == pytest.approx(8 * 64 / time.seconds)


@pytest.mark.parametrize("checkpoint", ["none", "selective", "full"])
@pytest.mark.parametrize("flash", [False, True])
def test_where_only_flops_take_time_hfu_is_1(checkpoint, flash):
    work = Workload(8, 2, seq=64, checkpoint=checkpoint, flash_attention=flash)
    model = Model("moe", 4, 64, 4, kv_heads=2, gated=True, experts=4, top_k=2, shared_experts=1, dense_layers=2)
    time = step(model, work, replace(IDEAL, gpus=1, gpus_per_node=1), Plan(), Efficiency())
    assert time.hfu == pytest.approx(1, rel=1e-3)  # all but the router


@pytest.mark.parametrize("p, m, v", [(4, 4, 1), (4, 16, 1), (8, 32, 1), (4, 8, 2), (8, 8, 3), (2, 6, 4)])
def test_the_bubble_is_p_minus_1_over_v_m(p, m, v):
    plan = Plan(pp=p, schedule="interleaved" if v > 1 else "1f1b", chunks=v)
    time = step(THIN, Workload(m, seq=64), replace(IDEAL, gpus=8), plan, Efficiency())
    assert time.bubble / time.compute == pytest.approx((p - 1) / (v * m), rel=2e-3)


@pytest.mark.parametrize("p, m, over_ideal, of_total", [
    (4, 1, 3.0, 0.75), (4, 4, 0.75, 0.4286), (4, 8, 0.375, 0.2727), (4, 16, 0.1875, 0.1579), (4, 32, 0.0938, 0.0857),
    (8, 8, 0.875, 0.4667), (8, 32, 0.2188, 0.1795),
])  # fmt: skip
def test_both_definitions_of_the_bubble(p, m, over_ideal, of_total):
    time = step(THIN, Workload(m, seq=64), replace(IDEAL, gpus=8), Plan(pp=p), Efficiency())
    assert time.bubble / (time.seconds - time.bubble) == pytest.approx(over_ideal, rel=2e-3)
    assert time.bubble / time.seconds == pytest.approx(of_total, rel=2e-3)


@pytest.mark.parametrize("p, m, v", [(4, 4, 1), (4, 16, 1), (4, 8, 2), (2, 6, 4)])
def test_a_step_is_as_long_as_its_schedule_played_through(p, m, v):
    schedules = pytest.importorskip("utils.planner.schedules")
    from utils.schedules import play

    name = "interleaved" if v > 1 else "1f1b"
    time = step(THIN, Workload(m, seq=64), replace(IDEAL, gpus=8), Plan(pp=p, schedule=name, chunks=v), Efficiency())
    unit = time.compute / (3 * m * v)  # forward of one chunk; backward takes two
    played = play(schedules.make_schedule(name, p, m, v), forward=unit, backward=2 * unit)
    assert time.seconds == pytest.approx(played.seconds, rel=3e-3)


def test_parts_add_up_for_every_axis():
    model = Model("moe", 8, 512, 8, vocabulary=1024, biases=False, experts=8, top_k=2)
    plan = Plan(dp=4, tp=2, pp=2, cp=2, ep=4, zero=1)
    time = step(model, Workload(64, 2, seq=512, checkpoint="selective"), published.selene(32), plan, A100)
    parts = dict(time.parts())
    assert set(parts) == {"compute", "recompute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer"}
    assert time.seconds == pytest.approx(sum(parts.values()))
    assert all(parts[name] > 0 for name in parts if name not in ("cp", "dp")) and min(parts.values()) >= 0


def test_data_parallelism_hides_as_far_as_there_is_work_beside_it():
    model, cluster = published.gpt("g", 8, 1024, 16), published.selene(16)
    work = Workload(64, 4, seq=2048)
    times = {share: step(model, work, cluster, Plan(dp=16), replace(A100, dp_overlap=share)) for share in (0, 0.6, 1)}
    alone = times[0].dp
    assert times[1].dp == 0 and 0 < times[0.6].dp < alone
    tiny = replace(work, global_batch=16, micro_batch=1, seq=16)
    (message,) = messages(model, tiny, Plan(dp=16), cluster, A100)
    bare = step(model, tiny, cluster, Plan(dp=16), replace(A100, dp_overlap=1))
    assert 0 < message.seconds - bare.dp < message.seconds  # the backward pass of 16 tokens hides a little


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_dp_hides_behind_depends_on_zero(zero):
    """The last backward pass (ZeRO 0, 1), all of them (2), all passes (3); work takes its FLOPs and nothing else."""
    slow = replace(IDEAL, gpus=4, node=AlphaBeta(0.0, 1e-8))
    work, plan, m = Workload(4 * 6, 1, seq=64), Plan(dp=4, zero=zero), 6
    sent = messages(THIN, work, plan, slow)
    hides = sum(one.total_seconds for one in sent if one.hidden)
    alone = sum(one.total_seconds for one in sent if not one.hidden)
    forward = forward_flops(THIN, 64).total * 64 / 1e12
    room = {0: 2 * forward, 1: 2 * forward, 2: m * 2 * forward, 3: m * 3 * forward}[zero]
    assert hides > room and bool(alone) == (zero in (1, 2))
    assert step(THIN, work, slow, plan, Efficiency()).dp == pytest.approx(alone + hides - room, rel=1e-6)
    assert step(THIN, work, slow, plan, Efficiency(dp_overlap=0)).dp == pytest.approx(alone + hides)


def test_overlap_is_a_law_between_sum_and_longest():
    for work, traffic in ((1.0, 3.0), (2.0, 2.0), (5.0, 0.0)):
        times = [Efficiency(dp_overlap=share).beside(work, traffic) for share in (0, 0.3, 0.7, 1)]
        assert times[0] == pytest.approx(work + traffic) and times[-1] == max(work, traffic)
        assert times == sorted(times, reverse=True)


def test_tensor_parallelism_hides_behind_gradients_only_in_the_backward_pass():
    run = published.korthikanti_table_5()[0]
    plain, hidden = (layer_time(run.model, replace(run.workload, checkpoint="none"), run.cluster, run.plan,
                                replace(A100, tp_overlap=flag)).tp for flag in (False, True))  # fmt: skip
    assert hidden == pytest.approx(plain / 2)


def test_sequence_parallelism_divides_what_only_moves_bytes():
    model, cluster, work = published.KORTHIKANTI_TABLE_5[0][0], published.selene(8), Workload(4, 4)
    plan = Plan(tp=8)
    whole, cut = (layer_time(model, work, cluster, replace(plan, sequence_parallel=sp), A100) for sp in (False, True))
    per_value = (10 * 2 + 2) + (16 * 2 + 2)
    saved = per_value * 4 * 2048 * 6144 * 7 / 8 / (2.039e12 * A100.memory)
    assert whole.forward + whole.backward - cut.forward - cut.backward == pytest.approx(saved)


def test_layers_of_both_kinds_make_a_step():
    """Whichever stages they lie on; the rest is the output product."""
    model = Model("moe", 8, 512, 8, vocabulary=8, biases=False, experts=8, top_k=2, dense_layers=6)
    work, cluster = Workload(64, 2, seq=512), published.selene(8)
    plan = Plan(dp=2, pp=4, ep=2)
    dense, expert = (layer_time(model, work, cluster, plan, A100, kind) for kind in (False, True))
    time = step(model, work, cluster, plan, A100)
    assert time.compute == pytest.approx(16 * 2 * (expert.forward + expert.backward), rel=0.01)
    assert time.ep == pytest.approx(16 * 2 * expert.ep) and dense.ep == 0 and dense.total < expert.total
    with pytest.raises(ValueError, match="thin has no layers with experts"):
        layer_time(THIN, work, cluster, plan, A100, experts=True)


# Parameters.


def test_the_kept_parameters_are_what_the_fit_gives():
    found = fit(efficiency.chosen_by())
    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(A100, name), abs=2e-4), name


def test_the_fit_finds_parameters_that_it_was_not_told():
    planted = Efficiency(gemm=0.55, memory=0.8, node=0.6, between=0.4, dp_overlap=0.7)
    runs = [replace(run, measured=predict(run, planted)) for run in efficiency.chosen_by()]
    found = fit(runs)
    for name in NAMES:
        assert getattr(found, name) == pytest.approx(getattr(planted, name), rel=1e-3), name
    with pytest.raises(ValueError, match="4 runs do not determine 5 shares"):
        fit(runs[:4])


def test_which_runs_chose_the_parameters():
    chose = [(run.source, run.plan.gpus) for run in efficiency.chosen_by()]
    table = [(published.PTDP + " table 1", row[6]) for row in published.PTDP_TABLE_1]
    assert chose == [*table, (published.PTDP + " table 2", 384), (published.PTDP + " table 2", 1536)]
    assert not any(run.chose for run in published.korthikanti_table_5())


# Predictions.


def test_each_run_of_table_1_predicted_by_the_others_beats_a_constant():
    median, worst = efficiency.errors(efficiency.leave_one_out())
    constant_median, constant_worst = efficiency.constant_errors()
    assert median < 0.02 < 0.037 < constant_median
    assert worst < 0.06 < 0.135 < constant_worst


def test_the_constant_that_table_1_itself_chooses():
    """141 TFLOP/s a GPU for all ten runs, chosen with all ten in sight: median 3.7 %, worst 13.5 %."""
    median, worst = efficiency.errors([(run, 141e12) for run in published.ptdp_table_1()])
    assert (round(100 * median, 1), round(100 * worst, 1)) == (3.7, 13.5)


@pytest.mark.parametrize("run", published.ptdp_table_2()[6:], ids=lambda run: f"{run.model.name}-{run.plan.gpus}")
def test_runs_of_table_2_with_model_parallelism(run):
    assert predict(run, A100) == pytest.approx(run.measured, rel=0.025)


@pytest.mark.parametrize("run", published.ptdp_table_2()[:6], ids=lambda run: f"{run.model.name}-{run.plan.gpus}")
def test_runs_of_table_2_with_zero_3(run):
    assert predict(run, A100) == pytest.approx(run.measured, rel=0.13)


@pytest.mark.parametrize("run", published.korthikanti_table_5(), ids=lambda r: r.model.name + r.workload.checkpoint)
def test_steps_of_table_5(run):
    assert predict(run, A100) == pytest.approx(run.measured, rel=0.1)


@pytest.mark.parametrize("row", published.KORTHIKANTI_TABLE_5, ids=lambda row: row[0].name)
def test_utilisation_of_table_5(row):
    run = published.korthikanti_table_5()[2 * published.KORTHIKANTI_TABLE_5.index(row) + 1]
    assert 100 * run_time(run, A100).mfu == pytest.approx(row[9], rel=0.08)


@pytest.mark.parametrize("kind, sp, forward, backward", published.KORTHIKANTI_TABLE_4)
def test_layers_of_table_4(kind, sp, forward, backward):
    assert 1e3 * compare.layer_22b(kind, sp).total == pytest.approx(forward + backward, rel=0.05)


# The two that are further off, and how far. The first compares two batch sizes; of the second the paper says that a
# reduce-scatter and an all-gather are slower than an all-reduce, which rings of equal bytes are not.
MISSES = {"529.6B: ZeRO-3 from 640 to 1120 GPUs": 0.45, "22B layer: none recomputation, sp": 0.8}


@pytest.mark.parametrize("claim", compare.claims(), ids=lambda claim: claim.what)
def test_changes_have_the_right_sign_and_are_within_a_third(claim):
    assert claim.ours * claim.paper > 0
    assert claim.off < MISSES.get(claim.what, 1 / 3)


def test_the_misses_are_still_misses():
    """Whoever mends one of them tightens the test above."""
    off = {claim.what: claim.off for claim in compare.claims() if claim.what in MISSES}
    assert len(off) == len(MISSES) and all(value > 1 / 3 for value in off.values())


@pytest.mark.parametrize("row", [0, 1])
def test_the_a100_shares_carried_over_to_h100(row):
    """Nothing was fitted to it; 2 to 8 chunks, since the paper does not say."""
    shares, fitted = efficiency.of_hardware("H100")
    assert not fitted
    runs = [published.llama3_table_4(chunks)[row] for chunks in (2, 4, 8)]
    ours = [predict(run, shares) for run in runs]
    assert ours[0] < runs[0].measured < ours[-1] < 1.12 * runs[0].measured


def test_the_gap_of_interleaving_closes_as_the_batch_grows():
    """Figure 12, section 5.3.2: a smaller bubble of 1F1B and more messages."""
    gains = [predict(compare.interleaving_run(batch, 4), A100) / predict(compare.interleaving_run(batch, 1), A100)
             for batch in (12, 24, 36, 48, 60)]  # fmt: skip
    assert gains == sorted(gains, reverse=True) and gains[-1] > 1.05 and gains[0] > 1.3


def test_more_replicas_cost_the_530b_model_little():
    """Section 6.3 of arXiv 2205.05198: 37.83 to 39.15 s with 8 replicas, +3.5 %. Ours is +2 %: sign and order only."""
    run = published.korthikanti_table_5()[5]
    more = replace(run, plan=replace(run.plan, dp=8), workload=replace(run.workload, global_batch=8 * 280))
    slower = predict(more, A100) / predict(run, A100) - 1
    assert 0.01 < slower < published.KORTHIKANTI_DP_8[0] / 37.83 - 1


def test_the_table_prints_papers_beside_predictions():
    text = compare.compare()
    assert "median error 1.0%" in text and text.count("arXiv") >= 30
    assert "selective + sp over full recomputation" in text and "chose" in text
