"""The engine on a small random model: its text is that of `Decoder` alone, whatever the schedule and the parts."""

from __future__ import annotations

import doctest
import importlib
import random

import pytest
import torch

from tests.engine.tiny import CONFIG, TinyFile, decoder_of, greedy_text, requests, serve, solution, wanted
from utils import RankFailed, launch
from utils.engine import BlockManager, Engine, Limits, Model, PagedAttention, Parts, Scheduler
from utils.engine.model import by_columns
from utils.engine.parallel import check_divides, column_linear
from utils.models import DecoderConfig
from utils.serving import KVBlocks, PlainBlocks, Request

ROOMY = Limits(num_blocks=64, block_size=4, max_tokens=16, max_running=8)
TIGHT = Limits(num_blocks=12, block_size=4, max_tokens=9, max_running=8)  # someone has to go now and then


@pytest.mark.parametrize("name", ["attention", "blocks", "parallel", "parts", "plan", "sampling", "scheduler", "model"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"utils.engine.{name}"))
    assert result.failed == 0 and result.attempted


def test_logits_are_those_of_the_decoder() -> None:
    tokens = torch.randint(CONFIG.vocab_size, (3, 17), generator=torch.Generator().manual_seed(0))
    model = Model(TinyFile())
    torch.testing.assert_close(model(tokens), decoder_of(CONFIG)(tokens), rtol=1e-4, atol=1e-4)
    assert model.nbytes == 4 * CONFIG.num_parameters()


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("lies", [by_columns, torch.clone], ids=["by columns", "by rows"])
def test_a_wide_product_in_slices_is_the_product(rows: int, lies) -> None:
    drawn = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(shape, generator=drawn) for shape in ((1, rows, 8), (2000, 8), (2000,)))
    torch.testing.assert_close(column_linear(x, lies(weight), bias), torch.nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize("limits", [ROOMY, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize("seed", [0, 1])
def test_everyone_gets_the_text_that_they_would_have_got_alone(limits: Limits, seed: int) -> None:
    got, held = serve(16, limits, seed=seed)
    assert got == wanted(16, seed) and held == []


def test_a_tight_cache_preempts_and_a_known_beginning_is_found() -> None:
    engine = Engine(Model(TinyFile()), TIGHT)
    coming, preempted, found = requests(16), 0, 0
    for request in coming:
        engine.add(request)
    while not engine.idle:
        before = {request.id: request.computed for request in engine.scheduler.running}
        engine.step()
        running = {request.id for request in engine.scheduler.running}
        back = [one for one in coming if one.id in before and one.id not in running and not one.finished]
        preempted += len(back)
        found += sum(one.computed > 0 for one in engine.scheduler.running if one.id not in before)
    assert preempted and found
    assert {request.id: request.output for request in coming} == wanted(16)


def test_who_is_cancelled_frees_their_blocks_and_disturbs_nobody() -> None:
    engine, draw, gone = Engine(Model(TinyFile()), TIGHT), random.Random(0), set()
    coming = requests(16)
    for request in coming:
        engine.add(request)
    while not engine.idle:
        engine.step()
        live = [request.id for request in [*engine.scheduler.running, *engine.scheduler.waiting]]
        if live and draw.random() < 0.3:
            gone.add(draw.choice(live))
            assert engine.cancel(next(iter(gone & set(live))))
    assert len(gone) > 2 and not any(engine.blocks.ref_count)
    assert not engine.cancel(next(iter(gone)))
    served = {request.id: request.output for request in coming if request.id not in gone}
    assert served == {number: text for number, text in wanted(16).items() if number in served}


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_give_the_same_text(ranks: int) -> None:
    run = launch(serve, 16, TIGHT, ranks=ranks, timeout=60)
    assert [value[1] for value in run.values] == [[]] * ranks
    assert run.value[0] == wanted(16) and [value[0] for value in run.values[1:]] == [{}] * (ranks - 1)


def test_what_three_ranks_send_in_a_step() -> None:
    """Two all-reduces a layer and one for the embedding, one plan, and two numbers a request for the argmax."""

    def one() -> None:
        engine = Engine(Model(TinyFile()), ROOMY)
        engine.generate([Request(0, [1, 2, 3], max_new=4)])

    run = launch(one, ranks=3, timeout=60)
    events = [event for event in run.trace.events if event.rank == 0]
    counts = {op: sum(event.op == op for event in events) for op in {event.op for event in events}}
    assert counts["all_reduce"] == 4 * (2 * CONFIG.layers + 1) and counts["broadcast"] == 4 + 1


def test_a_size_that_does_not_divide_the_heads_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^9 heads and 3 KV heads do not divide over 2 ranks: use 1 or 3$"):
        check_divides(CONFIG, 2)
    with pytest.raises(RankFailed, match="9 heads and 3 KV heads do not divide over 2 ranks: use 1 or 3"):
        launch(serve, 1, ROOMY, ranks=2, timeout=60)


def students_parts() -> dict[str, Parts]:
    """The reference solutions of the labs, as a student would put them in."""
    six = solution("lab06", "conjugate", "column_linear", "row_linear", "shard_fused", "vocab_embedding")
    eight = solution("lab08", "gqa_attention", "next_token_probabilities")
    nine = solution("lab09", "block_manager", "paged_attention", "scheduler")
    layers = ("column_linear", "row_linear", "vocab_embedding", "shard_qkv", "shard_gate_up")
    return {
        "lab 06": Parts(**{name: six[name] for name in layers}),
        "lab 08": Parts(**{name: eight[name] for name in ("gqa_attention", "next_token_probabilities")}),
        "lab 09": Parts(
            paged_attention=nine["paged_attention"], block_manager=nine["BlockManager"], scheduler=nine["Scheduler"]
        ),
    }


@pytest.mark.parametrize("lab", ["lab 06", "lab 08", "lab 09"])
def test_parts_of_the_labs_stand_in(lab: str) -> None:
    parts = students_parts()[lab]
    for ranks in (1, 3):
        run = launch(serve, 8, TIGHT, parts, ranks=ranks, timeout=60)
        assert run.value == (wanted(8), []), ranks


def test_classes_of_the_labs_take_the_model_as_it_is() -> None:
    eight = solution("lab08", "gqa_attention", "visible", "kv_cache", "generate")
    nine = solution("lab09", "block_manager", "paged_attention", "scheduler", "engine")
    model, prompts = Model(TinyFile()), [request.prompt for request in requests(5)]
    want = [greedy_text(prompt, 6) for prompt in prompts]
    assert eight["generate"](model, prompts, 6) == want
    engine = nine["Engine"](model, KVBlocks(model.share, 30, 4), nine["Scheduler"](nine["BlockManager"](30, 4), 9, 4))
    asked = [Request(number, prompt, max_new=6) for number, prompt in enumerate(prompts)]
    for request in asked:
        engine.scheduler.add(request)
    while engine.scheduler.waiting or engine.scheduler.running:
        engine.step()
    assert [request.output for request in asked] == want


@pytest.mark.parametrize("name", [name for name in Parts.__dataclass_fields__ if name != "next_token_probabilities"])
def test_a_part_that_is_given_is_used(name: str) -> None:
    def broken(*args, **kwargs):
        raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match=name):
        serve(2, ROOMY, Parts(**{name: broken}))
    with pytest.raises(TypeError, match=f"{name} is 3; a function or a class is wanted"):
        Parts(**{name: 3})


def test_what_cannot_be_served_is_refused() -> None:
    engine = Engine(Model(TinyFile()), Limits(num_blocks=40, block_size=4))
    with pytest.raises(ValueError, match="could grow to 97 tokens; the model knows 96 positions"):
        engine.add(Request(0, [1] * 90, max_new=7))
    with pytest.raises(ValueError, match="holds token 61; the model knows 0 to 60"):
        engine.add(Request(0, [61], max_new=7))
    with pytest.raises(ValueError, match="request 0 needs 13 blocks, and there are 12"):
        Engine(Model(TinyFile()), TIGHT).add(Request(0, [1] * 48, max_new=1))
    with pytest.raises(ValueError, match="num_blocks is 0; it must be at least 1"):
        Limits(num_blocks=0)


def test_attention_reads_and_writes_as_the_lab_says() -> None:
    """The engine's attention and the reference of the serving lab: equal outputs, equal memory, strangers untouched."""
    theirs = solution("lab09", "paged_attention")["paged_attention"]
    config = DecoderConfig(vocab_size=8, hidden=24, layers=2, heads=6, kv_heads=3, ffn=8)
    rows = [([8, 3], 3, 1), ([0, 7, 1], 2, 3), ([6, 2], 0, 3), ([5], 1, 1), ([4, 9, 10], 4, 1)]
    for some in (rows, rows[:1], [rows[0], *rows[3:]], rows[1:3]):
        drawn = torch.Generator().manual_seed(0)
        caches = [KVBlocks(config, 12, 2, fill=1000.0) for _ in range(2)]
        for cache in caches:
            cache.k[:], cache.v[:] = torch.randn(2, *cache.k.shape, generator=torch.Generator().manual_seed(1))
        total = sum(count for *_, count in some)
        q, k, v = torch.randn(1, 12, total, 4, generator=drawn).split([6, 3, 3], dim=1)
        mine, want = PagedAttention(caches[0], some)(1, q, k, v, None), theirs(caches[1], some, 1, q, k, v, None)
        torch.testing.assert_close(mine, want)
        assert torch.equal(caches[0].k, caches[1].k) and torch.equal(caches[0].v, caches[1].v)
    with pytest.raises(ValueError, match="rows stand for 9 tokens, and q has 4"):
        PagedAttention(caches[0], rows)(0, q[:, :, :4], k, v, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_schedule_is_that_of_the_lab(seed: int) -> None:
    """Step by step, with arrivals and departures in between, over managers that share and that do not."""
    nine = solution("lab09", "block_manager", "scheduler")
    managers = [(PlainBlocks, PlainBlocks), (BlockManager, nine["BlockManager"])][seed % 2]
    sides = [make(manager(14, 4), 11, 5) for make, manager in zip((Scheduler, nine["Scheduler"]), managers)]
    draw, coming, live = random.Random(seed), [requests(30, seed) for _ in sides], []
    for step in range(400):
        if coming[0] and draw.random() < 0.4:
            live.append(coming[0][0].id)
            for side, queue in zip(sides, coming, strict=True):
                side.add(queue.pop(0))
        if live and draw.random() < 0.05:
            gone = live.pop(draw.randrange(len(live)))
            assert len({side.cancel(gone) for side in sides}) == 1
        batches = [side.schedule() for side in sides]
        said = [[(one.id, count, one.computed, len(one.blocks)) for one, count in batch] for batch in batches]
        assert said[0] == said[1], step
        for side, batch in zip(sides, batches, strict=True):
            side.update(batch, [(one.id * 31 + one.computed + count) % CONFIG.vocab_size for one, count in batch])
        assert len({tuple(sorted(side.blocks.ref_count)) for side in sides}) == 1, step
    assert not coming[0] and all(not side.waiting and not side.running for side in sides)


def test_blocks_are_found_by_all_that_stands_before_them() -> None:
    """Against brute force: what each block was registered with, compared token by token."""
    draw, manager, held, holds = random.Random(3), BlockManager(9, 2), [], {}
    for _ in range(3000):
        text = [draw.randrange(2) for _ in range(draw.randint(1, 9))]
        longest = 0
        while any(holds.get(block) == text[: 2 * longest + 2] for block in range(9)) and 2 * longest + 2 < len(text):
            longest += 1
        found = manager.match(text)
        assert len(found) == longest and all(holds[block] == text[: 2 * i + 2] for i, block in enumerate(found))
        manager.acquire(found)
        fresh = manager.allocate(-(-len(text) // 2) - len(found))
        if fresh is None:
            manager.release(found)
        else:
            for block in fresh:
                holds.pop(block, None)
            table = [*found, *fresh]
            manager.register(text, table)
            for i, block in enumerate(table[: len(text) // 2]):
                if text[: 2 * i + 2] not in holds.values():
                    holds[block] = text[: 2 * i + 2]
            held.append(table)
        while held and (fresh is None or draw.random() < 0.4):
            manager.release(held.pop(draw.randrange(len(held))))
            fresh = []
        assert sorted(manager.free) == [block for block in range(9) if not manager.ref_count[block]]
