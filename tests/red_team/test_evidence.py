"""Evidence for a person: no honest program is suspected, and what the two sources of evidence see is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from autograder.engine import printable
from autograder.sandbox import Limits, open_sandbox, why_not
from autograder.sources.cells import read_source
from autograder.tampering import suspicions
from autograder.traffic import disagreement
from utils import launch
from utils.answering.traces import trace_from_rows
from utils.ranks.ship import pack

REPO = Path(__file__).resolve().parents[2]
HONEST = sorted(
    path
    for place in ("tests/answers/lab*/*.py", "solutions/*.py", "notebooks/*.py", "tests/toy_lab/solutions/*.py")
    for path in REPO.glob(place)
)


def operations(numel: int) -> None:
    """Every kind of message and collective, once."""
    me, p, x = dist.get_rank(), dist.get_world_size(), torch.ones(numel)
    parts = [torch.ones(numel) for _ in range(p)]
    sending = dist.isend(x, (me + 1) % p)
    dist.recv(torch.empty(numel), (me - 1) % p)
    sending.wait()
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.reduce(x, p - 1)
    dist.all_gather(parts, x)
    dist.reduce_scatter(torch.empty(numel), parts)
    dist.gather(x, parts if me == 0 else None)
    dist.scatter(x, parts if me == 0 else None)
    dist.all_to_all_single(torch.empty(numel * p), torch.ones(numel * p))
    dist.barrier()
    dist.new_group([0, p - 1])


def messages_only(numel: int, rounds: int) -> None:
    me, p, x = dist.get_rank(), dist.get_world_size(), torch.ones(numel)
    for _ in range(rounds):
        sending = dist.isend(x, (me + 1) % p)
        dist.recv(torch.empty(numel), (me - 1) % p)
        sending.wait()


def one_kind(kind: str, numel: int, times: int) -> None:
    """One kind of collective, several times."""
    me, p, x = dist.get_rank(), dist.get_world_size(), torch.ones(numel)
    parts, long = [torch.ones(numel) for _ in range(p)], torch.ones(numel * p)
    calls = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce of the largest": lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX),
        "broadcast": lambda: dist.broadcast(x, p - 1),
        "reduce": lambda: dist.reduce(x, 0),
        "all_gather": lambda: dist.all_gather(parts, x),
        "all_gather_single": lambda: dist.all_gather_single(long, x),
        "reduce_scatter": lambda: dist.reduce_scatter(x, parts),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(x, long),
        "gather": lambda: dist.gather(x, parts if me == 0 else None),
        "scatter": lambda: dist.scatter(x, parts if me == 0 else None),
        "all_to_all": lambda: dist.all_to_all([torch.empty(numel) for _ in range(p)], parts),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.empty_like(long), long),
        "barrier": dist.barrier,
        "objects": lambda: dist.all_gather_object([None] * p, "b" * numel),
        "a new group": lambda: dist.all_reduce(x, group=dist.new_group(list(range(p)))),
        "messages at once": lambda: [w.wait() for w in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, x, (me + 1) % p), dist.P2POp(dist.irecv, parts[0], (me - 1) % p)])],
    }  # fmt: skip
    for _ in range(times):
        calls[kind]()


KINDS = ("all_reduce", "all_reduce of the largest", "broadcast", "reduce", "all_gather", "all_gather_single",
         "reduce_scatter", "reduce_scatter_single", "gather", "scatter", "all_to_all", "all_to_all_single", "barrier",
         "objects", "a new group", "messages at once")  # fmt: skip


def training(kind: str) -> None:
    """Three steps with one of torch's own ways of sharing the work."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    if kind == "DistributedDataParallel":
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    elif kind == "FSDP2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
    zero = kind == "ZeroRedundancyOptimizer"
    optimizer = (
        ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1) if zero
        else torch.optim.SGD(model.parameters(), lr=0.1)
    )  # fmt: skip
    for _ in range(3):
        model(torch.randn(8, 64)).pow(2).mean().backward()
        for parameter in model.parameters() if zero else ():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.heavy
@pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the suite's own test says why")
def test_every_collective_and_torchs_own_training_agree_with_the_counter() -> None:
    programs = [(one_kind, (kind, *size)) for kind in KINDS for size in ((1, 1), (3000, 4), (300_000, 1))]
    programs += [(training, (kind,)) for kind in ("DistributedDataParallel", "ZeroRedundancyOptimizer", "FSDP2")]
    with open_sandbox("bubblewrap", None, Limits(launch_s=60)) as box:
        channel = box.start()
        for number, (fn, args) in enumerate(programs):
            fn.__module__, ranks = "__main__", 2 + number % 3
            before = box.usage().loopback_bytes
            told = channel.probe(pack(fn, args, {})[0], {"ranks": ranks, "timeout": 60.0}, 90)
            counted = box.usage().loopback_bytes - before
            assert "error" not in told, told
            trace = trace_from_rows(told["trace"])
            assert disagreement([trace], counted) == "", (fn.__name__, args, ranks)
            if fn is one_kind and args[1] > 100_000 and args[0] != "barrier":
                # a journal of as much again that was never moved
                assert "carried only" in disagreement([trace, trace], counted), args
                assert "carried only" in disagreement([trace], counted // 3), args


@pytest.mark.heavy
@pytest.mark.skipif(bool(why_not("bubblewrap")), reason="the suite's own test says why")
def test_the_counter_agrees_with_honest_journals_and_with_no_others() -> None:
    with open_sandbox("bubblewrap") as box:
        channel = box.start()
        for fn, args in [(operations, (1,)), (operations, (3000,)), (messages_only, (300, 3)), (messages_only, (1, 30)),
                         (messages_only, (500_000, 1))]:  # fmt: skip
            fn.__module__ = "__main__"
            for ranks in (2, 3, 4, 5):
                before = box.usage().loopback_bytes
                told = channel.probe(pack(fn, args, {})[0], {"ranks": ranks, "timeout": 20.0}, 40)
                counted = box.usage().loopback_bytes - before
                trace = trace_from_rows(told["trace"])
                assert disagreement([trace], counted) == "", (fn.__name__, args, ranks)
                if fn is messages_only and args[0] > 1:
                    size = trace.bytes_sent(0) * ranks
                    assert "carried only" in disagreement([trace], counted - size)
                    assert "carried" in disagreement([trace], 3 * counted + 200_000)
                    assert disagreement([trace], 3 * counted + 200_000, all_told=False) == ""


def test_messages_that_were_not_carried_are_seen_even_where_they_are_small() -> None:
    trace = launch(messages_only, 300, 3, ranks=3, show=False).trace
    assert disagreement([trace], 2_000).startswith("the journal tells of 10.8 kB sent in messages")
    assert disagreement([trace, trace], 14_000) != "" and disagreement([], 3_000) == ""


@pytest.mark.parametrize("path", HONEST, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_honest_code_is_not_suspected(path: Path) -> None:
    cells = [cell for cell in read_source(path).cells if cell.kind not in ("markdown", "test", "shared")]
    assert {cell.line: found for cell in cells if (found := suspicions(cell.text))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "%matplotlib inline\n!ls\nfiles = !ls\n%time x = 1",
        "import os, sys\nos.environ['A'] = '1'\nsys.path.append('x')",
        "import torch\ntorch.backends.mkldnn.enabled = False\nx = torch.ones(3)\nx[0] = 2\nx.grad = None",
        "class Ring:\n    def __init__(self, inner):\n        self.inner = inner\n        self.recorder = []",
        "import matplotlib.pyplot as plt\nplt.rcParams['figure.dpi'] = 90",
        '"""Reads /proc/ and gradebook.db, says this text."""\nx = 1',
        "this is no Python",
        "import gc\ngc.collect()",
    ],
)
def test_what_answers_do_is_not_suspected(code: str) -> None:
    assert suspicions(code) == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import numpy as np\nnp.testing.assert_allclose = print", "replaces numpy.testing.assert_allclose"),
        ("from torch import distributed as d\nd.isend, x = 1, 2", "replaces torch.distributed.isend"),
        ("setattr(dist, 'send', None)", "replaces torch.distributed.send"),
        ("vars(torch)['equal'] = None", "replaces torch"),
        ("del torch.equal", "replaces torch.equal"),
        ("dist.group.WORLD.recorder.add()", "reaches for recorder"),
        ("exec(text)", "runs text as code (exec)"),
        ("from utils.trace import journal", "imports utils.trace.journal"),
        ("import importlib\nimportlib.import_module('utils.ranks.wire')", "imports utils.ranks.wire"),
        ("open('/proc/self/mem')", "names /proc/"),
        ("f.__globals__['x'] = 1", "reaches for __globals__"),
    ],
)
def test_what_forges_is_said(code: str, says: str) -> None:
    assert says in suspicions(code)


def test_messages_are_text_to_a_terminal() -> None:
    assert printable("a\x1b[2Jb\u202ec\ud800\n") == "a\\x1b[2Jb\\u202ec\\ud800\n"
