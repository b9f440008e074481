"""Live and saved bytes, held to allocations by hand, to a random life kept in a book, and to torch's tracker."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import launch
from utils.memory import LiveBytes, alive, nbytes, saved_bytes
from utils.models import Block, Transformer, TransformerConfig, batches

ROOT = Path(__file__).resolve().parents[2]
SMALL = TransformerConfig(layers=2, hidden=32, heads=4, max_len=16)


def test_birth_view_and_end():
    with LiveBytes() as live:
        x = torch.zeros(100)
        y = x.view(10, 10)[2:]
        z = x + 1
        assert live.now() == 800
        del x
        assert live.now() == 800  # y still holds it
        del y
        assert live.now() == 400
        z.add_(1)
        assert (live.now(), live.peak()) == (400, 800)
    assert live.unknown() == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.tensor([1.0] * 25),
        lambda: torch.Tensor(25),
        lambda: torch.from_numpy(np.ones(25, dtype=np.float32)),
        lambda: torch.ones(5, 5).t().contiguous().view(-1),
        lambda: torch.arange(25.0).clone(),
        lambda: torch.nn.Parameter(torch.randn(25)),
        lambda: torch.nn.Linear(24, 1),
    ],
)
def test_every_way_into_the_world_is_seen(make):
    with LiveBytes() as live:
        kept = make()
        assert live.now() == 100
        del kept
        assert live.now() == 0


def test_data_and_resize_free_what_they_replace():
    with LiveBytes() as live:
        x = torch.zeros(100)
        x.data = torch.zeros(10)
        assert live.now() == 40
        x.untyped_storage().resize_(0)
        assert live.now() == 0
        y = torch.zeros(50)  # the peak must not count x any more
        assert live.peak() == 440
        x.untyped_storage().resize_(40)
        x.zero_()
        assert live.now() == 240
        live.reset_peak()
        del y
        assert (live.now(), live.peak()) == (40, 240)


def test_resized_before_the_next_birth_is_not_in_the_peak():
    with LiveBytes() as live:
        x = torch.zeros(100)
        live.reset_peak()
        x.untyped_storage().resize_(0)
        y = torch.zeros(100)
        assert live.peak() == 400
    del y


def test_start_counts_shared_storage_once():
    weight = torch.nn.Parameter(torch.zeros(10))
    before = torch.zeros(7)
    with LiveBytes([weight, weight, weight.view(2, 5)]) as live:
        assert live.now() == 40
        before + 1  # met, but neither given nor born
        assert live.unknown() == 28
        weight.view(5, 2)
        assert live.now() == 40
    with LiveBytes(alive()) as live:
        before + 1
        assert live.unknown() == 0 and live.now() >= 68


def test_marks_hold_the_peak_since_the_mark_before():
    with LiveBytes() as live:
        x = torch.zeros(100)
        live.mark("one")
        (x + 1) * 2
        live.mark("two")
        live.mark("three")
    assert live.marks == {"one": (400, 400), "two": (400, 1200), "three": (400, 400)}
    assert live.curve == [400, 800, 1200]


def test_a_random_life_agrees_with_a_book_kept_by_hand():
    draw = random.Random(3)
    book, peak, kept = {}, 0, {}
    with LiveBytes() as live:
        for step in range(400):
            what = draw.choice(["new", "new", "view", "free", "resize"])
            if what == "new":
                numel = draw.randrange(1, 50)
                kept[step], book[step] = [torch.zeros(numel)], 4 * numel
            elif kept:
                name = draw.choice(list(kept))
                if what == "view":
                    kept[name].append(kept[name][0].view(1, -1) if book[name] else kept[name][0])
                elif what == "resize":
                    kept[name][0].untyped_storage().resize_(0)
                    book[name] = 0
                else:
                    del kept[name], book[name]
            peak = max(peak, sum(book.values()))
            assert live.now() == sum(book.values())
    assert live.peak() == peak


def test_a_training_step_in_bytes():
    model = Transformer(SMALL)
    weights = nbytes(model.parameters())
    assert weights == 4 * SMALL.num_parameters()
    tokens, targets = next(batches(4, 16, 1))
    with LiveBytes([*model.parameters(), tokens, targets]) as live:
        live.mark("model")
        loss = model.loss(tokens, targets)
        live.mark("forward")
        loss.backward()
        live.mark("backward")
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
        live.mark("step")
        optimizer.zero_grad()
        live.mark("zero_grad")
    now = {name: value for name, (value, _) in live.marks.items()}
    steps = 4 * len(list(model.parameters()))  # AdamW keeps a step count, a float32, for each parameter
    data = nbytes([tokens, targets])
    assert now["model"] == weights + data
    assert now["forward"] > now["model"] + 4 * 4 * 16 * 32 * 10
    assert now["backward"] == 2 * weights + data + 4  # the loss is still held
    assert now["step"] == 4 * weights + data + 4 + steps
    assert now["zero_grad"] == 3 * weights + data + 4 + steps
    assert live.unknown() == 0


def test_agrees_with_the_tracker_of_torch():
    tracker_module = pytest.importorskip("torch.distributed._tools.mem_tracker")
    tokens, targets = next(batches(4, 16, 1))

    def step(model):
        model.loss(tokens, targets).backward()
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step()

    model = Transformer(SMALL)
    tracker = tracker_module.MemTracker()
    tracker.track_external(model, tokens, targets)
    with tracker:
        step(model)
    theirs = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    model = Transformer(SMALL)
    with LiveBytes([*model.parameters(), tokens, targets]) as live:
        step(model)
    assert live.peak() == theirs


def sharded_bytes():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = Transformer(TransformerConfig(layers=2, hidden=32, heads=4, tied=False, max_len=16))
    whole = nbytes(model.parameters())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    tokens, targets = next(batches(2, 8, 1))
    with LiveBytes([*model.parameters(), tokens, targets]) as live:
        live.mark("start")
        model.loss(tokens, targets).backward()
        live.mark("end")
    return {"whole": whole, "marks": live.marks}


def test_below_fsdp_a_rank_counts_its_own_shards():
    run = launch(sharded_bytes, ranks=2)
    for value in run.values:
        whole, marks = value["whole"], value["marks"]
        assert 0.5 * whole <= marks["start"][0] < 0.55 * whole
        assert marks["end"][1] > 1.2 * whole  # gathered for use
        assert marks["end"][0] < 1.15 * whole  # a shard of weights and a shard of gradients are left


def test_saved_bytes_by_hand():
    net = torch.nn.Sequential(torch.nn.Linear(3, 5, bias=False), torch.nn.GELU())
    assert saved_bytes(net, torch.zeros(2, 3)) == (6 + 10) * 4
    assert saved_bytes(net, torch.zeros(2, 3, requires_grad=True)) == (6 + 10) * 4  # the weight is no activation
    x = torch.zeros(8, requires_grad=True)
    assert saved_bytes(lambda: (x * x).exp()) == 8 * 4 * 2  # x once, though saved twice, and the result of exp
    with torch.no_grad():
        assert saved_bytes(net, torch.zeros(2, 3)) == 0


def test_saved_bytes_of_a_block_by_formula():
    B, S, H, N = 2, 8, 32, 4
    block = Block(TransformerConfig(hidden=H, heads=N))
    x = torch.randn(B, S, H, requires_grad=True)
    elements = 16 * B * S * H + B * N * S * S + 4 * B * S  # the norms keep mean and 1/std of a token
    assert saved_bytes(block, x) == pytest.approx(4 * elements + S * S, abs=64)  # and the mask, a byte each


def test_saved_bytes_leaves_no_trace():
    x = torch.randn(4, requires_grad=True)
    saved_bytes(lambda: F.relu(x).sum())
    x.exp().sum().backward()
    assert torch.equal(x.grad, x.detach().exp())


def test_following_does_not_load_the_compiler():
    code = "import sys, torch; from utils.memory import LiveBytes\nwith LiveBytes(): torch.ones(2)\n"
    code += "assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
