"""What torch itself keeps and sends: autograd's saved tensors, DDP, FSDP2 and DTensor's tensor parallelism."""

import pytest
import torch
import torch.distributed as dist

from utils import launch
from utils.memory import saved_bytes
from utils.models.config import TransformerConfig
from utils.models.transformer import Transformer
from utils.planner import published
from utils.planner.memory import layer_activations, ledger
from utils.planner.model import Model
from utils.planner.spec import Plan, Workload
from utils.planner.traffic import messages

SIZES = {"hidden": 64, "heads": 8, "vocab_size": 64, "max_len": 128}
ROWS, SEQ = 3, 128


def ours(layers):
    return Model("course", layers, 64, 8, vocabulary=64, positions=128)


def kept(layers, dropout):
    torch.manual_seed(0)
    net = Transformer(TransformerConfig(layers=layers, dropout=dropout, **SIZES)).to(torch.bfloat16).train()
    return saved_bytes(net, torch.randint(0, 64, (ROWS, SEQ)))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_autograd_keeps_what_table_2_counts(dropout):
    """One more layer in bf16. Beside the table torch keeps a causal mask and each norm's two statistics.

    On a CPU a mask of dropout has the type of what it masks, 2 bytes where the table has 1.
    """
    layer = kept(2, dropout) - kept(1, dropout)
    tokens, scores = ROWS * SEQ, ROWS * 8 * SEQ * SEQ
    beside = SEQ * SEQ + tokens * 2 * 2 * 2
    masks = (scores + 2 * tokens * 64) if dropout else 0
    table = layer_activations(ours(1), Workload(ROWS, ROWS, SEQ, dropout=bool(dropout)), Plan())
    assert layer == table + beside + masks


def state_held(sharded, sizes, rows, seq):
    """Bytes of parameters, gradients and Adam's moments that this rank holds after a step in fp32."""
    from torch.distributed.fsdp import fully_shard

    net = Transformer(TransformerConfig(layers=2, **sizes))
    if sharded:
        for part in (*net.blocks, net):
            fully_shard(part)
    adam = torch.optim.AdamW(net.parameters())
    net(torch.randint(0, sizes["vocab_size"], (rows, seq))).sum().backward()
    adam.step()
    moments = [adam.state[p][name] for p in net.parameters() for name in ("exp_avg", "exp_avg_sq")]
    parts = (list(net.parameters()), [p.grad for p in net.parameters()], moments)
    return [sum(getattr(t, "_local_tensor", t).nbytes for t in tensors) for tensors in parts]


@pytest.mark.parametrize("ranks", [1, 4])
def test_torch_holds_the_state_of_the_ledger(ranks):
    theirs = launch(state_held, ranks > 1, SIZES, ROWS, SEQ, ranks=ranks, timeout=60).values
    plan = Plan(dp=ranks, zero=3 if ranks > 1 else 0)
    held = ledger(ours(2), Workload(ranks, seq=SEQ, precision="fp32"), plan)
    assert theirs == [[held.parameters, held.gradients, held.optimizer]] * ranks


def train(kind, sizes, rows, seq):
    """One step of the course's model under torch's own parallelism over all ranks; returns nothing, the trace tells."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    net = model = Transformer(TransformerConfig(layers=2, **sizes))
    if kind == "ddp":
        net = DistributedDataParallel(model)
    for block in model.blocks:
        if kind == "fsdp2":
            fully_shard(block)
        if kind == "tp":
            world = dist.get_world_size()
            columns = [f"attention.{name}_proj" for name in "qkv"] + ["feed_forward.up"]
            plan = dict.fromkeys(columns, ColwiseParallel())
            plan |= dict.fromkeys(["attention.o_proj", "feed_forward.down"], RowwiseParallel())
            parallelize_module(block, init_device_mesh("cpu", (world,)), plan)
            share = {name: sizes[name] // world for name in ("heads", "hidden")}
            block.attention.config = TransformerConfig(**{**sizes, **share})
    if kind == "fsdp2":
        fully_shard(model)
    net(torch.randint(0, sizes["vocab_size"], (rows, seq))).sum().backward()


def sent(kind, ranks, *ops):
    """(op, bytes sent) of rank 0 in one step, of these collectives."""
    run = launch(train, kind, SIZES, ROWS, SEQ, ranks=ranks, trace=True, timeout=60)
    return [(event.op, event.sent) for event in run.trace.of(0) if event.op in ops]


def planned(plan, *phases):
    work = Workload(ROWS * plan.dp, ROWS, SEQ, precision="fp32")
    found = messages(ours(2), work, plan, published.selene(plan.gpus))
    return [(one.op, one.sent) for one in found if one.phase in phases for _ in range(one.count)]


def test_ddp_sends_what_is_planned():
    assert sent("ddp", 4, "all_reduce") == planned(Plan(dp=4), "step")


def test_fsdp2_sends_what_is_planned():
    """The part outside of blocks is gathered once by torch, which keeps it for the backward pass, and twice by plan."""
    theirs = sent("fsdp2", 4, "all_gather", "reduce_scatter")
    plan = planned(Plan(dp=4, zero=3), "forward", "backward")
    outside = 4 * (2 * 64 * 64 + 64 * 64 + 2 * 64) * 3 / 4  # vocabulary 64 and 128 positions of width 64, the last norm
    assert {op: sum(nbytes for name, nbytes in theirs if name == op) for op, _ in theirs} == pytest.approx({
        "all_gather": sum(nbytes for op, nbytes in plan if op == "all_gather") - outside,
        "reduce_scatter": sum(nbytes for op, nbytes in plan if op == "reduce_scatter"),
    })  # fmt: skip
    assert len(theirs) == len(plan) - 1


def test_tensor_parallelism_of_dtensor_sends_what_is_planned():
    """Queries, keys and values are three modules there, and each sums the gradient of its input: 2 more a layer."""
    plan = planned(Plan(tp=2), "forward", "backward")
    assert sent("tp", 2, "all_reduce") == plan + 2 * 2 * plan[:1]
