# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 06: Tensor parallel
#
# **20 points.** You cut the layers of a Transformer into pieces, put one piece on each rank, and make the
# ranks together compute exactly what one process would: the same outputs, the same gradients, with as
# little talk as possible.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | the conjugate pair; column and row linear layers | 4 |
# | 2 | a feed-forward with one all-reduce in each direction | 2 |
# | 3 | fused weights cut by heads; attention; fewer key and value heads than ranks | 4 |
# | 4 | embedding and cross-entropy over a split vocabulary | 4 |
# | 5 | norms on a part of the tokens (sequence parallel); dropout; all of it in a smaller group | 5 |
# | 6 | questions | 1 |
#
# *You should have read* notebooks 02 and 08. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs them with further sizes and numbers of ranks.
# - The tests look at **values**, at **gradients** (those of the input always), and at **traffic**: which
#   collectives ran in the forward and in the backward pass, and how many bytes they sent.
# - **You may call** anything in `torch` and `torch.distributed`, except `torch.distributed.tensor`, which
#   does this lab by itself. It is what your layers are held to.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`.
#
# **Conventions.** `p` is the number of ranks of the tensor-parallel *group* (张量并行组). Every function takes
# `group=None` and must use that group and no other: `dist.all_reduce(x, group=group)`,
# `dist.get_rank(group)`, `dist.get_world_size(group)`; `None` is the group of all ranks. Every function
# must work for any p, 1 included.
#
# Shapes: B batch, S sequence, H hidden, F feed-forward width, D head_dim, V vocabulary. A weight has
# torch's layout, `[out, in]`, as in `nn.Linear`: `y = x @ weight.T + bias`. The lecture writes `Y = XW`
# with W `[in, out]`. So the lecture's *columns* of W are the *rows* of torch's `weight` (dim 0), and its
# rows are the columns (dim 1).
#
# **Who holds what.** A tensor is *replicated* (equal on all ranks) or *sharded* (rank r holds piece r along
# one dimension). Where an output is replicated every rank computes the same loss from it and starts its own
# backward pass: the gradient that arrives is then already the whole one, on every rank.
#
# **Gradients are given to you to keep, not to write to.** Autograd may hand the same tensor to somebody
# else. So never reduce a gradient, or an input, in place: `clone` it first. A gradient may also be
# non-contiguous.

# %% shared="imports"
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import check, launch


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 numbers of this shape, the same ones for the same seed on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def piece(x: torch.Tensor, dim: int | None, rank: int, ranks: int) -> torch.Tensor:
    """Piece `rank` of x along `dim`, with memory of its own; all of x where `dim` is None.

    >>> piece(torch.arange(5), 0, 1, 2).tolist()
    [3, 4]
    """
    return (x if dim is None else x.tensor_split(ranks, dim)[rank]).contiguous().clone()


def pieces(tensors: dict, dims: dict, rank: int, ranks: int) -> dict:
    """What rank `rank` holds of each tensor; `dims[name]` is the dimension that is cut, None for replicated."""
    return {name: piece(x, dims[name], rank, ranks) for name, x in tensors.items()}


def barrier() -> None:
    """Marks the journal between two passes."""
    if dist.is_initialized():
        dist.barrier()


def one_step(layer, tensors: dict, upstream: torch.Tensor, **options) -> dict:
    """A forward and a backward pass of `layer(**tensors, **options)`; the loss is (output * upstream).sum().

    Returns "out", "grad of NAME" and "NAME after the call" for each of the tensors. A barrier stands before,
    between and after the passes.
    """
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    barrier()
    out = layer(**leaves, **options)
    barrier()
    if out is not None and out.grad_fn is not None:
        (out * upstream).sum().backward()
    barrier()
    grads = {f"grad of {name}": leaf.grad for name, leaf in leaves.items()}
    after = {f"{name} after the call": leaf.detach() for name, leaf in leaves.items()}
    return {"out": None if out is None else out.detach(), **grads, **after}


def wanted(dense: dict, dims: dict, rank: int, ranks: int, names: tuple = ()) -> dict:
    """What rank `rank` must hold, cut from the result of one process.

    With `names`, only these are looked at: "out", "grad of x", "x" (for "x after the call"), "grad" (for all
    gradients); the others may hold anything.
    """
    result = {}
    for name, x in dense.items():
        bare = name.removeprefix("grad of ").removesuffix(" after the call")
        looked_at = not names or any(f"{name} ".startswith(f"{begin} ") for begin in names)
        result[name] = piece(x, dims[bare], rank, ranks) if looked_at else None
    return result


def add_up_suspects(ranks: int) -> dict:
    """Factors that a wrong number of all-reduces leaves behind."""
    return {
        f"it was added up over the {ranks} ranks once too often": float(ranks),
        f"divided by the {ranks} ranks; a sum is wanted": 1 / ranks,
    }


# %% [markdown]
# # Part 1. Linear layers
#
# ## copy_to and reduce_from
#
# Tensor parallelism needs two small operations. Both do nothing in one direction and an all-reduce (sum) in
# the other:
#
# | | forward | backward | where |
# |---|---|---|---|
# | `copy_to(x)` | identity | all-reduce of the gradient | a replicated x goes into work that is split |
# | `reduce_from(x)` | all-reduce of x | identity | partial sums become one replicated result |
#
# Why: if rank r computes $f_r(x)$ from the same x and the loss depends on all of them, then $\partial
# L/\partial x = \sum_r \partial L_r/\partial x$, and each rank has only its own term. And if $y = \sum_r
# x_r$, then $\partial L/\partial x_r = \partial L/\partial y$, which every rank has already. Megatron-LM
# calls the two *f* and *g* (Shoeybi et al. 2019, section 3).
#
# - Both return a new tensor of the same shape; x keeps its values. The gradient that comes in keeps its
#   values too (it may be somebody else's), and may be non-contiguous or expanded.
#
# *Example*, p = 2, x = [1, 2] on rank 0 and [10, 20] on rank 1: `reduce_from(x)` is [11, 22] on both; if
# the gradient [3, 4] then arrives on both, each x gets [3, 4]. If [3, 4] and [30, 40] arrive behind
# `copy_to`, both ranks' x get [33, 44].
#
# *Target:* one collective each, in one direction. *Size:* about 5 lines each. A `torch.autograd.Function`
# has a forward and a backward of its own; you may also do it another way, as long as `copy_to` and
# `reduce_from` are there.

# %% solution="conjugate"
class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ### BEGIN SOLUTION
        ctx.group = group
        return x.view_as(x)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):  # one gradient for each argument of forward; that of group is None
        ### BEGIN SOLUTION
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None
        ### END SOLUTION


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ### BEGIN SOLUTION
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        return grad, None
        ### END SOLUTION


def copy_to(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    return CopyTo.apply(x, group)


def reduce_from(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    return ReduceFrom.apply(x, group)


# %% test="conjugate_pair" points=1
def probe_conjugate(cases):
    rank, results = dist.get_rank(), []

    def beside(x):  # the same gradient reaches x on two ways
        return copy_to(x) + x

    def turned(x):  # the gradient comes back with other strides
        return reduce_from(x).t()

    def expanded(x):  # one number, seen as many
        return copy_to(x).sum()

    for seed, shape in cases:
        x, own, same = draw(seed + rank, *shape), draw(seed + 10 + rank, *shape), draw(seed + 20, *shape)
        results.append({
            "copy_to": one_step(copy_to, {"x": x}, own),
            "reduce_from": one_step(reduce_from, {"x": x}, same),
            "copy_to(x) + x": one_step(beside, {"x": x}, own),
            "reduce_from(x).t()": one_step(turned, {"x": x}, same.t()),
            "copy_to(x).sum()": one_step(expanded, {"x": x}, torch.tensor(1.0 + rank)),
        })
    return results


def verdict_conjugate(cases, ranks, delay=None):
    run = launch(probe_conjugate, cases, ranks=ranks, timeout=20, delay=delay)
    steps = []
    for case, (seed, shape) in enumerate(cases):
        everyone = range(ranks)
        xs, owns = [draw(seed + r, *shape) for r in everyone], [draw(seed + 10 + r, *shape) for r in everyone]
        same, ups = draw(seed + 20, *shape), [torch.ones(shape) * (1 + r) for r in everyone]
        for rank in everyone:
            rows = {  # output, gradient of x, what the gradient must not be
                "copy_to": (xs[rank], sum(owns), owns[rank]),
                "reduce_from": (sum(xs), same, same * ranks),
                "copy_to(x) + x": (2 * xs[rank], sum(owns) + owns[rank], 2 * sum(owns)),
                "reduce_from(x).t()": (sum(xs).t(), same, same * ranks),
                "copy_to(x).sum()": (xs[rank].sum(), sum(ups), ups[rank]),
            }
            for name, (out, grad, wrong) in rows.items():
                causes = {
                    "copy_to": "it is this rank's own gradient: nothing was added up in the backward pass",
                    "copy_to(x).sum()": "it is this rank's own gradient: nothing was added up",
                    "copy_to(x) + x": "the gradient that came in was overwritten, and it was somebody else's too",
                }
                likes = {causes[name]: {"grad of x": wrong}} if name in causes else {}
                likes["it is this rank's own x: nothing was added up in the forward pass"] = {"out": xs[rank]}
                if name == "copy_to":
                    likes["it was added up in the forward pass, where copy_to only hands x on"] = {"out": sum(xs)}
                check.agree(
                    run.values[rank][case][name],
                    {"out": out, "grad of x": grad, "x after the call": xs[rank]},
                    f"{name} (p = {ranks}, rank {rank})",
                    suspects=add_up_suspects(ranks) if "reduce" in name else None,
                    resembles=likes,
                    atol=1e-5,
                )
        one = [("all_reduce", math.prod(shape))]
        steps += [("copy_to", [], one), ("reduce_from", one, []), ("copy_to", [], one)]
        steps += [("reduce_from", one, []), ("copy_to", [], one)]
    check.step_traffic(run.trace, steps)


verdict_conjugate([(1, (2, 3))], 2)
### BEGIN HIDDEN TESTS
verdict_conjugate([(2, (3, 4)), (3, (1, 5))], 3, delay={1: 0.02})
verdict_conjugate([(4, (5, 2))], 4)
verdict_conjugate([(5, (2, 2))], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## column_linear
#
# *Split by columns* (按列切): rank r holds a part of the **outputs**. `column_linear(x, weight, bias, group)`:
# x `[..., H]` replicated, `weight` `[F_r, H]` and `bias` `[F_r]` (or `None`) are this rank's pieces, along
# dim 0, of the dense `[F, H]` and `[F]`. Returns this rank's part `[..., F_r]` of the dense output. The
# parts need not be equally wide.
#
# The gradient of x is that of the dense layer, on every rank; those of weight and bias are the pieces of
# the dense ones.
#
# *Example*, the lecture's: x = [1, 2] and W = [[1, 1], [2, 3]], so torch's weight is [[1, 2], [1, 3]]. Rank
# 0 holds the weight [[1, 2]] and gets [5]; rank 1 holds [[1, 3]] and gets [7]. With the gradients [1] and
# [10], the gradient of x is 1 * [1, 2] + 10 * [1, 3] = [11, 32] on both.
#
# *Target:* nothing is sent forward; one all-reduce of x's size backward. *Size:* about 1 line.

# %% solution="column_linear"
def column_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    return F.linear(copy_to(x, group), weight, bias)
    ### END SOLUTION


# %% shared="linear_cases"
COLUMN = {"x": None, "weight": 0, "bias": 0, "out": -1}
ROW = {"x": -1, "weight": 1, "bias": None, "out": None}


def linear_case(seed: int, shape: tuple, width: int, biased: bool = True) -> tuple[dict, torch.Tensor]:
    """x, weight and bias of a dense layer, and the gradient of its output."""
    tensors = {"x": draw(seed, *shape), "weight": draw(seed + 1, width, shape[-1])}
    if biased:
        tensors["bias"] = 3 + draw(seed + 2, width)
    return tensors, draw(seed + 3, *shape[:-1], width)


def dense_linear(x, weight, bias=None):
    return F.linear(x, weight, bias)


def linear_steps(layer, dims: dict, cases: list) -> list[dict]:
    """On a rank: one step of `layer` on this rank's pieces of each case."""
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, shape, width, biased in cases:
        tensors, upstream = linear_case(seed, shape, width, biased)
        options = {} if biased else {"bias": None}
        own = piece(upstream, dims["out"], rank, ranks)
        results.append(one_step(layer, pieces(tensors, dims, rank, ranks), own, **options))
    return results


# %% test="column_forward" points=1
def probe_column_forward(cases):
    return linear_steps(column_linear, COLUMN, cases)


def verdict_column_forward(cases, ranks):
    run = launch(probe_column_forward, cases, ranks=ranks, timeout=20)
    for case, (seed, shape, width, biased) in enumerate(cases):
        tensors, upstream = linear_case(seed, shape, width, biased)
        dense = one_step(dense_linear, tensors, upstream)
        for rank in range(ranks):
            want = wanted(dense, COLUMN, rank, ranks, ("out", "x", "weight", "bias"))
            where = f"column_linear (p = {ranks}, rank {rank}, width {width})"
            check.agree(run.values[rank][case], want, where, atol=1e-5)


verdict_column_forward([(30, (2, 3, 4), 6, True)], 2)
### BEGIN HIDDEN TESTS
verdict_column_forward([(40, (2, 3, 4), 7, True), (50, (5, 3), 4, False)], 3)
verdict_column_forward([(60, (1, 2, 2, 4), 8, True)], 4)
verdict_column_forward([(70, (3, 4), 5, True)], 1)
### END HIDDEN TESTS

# %% test="column_backward" points=1
def probe_column_backward(cases):
    return linear_steps(column_linear, COLUMN, cases)


def verdict_column_backward(cases, ranks):
    run = launch(probe_column_backward, cases, ranks=ranks, timeout=20)
    steps = []
    for case, (seed, shape, width, biased) in enumerate(cases):
        tensors, upstream = linear_case(seed, shape, width, biased)
        dense = one_step(dense_linear, tensors, upstream)
        for rank in range(ranks):
            share = piece(upstream, -1, rank, ranks) @ piece(tensors["weight"], 0, rank, ranks)
            cause = "it is this rank's share only: the ranks' shares were never added up in the backward pass"
            check.agree(
                run.values[rank][case],
                wanted(dense, COLUMN, rank, ranks, ("grad",)),
                f"column_linear (p = {ranks}, rank {rank}, width {width})",
                suspects=add_up_suspects(ranks),
                resembles={cause: {"grad of x": share}},
                atol=1e-5,
            )
        steps.append(("column_linear", [], [("all_reduce", math.prod(shape))]))
    check.step_traffic(run.trace, steps)


verdict_column_backward([(80, (2, 3, 4), 6, True)], 2)
### BEGIN HIDDEN TESTS
verdict_column_backward([(90, (2, 3, 4), 7, True), (100, (5, 3), 4, False)], 3)
verdict_column_backward([(110, (1, 2, 2, 4), 8, True)], 4)
verdict_column_backward([(120, (3, 4), 5, True)], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## row_linear
#
# *Split by rows* (按行切): rank r holds a part of the **inputs**. `row_linear(x, weight, bias, group)`: x
# `[..., F_r]` is this rank's piece of the dense input along the last dimension, `weight` `[H, F_r]` the
# piece along dim 1, `bias` `[H]` (or `None`) is replicated. Returns the dense output `[..., H]`,
# replicated. Each rank computes a *partial sum* (部分和); the partial sums are added, and the bias must be in
# the result **once**.
#
# The gradients of x and weight are pieces of the dense ones. The gradient of bias is the dense one on every
# rank; should you let only some ranks add the bias, then the ranks' gradients must add up to it.
#
# *Example*, the lecture's: x = [1, 2] and W = [[1, 1], [2, 3]] by rows. Rank 0 has x = [1] and [[1, 1]]:
# its partial result is [1, 1]. Rank 1 has x = [2] and [[2, 3]]: [4, 6]. The sum is [5, 7]. (The lecture's
# [3] and [4] are a slip.)
#
# *Target:* one all-reduce of the output's size forward, nothing backward. *Size:* about 3 lines.

# %% solution="row_linear"
def row_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    y = reduce_from(F.linear(x, weight), group)
    return y if bias is None else y + bias
    ### END SOLUTION


# %% test="row_step" points=1
def probe_row(cases):
    return linear_steps(row_linear, ROW, cases)


def verdict_row(cases, ranks):
    run = launch(probe_row, cases, ranks=ranks, timeout=20)
    steps = []
    for case, (seed, shape, width, biased) in enumerate(cases):
        tensors, upstream = linear_case(seed, shape, width, biased)
        dense = one_step(dense_linear, tensors, upstream)
        where = f"row_linear (p = {ranks}, input {shape[-1]})"
        for rank in range(ranks):
            bias = tensors.get("bias", torch.zeros(width))
            local = piece(tensors["x"], -1, rank, ranks) @ piece(tensors["weight"], 1, rank, ranks).t()
            many = f"the bias is in it {ranks} times: every rank added it before the sum"
            likes = {
                many: {"out": dense["out"] + (ranks - 1) * bias},
                "it is this rank's partial sum: the ranks' sums were never added up": {"out": local},
                "it is this rank's partial sum and the bias: nothing was added up": {"out": local + bias},
            }
            names = ("out", "grad of x", "grad of weight", "x", "weight", "bias")
            check.agree(
                run.values[rank][case],
                wanted(dense, ROW, rank, ranks, names),
                f"{where[:-1]}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles=likes,
                atol=1e-5,
            )
        if biased:
            grads = [value[case]["grad of bias"] for value in run.values]
            check.copies_add_up(grads, dense["grad of bias"], f"{where}, grad of bias", add_up_suspects(ranks))
        steps.append(("row_linear", [("all_reduce", math.prod(shape[:-1]) * width)], []))
    check.step_traffic(run.trace, steps)


verdict_row([(130, (2, 3, 4), 5, True)], 2)
### BEGIN HIDDEN TESTS
verdict_row([(140, (2, 3, 7), 4, True), (150, (5, 3), 4, False)], 3)
verdict_row([(160, (1, 2, 2, 8), 3, True)], 4)
verdict_row([(170, (3, 4), 5, True)], 1)
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. The feed-forward
#
# ## parallel_mlp
#
# `parallel_mlp(x, up, up_bias, down, down_bias, group)` is `FFN(x) = gelu(x up^T + up_bias) down^T +
# down_bias` with F.gelu. x `[B, S, H]` is replicated. This rank has `up` `[F/p, H]` and `up_bias` `[F/p]`
# (pieces along dim 0), `down` `[H, F/p]` (along dim 1), and the whole `down_bias` `[H]`. Returns the dense
# output `[B, S, H]` on every rank; gradients as in part 1.
#
# The lecture says that the parts `[B, S, 4H/p]` must be put together before the activation. Must they? The
# activation works on each element by itself.
#
# *Example*, p = 2, H = 1, F = 2: up = [[1], [2]], down = [[10, 100]], biases 0, x = 3, and relu in place of
# gelu: rank 0 has relu(3) * 10 = 30, rank 1 has relu(6) * 100 = 600, the sum is 630.
#
# *Target:* one all-reduce of `[B, S, H]` forward and one backward: 4 (p-1)/p B S H elements sent by each
# rank in all. *Size:* about 2 lines.

# %% solution="parallel_mlp"
def parallel_mlp(
    x: torch.Tensor,
    up: torch.Tensor,
    up_bias: torch.Tensor,
    down: torch.Tensor,
    down_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    inner = F.gelu(column_linear(x, up, up_bias, group))
    return row_linear(inner, down, down_bias, group)
    ### END SOLUTION


# %% shared="mlp_cases"
MLP = {"x": None, "up": 0, "up_bias": 0, "down": 1, "down_bias": None, "out": None}


def mlp_case(seed: int, batch: int, seq: int, hidden: int, ffn: int) -> tuple[dict, torch.Tensor]:
    """The tensors of a dense feed-forward, and the gradient of its output."""
    tensors = {
        "x": draw(seed, batch, seq, hidden),
        "up": draw(seed + 1, ffn, hidden) / 2,
        "up_bias": 1 + draw(seed + 2, ffn),
        "down": draw(seed + 3, hidden, ffn) / 2,
        "down_bias": 3 + draw(seed + 4, hidden),
    }
    return tensors, draw(seed + 5, batch, seq, hidden)


def dense_mlp(x, up, up_bias, down, down_bias):
    return F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)


SEQUENCE = {**MLP, "x": 1, "norm_weight": None, "norm_bias": None, "out": 1}
COPIES = ("norm_weight", "norm_bias", "down_bias")


def sequence_case(seed: int, batch: int, seq: int, hidden: int, ffn: int) -> tuple[dict, torch.Tensor]:
    """The tensors of a dense norm and feed-forward with a residual sum, and the gradient of its output."""
    tensors, upstream = mlp_case(seed, batch, seq, hidden, ffn)
    norms = {"norm_weight": 1 + draw(seed + 6, hidden) / 2, "norm_bias": draw(seed + 7, hidden)}
    return {"x": tensors.pop("x"), **norms, **tensors}, upstream


def dense_sequence(x, norm_weight, norm_bias, up, up_bias, down, down_bias):
    return x + dense_mlp(F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias), up, up_bias, down, down_bias)


def torch_feed_forwards(plain: tuple, sequence: tuple) -> dict:
    """On a rank: one step of torch's own ColwiseParallel and RowwiseParallel, then with SequenceParallel.

    For a case of `mlp_case` and one of `sequence_case`; an oracle for verdicts.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh, linear = init_device_mesh("cpu", (ranks,)), torch.nn.Linear

    def cut(tensors, layers, plan):
        net = torch.nn.Sequential(*layers)
        with torch.no_grad():
            for parameter, name in zip(net.parameters(), list(tensors)[1:], strict=True):
                parameter.copy_(tensors[name])
        return parallelize_module(net, mesh, plan)

    tensors, upstream = mlp_case(*plain)
    ffn, hidden = tensors["up"].shape
    layers = linear(hidden, ffn), torch.nn.GELU(), linear(ffn, hidden)
    net = cut(tensors, layers, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    step = one_step(lambda x: net(x) + 0, {"x": tensors["x"]}, upstream)
    result = {"plain": {"out": step["out"], "grad of x": step["grad of x"]}}

    tensors, upstream = sequence_case(*sequence)
    ffn, hidden = tensors["up"].shape
    layers = torch.nn.LayerNorm(hidden), linear(hidden, ffn), torch.nn.GELU(), linear(ffn, hidden)
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    }
    net = cut(tensors, layers, plan)
    net(piece(tensors["x"], 1, rank, ranks)).backward(piece(upstream, 1, rank, ranks))
    grads = [net[0].weight.grad, net[0].bias.grad, net[3].bias.grad]
    whole = {f"grad of {name}": grad.full_tensor() for name, grad in zip(COPIES, grads, strict=True)}
    return result | {"sequence": whole}


TORCH_CASES = (260, 2, 3, 4, 12), (566, 2, 4, 4, 8)  # for torch_feed_forwards on 2 ranks


# %% test="mlp_step" points=1
def probe_mlp(cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for case in cases:
        tensors, upstream = mlp_case(*case)
        results.append(one_step(parallel_mlp, pieces(tensors, MLP, rank, ranks), upstream))
    return results


def verdict_mlp(cases, ranks, delay=None):
    run = launch(probe_mlp, cases, ranks=ranks, timeout=20, delay=delay)
    for case, sizes in enumerate(cases):
        tensors, upstream = mlp_case(*sizes)
        dense, where = one_step(dense_mlp, tensors, upstream), f"parallel_mlp (p = {ranks}"
        everything = tuple(name for name in dense if name != "grad of down_bias")
        for rank in range(ranks):
            many = f"down_bias is in it {ranks} times: every rank added it before the sum"
            check.agree(
                run.values[rank][case],
                wanted(dense, MLP, rank, ranks, everything),
                f"{where}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles={many: {"out": dense["out"] + (ranks - 1) * tensors["down_bias"]}},
                atol=1e-5,
            )
        grads = [value[case]["grad of down_bias"] for value in run.values]
        check.copies_add_up(grads, dense["grad of down_bias"], f"{where}), grad of down_bias", add_up_suspects(ranks))


verdict_mlp([(200, 2, 3, 4, 6)], 2)
### BEGIN HIDDEN TESTS
verdict_mlp([(210, 2, 3, 4, 12), (220, 1, 5, 6, 3)], 3, delay={2: 0.02})
verdict_mlp([(230, 2, 2, 3, 8)], 4)
verdict_mlp([(240, 1, 2, 3, 4)], 1)
### END HIDDEN TESTS

# %% test="mlp_traffic" points=1
def probe_mlp_traffic(cases):
    rank, ranks, sizes = dist.get_rank(), dist.get_world_size(), []
    for case in cases:
        tensors, upstream = mlp_case(*case)
        step = one_step(parallel_mlp, pieces(tensors, MLP, rank, ranks), upstream)
        sizes.append({"out": step["out"], "grad of x": step["grad of x"]})
    return sizes


def verdict_mlp_traffic(cases, ranks):
    run = launch(probe_mlp_traffic, cases, ranks=ranks, timeout=20)
    for case, sizes in enumerate(cases):  # traffic counts only where the result is right
        dense = one_step(dense_mlp, *mlp_case(*sizes))
        want = {name: dense[name] for name in ("out", "grad of x")}
        for rank in range(ranks):
            check.agree(run.values[rank][case], want, f"parallel_mlp (p = {ranks}, rank {rank})", atol=1e-5)
    whole = [[("all_reduce", batch * seq * hidden)] for _, batch, seq, hidden, _ in cases]
    check.step_traffic(run.trace, [("parallel_mlp", once, once) for once in whole])
    return run


verdict_mlp_traffic([(250, 2, 3, 4, 16)], 2)
### BEGIN HIDDEN TESTS
run = verdict_mlp_traffic([TORCH_CASES[0]], 2)
torchs = check.reference(torch_feed_forwards, *TORCH_CASES, ranks=2)
for rank in range(2):
    want = torchs.values[rank]["plain"]
    check.agree(run.values[rank][0], want, f"parallel_mlp beside torch's own (rank {rank})", atol=1e-5)
check.step_traffic(torchs.trace, [("torch's own", [("all_reduce", 24)], [("all_reduce", 24)])])
verdict_mlp_traffic([(265, 2, 3, 4, 12)], 3)
verdict_mlp_traffic([(270, 1, 4, 8, 32)], 4)
verdict_mlp_traffic([(280, 1, 4, 8, 32)], 1)
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. Attention by heads
#
# Heads do not talk to each other between the projections, so attention is split *by heads*: rank r holds
# the rows of the query, key and value weights that belong to its heads (column-parallel), attends with
# them, and multiplies with its columns of the output weight (row-parallel).
#
# With *grouped-query attention* (分组查询注意力, GQA) N query heads share K key and value heads: query head i
# reads KV head `i * K // N`. Two cases:
#
# - p divides K: rank r holds KV heads `r*K/p` up to `(r+1)*K/p`.
# - K divides p, K < p: there is not one for each rank. Rank r holds a **copy** of KV head `r * K // p`, and
#   `p/K` neighbouring ranks have the same one.
#
# ## shard_gate_up and shard_qkv
#
# Checkpoints keep several weights in one. Cutting the whole at its middle gives rank 0 all of the first and
# nothing of the last.
#
# `shard_gate_up(weight, rank, world)`: `weight` `[2F, H]` is gate `[F, H]` above up `[F, H]`. Returns
# `[2F/p, H]`: rank's piece of gate above its piece of up. p divides F.
#
# `shard_qkv(weight, heads, kv_heads, rank, world)`: `weight` `[(N + 2K) D, ...]` has the rows of all query
# heads, then those of all key heads, then those of all value heads, D rows each. Returns the rows of this
# rank's query heads, then of its key heads, then of its value heads; heads stay in order. p divides N; K
# and p are as above. It must do for a bias `[(N + 2K) D]` too.
#
# Both return a tensor with **memory of its own**: a view would keep the whole matrix alive on every rank.
#
# *Example*, N = 4, K = 2, D = 1, rows q0 q1 q2 q3 k0 k1 v0 v1. On 2 ranks, rank 1 gets q2 q3 k1 v1. On 4
# ranks, rank 1 gets q1 k0 v0.
#
# *Size:* about 3 and 8 lines.

# %% solution="shard_fused"
def shard_gate_up(weight: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    ### BEGIN SOLUTION
    gate, up = weight.chunk(2)
    return torch.cat([gate.chunk(world)[rank], up.chunk(world)[rank]])
    ### END SOLUTION


def shard_qkv(weight: torch.Tensor, heads: int, kv_heads: int, rank: int, world: int) -> torch.Tensor:
    ### BEGIN SOLUTION
    dim = weight.shape[0] // (heads + 2 * kv_heads)
    queries, keys, values = weight.split([heads * dim, kv_heads * dim, kv_heads * dim])
    own = max(kv_heads // world, 1)
    first = rank * kv_heads // world * dim
    rows = slice(first, first + own * dim)
    return torch.cat([queries.chunk(world)[rank], keys[rows], values[rows]])
    ### END SOLUTION


# %% shared="labelled_rows"
def labelled(kinds: list[tuple[str, int]], dim: int) -> torch.Tensor:
    """A weight of `dim` rows a head, two columns: the head's code (q 0, k 100, v 200, plus its number), the row."""
    codes = [{"q": 0, "k": 100, "v": 200}[kind] + i for kind, count in kinds for i in range(count)]
    return torch.tensor([[float(code), float(row)] for code in codes for row in range(dim)])


def read_rows(rows: object) -> str:
    """The labelled rows in words: "q2 q3 k1 v1"; a head that is not whole or out of order shows its rows."""
    if not isinstance(rows, torch.Tensor) or rows.ndim != 2:
        return f"no matrix but {type(rows).__name__}"
    names = [f"{'qkv'[int(code) // 100]}{int(code) % 100}" for code in rows[:, 0].tolist()]
    order = [int(row) for row in rows[:, 1].tolist()]
    words, i = [], 0
    while i < len(names):
        j = i + 1
        while j < len(names) and names[j] == names[i] and order[j] == order[j - 1] + 1:
            j += 1
        words.append((names[i], tuple(order[i:j])))
        i = j
    return " ".join(name if rows == words[0][1] else f"{name}(rows {list(rows)})" for name, rows in words)


# %% test="shard_fused_rows" points=1
def probe_shard_fused(gate_up_cases, qkv_cases):
    results = {"gate_up": [], "qkv": [], "owned": []}
    for width, rank, world in gate_up_cases:
        weight = torch.arange(2.0 * width * 3).view(2 * width, 3)
        part = shard_gate_up(weight, rank, world)
        results["gate_up"].append(part)
        results["owned"].append(part.untyped_storage().nbytes())
    for heads, kv_heads, dim, rank, world in qkv_cases:
        weight = labelled([("q", heads), ("k", kv_heads), ("v", kv_heads)], dim)
        part = shard_qkv(weight, heads, kv_heads, rank, world)
        bias = shard_qkv(weight[:, 0].contiguous(), heads, kv_heads, rank, world)
        results["qkv"].append({"weight": part, "bias": bias})
        results["owned"].append(part.untyped_storage().nbytes())
    return results


def verdict_shard_fused(gate_up_cases, qkv_cases, heads_wanted):
    got = launch(probe_shard_fused, gate_up_cases, qkv_cases, ranks=None, timeout=20).value
    sizes = []
    for (width, rank, world), part in zip(gate_up_cases, got["gate_up"], strict=True):
        gate, up = torch.arange(2.0 * width * 3).view(2, width, 3)
        share = width // world
        own = range(rank * share, (rank + 1) * share)
        want = torch.stack([gate[i] for i in own] + [up[i] for i in own])
        middle = torch.cat([gate, up])[2 * rank * share : 2 * (rank + 1) * share]
        blind = "[gate, up] was cut as one block: rank 0 has the first rows of gate and none of up"
        swapped = "gate and up take turns, row by row"
        turns = torch.stack([row for i in own for row in (gate[i], up[i])])
        where = f"shard_gate_up (F = {width}, rank {rank} of {world})"
        check.agree(part, want, where, resembles={blind: middle, swapped: turns})
        sizes.append(want.numel() * 4)
    for case, part, want in zip(qkv_cases, got["qkv"], heads_wanted, strict=True):
        heads, kv_heads, dim, rank, world = case
        where = f"shard_qkv (N = {heads}, K = {kv_heads}, rank {rank} of {world})"
        rows, total = read_rows(part["weight"]), (heads + 2 * kv_heads) * dim
        block = labelled([("q", heads), ("k", kv_heads), ("v", kv_heads)], dim).tensor_split(world)[rank]
        hint = " [Q, K, V] was cut as one block, not by heads." if rows == read_rows(block) != want else ""
        assert rows == want, f"{where}: the rows are of {rows}; wanted {want}.{hint}"
        check.agree(part["bias"], part["weight"][:, 0], f"{where}, for a bias")
        sizes.append(len(want.split()) * dim * 2 * 4)
        assert total >= len(want.split()) * dim
    for owned, size in zip(got["owned"], sizes, strict=True):
        assert owned == size, (
            f"A piece of {size} bytes keeps {owned} bytes alive: it is a view of the whole. Give it memory of its own."
        )


verdict_shard_fused([(4, 0, 2), (4, 1, 2)], [(4, 2, 1, 1, 2), (4, 2, 3, 0, 2)], ["q2 q3 k1 v1", "q0 q1 k0 v0"])
### BEGIN HIDDEN TESTS
verdict_shard_fused(
    [(6, 1, 3), (8, 3, 4), (5, 0, 1)],
    [(6, 3, 2, 2, 3), (6, 3, 2, 0, 3), (8, 8, 2, 3, 4), (8, 4, 5, 2, 4), (12, 6, 2, 1, 3), (3, 1, 2, 0, 1)],
    [
        "q4 q5 k2 v2", "q0 q1 k0 v0", "q6 q7 k6 k7 v6 v7", "q4 q5 k2 v2", "q4 q5 q6 q7 k2 k3 v2 v3", "q0 q1 q2 k0 v0",
    ],
)
### END HIDDEN TESTS

# %% test="shard_few_kv" points=1
def probe_shard_few(cases):
    results = []
    for heads, kv_heads, dim, rank, world in cases:
        weight = labelled([("q", heads), ("k", kv_heads), ("v", kv_heads)], dim)
        results.append(shard_qkv(weight, heads, kv_heads, rank, world))
    return results


def verdict_shard_few(cases, heads_wanted):
    got = launch(probe_shard_few, cases, ranks=None, timeout=20).value
    for case, part, want in zip(cases, got, heads_wanted, strict=True):
        heads, kv_heads, _, rank, world = case
        rows = read_rows(part)
        kv, wanted_kv = rows.count("k"), want.split()[-2]
        hint = ""
        if kv == 0:
            hint = " A rank without a key head cannot attend."
        elif rows.split()[:-2] == want.split()[:-2] and wanted_kv not in rows:
            hint = f" Its query heads read KV head {wanted_kv[1:]} = r * K // p."
        elif "(rows" in rows:
            hint = " A head was cut in two."
        assert rows == want, (
            f"shard_qkv (N = {heads}, K = {kv_heads} < p = {world}, rank {rank}): the rows are of {rows}; "
            f"wanted {want}.{hint}"
        )


verdict_shard_few([(4, 2, 1, 1, 4), (4, 2, 1, 2, 4)], ["q1 k0 v0", "q2 k1 v1"])
### BEGIN HIDDEN TESTS
verdict_shard_few(
    [(6, 1, 2, 2, 3), (8, 2, 4, 3, 4), (8, 2, 4, 1, 4), (16, 2, 1, 5, 8), (16, 4, 2, 7, 8), (2, 1, 3, 1, 2)],
    ["q4 q5 k0 v0", "q6 q7 k1 v1", "q2 q3 k0 v0", "q10 q11 k1 v1", "q14 q15 k3 v3", "q1 k0 v0"],
)
### END HIDDEN TESTS

# %% [markdown]
# ## parallel_attention
#
# `parallel_attention(x, qkv, qkv_bias, out, out_bias, heads, kv_heads, group, kv_group)`: causal
# self-attention. x `[B, S, H]` is replicated; `heads` and `kv_heads` are the numbers of query and KV heads
# **on this rank**, n and k; `qkv` `[(n + 2k) D, H]` and `qkv_bias` `[(n + 2k) D]` hold rows as `shard_qkv`
# gives them, `out` `[H, n D]` the columns of this rank's heads, `out_bias` `[H]` is replicated. D follows
# from the shapes. Query head i of this rank reads its KV head `i * k // n`. Returns the dense `[B, S, H]`
# on every rank. Scores are divided by sqrt(D); a token sees itself and earlier ones.
#
# Where KV heads are fewer than ranks, `kv_group` is the group of the ranks that hold the same copy, and
# `None` elsewhere. Each of these ranks sees only its own query heads, so its gradient of the copy is a
# part. The copies must get the **whole** gradient, or they drift apart in the first step: after `backward`,
# the gradients of `qkv` and `qkv_bias` are the rows of the dense ones, in all cases.
#
# `make_kv_group(kv_heads)` makes that group: `kv_heads` is K of the whole layer, p the number of all ranks.
# It returns this rank's group, or `None` where K >= p. All ranks call it, and **every rank must create
# every group, in the same order**, members or not (`dist.new_group`).
#
# *Example*: p = 4, K = 2: ranks 0 and 1 share KV head 0, ranks 2 and 3 share KV head 1.
#
# *You may use* `F.scaled_dot_product_attention` (`is_causal=True, enable_gqa=True`). *Target:* one
# all-reduce of `[B, S, H]` forward; backward another one, and the rows of the shared KV heads within their
# group. *Size:* about 12 and 5 lines. *Hint:* an operation of part 1 also works on a weight.

# %% solution="parallel_attention"
def make_kv_group(kv_heads: int) -> dist.ProcessGroup | None:
    ### BEGIN SOLUTION
    rank, world = dist.get_rank(), dist.get_world_size()
    if kv_heads >= world:
        return None
    share = world // kv_heads
    groups = [dist.new_group(list(range(first, first + share))) for first in range(0, world, share)]
    return groups[rank // share]
    ### END SOLUTION


def parallel_attention(
    x: torch.Tensor,
    qkv: torch.Tensor,
    qkv_bias: torch.Tensor,
    out: torch.Tensor,
    out_bias: torch.Tensor,
    heads: int,
    kv_heads: int,
    group: dist.ProcessGroup | None = None,
    kv_group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    dim = qkv.shape[0] // (heads + 2 * kv_heads)
    if kv_group is not None:
        own = heads * dim
        qkv = torch.cat([qkv[:own], copy_to(qkv[own:], kv_group)])
        qkv_bias = torch.cat([qkv_bias[:own], copy_to(qkv_bias[own:], kv_group)])
    rows = column_linear(x, qkv, qkv_bias, group).unflatten(-1, (-1, dim)).transpose(1, 2)  # [B, n+2k, S, D]
    q, k, v = rows.split([heads, kv_heads, kv_heads], dim=1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return row_linear(y.transpose(1, 2).flatten(2), out, out_bias, group)
    ### END SOLUTION


# %% shared="attention_cases"
WEIGHTS = ("q", "k", "v", "q_bias", "k_bias", "v_bias")


def attention_case(seed: int, batch: int, seq: int, heads: int, kv_heads: int, dim: int) -> tuple[dict, torch.Tensor]:
    """The tensors of a dense attention, queries, keys and values apart, and the gradient of its output."""
    hidden = heads * dim
    tensors = {"x": draw(seed, batch, seq, hidden)}
    for i, (name, count) in enumerate((("q", heads), ("k", kv_heads), ("v", kv_heads))):
        tensors[name] = draw(seed + 1 + i, count * dim, hidden) / 2
        tensors[f"{name}_bias"] = draw(seed + 4 + i, count * dim)
    tensors |= {"out": draw(seed + 7, hidden, hidden) / 2, "out_bias": 3 + draw(seed + 8, hidden)}
    return tensors, draw(seed + 9, batch, seq, hidden)


def dense_attention(x, q, k, v, q_bias, k_bias, v_bias, out, out_bias, dim):
    """One process: projections, then torch's attention, with KV heads repeated for their query heads."""
    parts = [F.linear(x, *pair).unflatten(-1, (-1, dim)) for pair in ((q, q_bias), (k, k_bias), (v, v_bias))]
    queries, keys, values = (part.transpose(1, 2) for part in parts)
    times = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(times, 1), values.repeat_interleave(times, 1)
    y = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    return F.linear(y.transpose(1, 2).flatten(2), out, out_bias)


def joined(tensors: dict, own_kv: list[slice], rank: int, ranks: int, prefix: str = "") -> dict:
    """qkv and qkv_bias of a rank, from q, k and v and the rows of its KV heads; `prefix` stands before names."""
    rows = own_kv[rank]
    result = {}
    for end in ("", "_bias"):
        q, k, v = (tensors[f"{prefix}{name}{end}"] for name in "qkv")
        result[f"{prefix}qkv{end}"] = torch.cat([piece(q, 0, rank, ranks), k[rows], v[rows]])
    return result


def kv_rows(kv_heads: int, dim: int, ranks: int) -> list[slice]:
    """By rank, the rows of its KV heads, for the numbers that the tests use."""
    few = {(1, 2): [0, 0], (1, 3): [0, 0, 0], (2, 4): [0, 0, 1, 1], (1, 4): [0, 0, 0, 0]}
    if (kv_heads, ranks) in few:
        return [slice(head * dim, (head + 1) * dim) for head in few[kv_heads, ranks]]
    share = kv_heads * dim // ranks
    return [slice(rank * share, (rank + 1) * share) for rank in range(ranks)]


def attention_shards(case: tuple, rank: int, ranks: int) -> tuple[dict, torch.Tensor, int, int]:
    """What a rank is given for a case: its tensors, the gradient of the output, its numbers of heads."""
    (tensors, upstream), (heads, kv_heads, dim) = attention_case(*case), case[3:]
    own = joined(tensors, kv_rows(kv_heads, dim, ranks), rank, ranks)
    own |= {"x": tensors["x"], "out": piece(tensors["out"], 1, rank, ranks), "out_bias": tensors["out_bias"]}
    return own, upstream, heads // ranks, max(kv_heads // ranks, 1)


def attention_wanted(dense: dict, case: tuple, rank: int, ranks: int) -> dict:
    """What a rank must bring back for a case; the gradient of out_bias is looked at by itself."""
    rows = kv_rows(case[4], case[5], ranks)
    want = {name: dense[name] for name in ("out", "grad of x", "x after the call")}
    want["grad of out"] = piece(dense["grad of out"], 1, rank, ranks)
    return want | joined(dense, rows, rank, ranks, "grad of ")


def only(step: dict, want: dict) -> dict:
    """The values that a test looks at; a name that is missing stays missing."""
    return {name: step[name] for name in want if name in step}


# %% test="attention_step" points=1
def probe_attention(cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for case in cases:
        tensors, upstream, heads, kv_heads = attention_shards(case, rank, ranks)
        results.append(one_step(parallel_attention, tensors, upstream, heads=heads, kv_heads=kv_heads))
    return results


def verdict_attention(cases, ranks, delay=None):
    run = launch(probe_attention, cases, ranks=ranks, timeout=20, delay=delay)
    steps = []
    for case, sizes in enumerate(cases):
        tensors, upstream = attention_case(*sizes)
        dense = one_step(dense_attention, tensors, upstream, dim=sizes[5])
        where = f"parallel_attention (p = {ranks}, N = {sizes[3]}, K = {sizes[4]}"
        for rank in range(ranks):
            want = attention_wanted(dense, sizes, rank, ranks)
            many = f"out_bias is in it {ranks} times: every rank added it before the sum"
            check.agree(
                only(run.values[rank][case], want),
                want,
                f"{where}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles={many: {"out": dense["out"] + (ranks - 1) * tensors["out_bias"]}},
                atol=2e-5,
            )
        grads = [value[case]["grad of out_bias"] for value in run.values]
        check.copies_add_up(grads, dense["grad of out_bias"], f"{where}), grad of out_bias", add_up_suspects(ranks))
        once = [("all_reduce", tensors["x"].numel())]
        steps.append((where + ")", once, once))
    check.step_traffic(run.trace, steps)


verdict_attention([(300, 2, 3, 4, 2, 2)], 2)
### BEGIN HIDDEN TESTS
verdict_attention([(310, 2, 4, 6, 3, 2), (320, 1, 3, 3, 3, 4)], 3, delay={0: 0.02})
verdict_attention([(330, 2, 3, 8, 4, 2)], 4)
verdict_attention([(340, 1, 4, 6, 2, 2)], 1)
### END HIDDEN TESTS

# %% test="attention_shared_kv" points=1
def probe_shared_kv(cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for case in cases:
        tensors, upstream, heads, kv_heads = attention_shards(case, rank, ranks)
        kv_group = make_kv_group(case[4])
        options = {"heads": heads, "kv_heads": kv_heads, "kv_group": kv_group}
        step = one_step(parallel_attention, tensors, upstream, **options)
        step["kv_group"] = None if kv_group is None else dist.get_process_group_ranks(kv_group)
        results.append(step)
    return results


def verdict_shared_kv(cases, ranks, groups, delay=None):
    run = launch(probe_shared_kv, cases, ranks=ranks, timeout=20, delay=delay)
    steps = []
    for case, sizes in enumerate(cases):
        tensors, upstream = attention_case(*sizes)
        dense = one_step(dense_attention, tensors, upstream, dim=sizes[5])
        where = f"(p = {ranks}, N = {sizes[3]}, K = {sizes[4]}"
        rows, shared = kv_rows(sizes[4], sizes[5], ranks), 2 * max(sizes[4] // ranks, 1) * sizes[5]
        for rank in range(ranks):
            mine = next((group for group in groups[case] if rank in group), None)
            got = run.values[rank][case]["kv_group"]
            assert got == mine, f"make_kv_group {where}, rank {rank}) is the group of ranks {got}; wanted {mine}."
            want, step = attention_wanted(dense, sizes, rank, ranks), run.values[rank][case]
            likes = {}
            if mine:
                cut, name = shared, "grad of qkv"
                parts = [value[case].get(name) for value in run.values]
                both = all(isinstance(part, torch.Tensor) and part.shape == want[name].shape for part in parts)
                if both and torch.allclose(sum(parts[r][-cut:] for r in mine), want[name][-cut:], atol=2e-5):
                    likes["the rows of the shared KV head hold this rank's part of the gradient only"] = {
                        name: step[name],
                    }
            check.agree(
                only(step, want),
                want,
                f"parallel_attention {where}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles=likes,
                atol=2e-5,
            )
        assert len(rows) == ranks
        once, width = [("all_reduce", tensors["x"].numel())], sizes[3] * sizes[5] + 1
        copies = [("all_reduce", shared * width)] if any(groups[case]) else []
        steps.append((f"parallel_attention {where})", once, once + copies))
    check.step_traffic(run.trace, steps)


verdict_shared_kv([(350, 2, 3, 4, 1, 2)], 2, [[[0, 1]]])
### BEGIN HIDDEN TESTS
verdict_shared_kv([(360, 2, 3, 4, 2, 2), (370, 1, 4, 8, 1, 2)], 4, [[[0, 1], [2, 3]], [[0, 1, 2, 3]]], delay={3: 0.02})
verdict_shared_kv([(380, 2, 2, 6, 1, 3), (390, 1, 2, 6, 3, 2)], 3, [[[0, 1, 2]], []])
verdict_shared_kv([(395, 1, 2, 2, 1, 3)], 1, [[]])
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. The vocabulary
#
# The embedding and the output layer are the largest weights of a small model, and the *logits* (原始分数) `[B,
# S, V]` often its largest tensor. Rank r holds rows `start` up to `start + V_r` of the vocabulary. p need
# not divide V: the first pieces are then one row longer, as in `torch.tensor_split`.
#
# ## vocab_embedding
#
# `vocab_embedding(tokens, weight, start, group)`: tokens `[B, S]` whole numbers from 0 to V-1, replicated;
# `weight` `[V_r, H]` this rank's rows, from row `start` on. Returns the dense `[B, S, H]` on every rank. A
# token that this rank does not own contributes zeros; only its owner's gradient gets a row for it. A rank
# may own none of the tokens.
#
# *Example*, p = 2, V = 3, H = 1, rows [[5], [6]] and [[7]]: tokens [2, 0] give [0, 5] on rank 0 and [7, 0]
# on rank 1, together [7, 5].
#
# *Target:* one all-reduce of `[B, S, H]` forward, nothing backward; no weight is sent. *Size:* about 4
# lines.

# %% solution="vocab_embedding"
def vocab_embedding(
    tokens: torch.Tensor, weight: torch.Tensor, start: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    ### BEGIN SOLUTION
    local = tokens - start
    mine = (local >= 0) & (local < weight.shape[0])
    rows = F.embedding(local.where(mine, 0), weight)
    return reduce_from(rows * mine.unsqueeze(-1), group)
    ### END SOLUTION


# %% shared="vocab_cases"
def starts(vocab: int, ranks: int) -> list[int]:
    """The first row of each rank's piece of the vocabulary."""
    return [int(part[0]) for part in torch.arange(vocab).tensor_split(ranks)]


# %% test="embedding_step" points=1
def probe_embedding(cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, tokens, vocab, hidden in cases:
        weight, upstream = draw(seed, vocab, hidden), draw(seed + 1, *tokens.shape, hidden)
        start, numbers = starts(vocab, ranks)[rank], tokens.clone()

        def layer(weight, numbers=numbers, start=start):
            return vocab_embedding(numbers, weight, start)

        step = one_step(layer, {"weight": piece(weight, 0, rank, ranks)}, upstream)
        results.append(step | {"tokens after the call": numbers})
    return results


def verdict_embedding(cases, ranks):
    run = launch(probe_embedding, cases, ranks=ranks, timeout=20)
    steps = []
    for case, (seed, tokens, vocab, hidden) in enumerate(cases):
        weight, upstream = draw(seed, vocab, hidden), draw(seed + 1, *tokens.shape, hidden)
        dense = one_step(lambda weight, tokens=tokens: F.embedding(tokens, weight), {"weight": weight}, upstream)
        for rank in range(ranks):
            start, dims = starts(vocab, ranks)[rank], {"out": None, "weight": 0}
            where = f"vocab_embedding (V = {vocab}, p = {ranks}, rank {rank} owns rows from {start})"
            want = wanted(dense, dims, rank, ranks) | {"tokens after the call": tokens}
            check.agree(run.values[rank][case], want, where, suspects=add_up_suspects(ranks), atol=1e-5)
        steps.append((f"vocab_embedding (V = {vocab})", [("all_reduce", tokens.numel() * hidden)], []))
    check.step_traffic(run.trace, steps)


verdict_embedding([(400, torch.tensor([[0, 3, 4, 6], [6, 3, 3, 0]]), 7, 3)], 2)
### BEGIN HIDDEN TESTS
verdict_embedding([(410, torch.arange(11).view(1, 11), 11, 2), (412, torch.tensor([[3, 1, 0], [2, 2, 1]]), 11, 4)], 3)
verdict_embedding([(414, torch.tensor([[9, 8, 9], [3, 4, 6]]), 10, 3)], 4)
verdict_embedding([(416, torch.tensor([[4, 2]]), 5, 3)], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## vocab_cross_entropy
#
# `vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing, group)`: `logits` `[B, S, V_r]`
# is this rank's piece of the logits, from token `start` on; `targets` `[B, S]` is replicated. A target of
# -100 does not count; at least one counts. Returns the mean *cross-entropy* (交叉熵) over the targets that
# count, a number with no dimensions, the same on every rank. For a position with logits $z$ and target $t$
#
# $$L = \log\sum_v e^{z_v} - (1-\epsilon)\, z_t - \frac{\epsilon}{V} \sum_v z_v ,$$
#
# with $\epsilon$ = `label_smoothing` (0: the plain loss) and sums over the **whole** vocabulary of V =
# `vocab_size` tokens. Subtract the largest logit (of all ranks) before you take exponentials: logits of 300
# must work, and so must a rank whose logits are all far below another's.
#
# The gradient of `logits` is this rank's piece of the dense one. Every rank has a part of it, also where
# the target is some other rank's.
#
# *Example*, p = 2, V = 3, one position, logits [log 2, log 3] and [log 5], target 2: the sum of
# exponentials is 10, L = log 10 - log 5 = log 2. The gradient is [0.2, 0.3] and [0.5 - 1].
#
# *Target:* the logits are **not gathered**: B S numbers for each all-reduce, four of them at most forward,
# nothing backward. *Size:* about 14 lines. *Careful:* index -100 - `start` is a valid one in Python.

# %% solution="vocab_cross_entropy"
def vocab_cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    start: int,
    vocab_size: int,
    label_smoothing: float = 0.0,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    top = logits.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    shifted = logits - top.unsqueeze(-1)
    local = targets - start
    mine = (local >= 0) & (local < logits.shape[-1])
    at_target = shifted.gather(-1, local.where(mine, 0).unsqueeze(-1)).squeeze(-1) * mine
    parts = torch.stack([shifted.exp().sum(-1), at_target, shifted.sum(-1)])
    exponentials, at_target, total = reduce_from(parts, group)
    losses = exponentials.log() - (1 - label_smoothing) * at_target - label_smoothing * total / vocab_size
    counted = targets != -100
    return (losses * counted).sum() / counted.sum()
    ### END SOLUTION


# %% shared="loss_cases"
def loss_case(seed: int, targets: torch.Tensor, vocab: int, tilt: float, scale: float) -> torch.Tensor:
    """Dense logits [B, S, V]: random, times `scale`; `tilt` is added to the first tokens, V // 4 of them."""
    logits = scale * draw(seed, *targets.shape, vocab)
    logits[..., : vocab // 4] += tilt
    return logits


def loss_steps(loss, cases: list) -> list[dict]:
    """On a rank: one step of a vocabulary-parallel loss on this rank's piece of each case."""
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, targets, vocab, tilt, scale, smoothing, weight in cases:
        logits = piece(loss_case(seed, targets, vocab, tilt, scale), -1, rank, ranks)
        fixed = {"start": starts(vocab, ranks)[rank], "vocab_size": vocab, "label_smoothing": smoothing}
        numbers = targets.clone()
        step = one_step(loss, {"logits": logits}, torch.tensor(weight), targets=numbers, **fixed)
        results.append(step | {"targets after the call": numbers})
    return results


def dense_loss(logits, targets, label_smoothing):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=label_smoothing)


def loss_mistakes(logits: torch.Tensor, targets: torch.Tensor, ranks: int, rank: int, smoothing: float) -> dict:
    """Losses that known mistakes give on a rank, by sentence."""
    counted, vocab = targets != -100, logits.shape[-1]
    logits, targets = logits[counted], targets[counted]
    mean, logsum = lambda x: x.sum() / counted.sum(), logits.logsumexp(-1)
    at_target = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    shards, first = logits.tensor_split(ranks, -1), starts(vocab, ranks)
    ends = [*first[1:], vocab]
    found = {}
    relative = sum((shard - shard.amax(-1, keepdim=True)).exp().sum(-1) for shard in shards).log()
    found["exponentials were taken relative to each rank's own largest logit, and then added"] = mean(
        relative + shards[rank].amax(-1) - at_target
    )
    if not smoothing:
        own = (targets >= first[rank]) & (targets < ends[rank])
        found["the logits of targets that other ranks own are missing"] = mean(logsum - at_target * own)
        found["the logits of targets that other ranks own are missing, behind the maximum"] = mean(
            logsum - at_target * own - logits.amax(-1) * ~own
        )
        found["the sum of exponentials is this rank's own: it was never added up"] = mean(
            shards[rank].logsumexp(-1) - at_target
        )
    else:
        own = shards[rank].mean(-1)
        smooth = smoothing * (logits.mean(-1) - own)
        found["smoothing is over this rank's part of the vocabulary"] = mean(
            logsum - (1 - smoothing) * at_target - smoothing * logits.mean(-1) + smooth
        )
    return found


# %% test="cross_entropy_values" points=1
def probe_loss_values(cases):
    return loss_steps(vocab_cross_entropy, cases)


def verdict_loss_values(cases, ranks):
    run = launch(probe_loss_values, cases, ranks=ranks, timeout=20)
    for case, (seed, targets, vocab, tilt, scale, smoothing, _) in enumerate(cases):
        logits = loss_case(seed, targets, vocab, tilt, scale)
        loss, counted = dense_loss(logits, targets, smoothing), int((targets != -100).sum())
        suspects = {"ignored targets were counted in the mean": counted / targets.numel()}
        suspects["a sum over the targets; the mean is wanted"] = float(counted)
        for rank in range(ranks):
            likes = loss_mistakes(logits, targets, ranks, rank, smoothing)
            check.agree(
                only(run.values[rank][case], {"out": 0, "targets after the call": 0}),
                {"out": loss, "targets after the call": targets},
                f"vocab_cross_entropy (V = {vocab}, p = {ranks}, smoothing {smoothing}, rank {rank})",
                suspects=suspects,
                resembles={sentence: {"out": value} for sentence, value in likes.items()},
                atol=1e-5,
            )


some = torch.tensor([[0, 3, 4], [6, -100, 2]])
verdict_loss_values([(420, some, 7, 0.0, 1.0, 0.0, 1.0), (421, some, 7, 5.0, 1.0, 0.1, 1.0)], 2)
### BEGIN HIDDEN TESTS
edges = torch.tensor([[0, 7, 8, 15], [16, 23, 24, 31]])
verdict_loss_values([(430, edges, 32, 20.0, 1.0, 0.0, 1.0), (431, edges, 32, 0.0, 100.0, 0.0, 1.0)], 4)
far = torch.tensor([[0, 1, -100], [-100, 2, -100]])  # all of them rank 0's
verdict_loss_values([(432, far, 11, -30.0, 1.0, 0.0, 1.0), (433, some, 11, 300.0, 1.0, 0.2, 1.0)], 3)
last = torch.tensor([[10, 9, -100, 10]])  # all of them the last rank's
verdict_loss_values([(434, last, 11, 10.0, 1.0, 0.0, 1.0), (435, last, 11, 2.0, 1.0, 0.5, 1.0)], 4)
verdict_loss_values([(436, some, 7, 1.0, 3.0, 0.1, 1.0)], 1)
### END HIDDEN TESTS

# %% test="cross_entropy_gradients" points=1
def probe_loss_gradients(cases):
    return loss_steps(vocab_cross_entropy, cases)


def verdict_loss_gradients(cases, ranks):
    run = launch(probe_loss_gradients, cases, ranks=ranks, timeout=20)
    for case, (seed, targets, vocab, tilt, scale, smoothing, weight) in enumerate(cases):
        logits = loss_case(seed, targets, vocab, tilt, scale)
        fixed = {"targets": targets, "label_smoothing": smoothing}
        step = one_step(dense_loss, {"logits": logits}, torch.tensor(weight), **fixed)
        counted = targets != -100
        softmax = weight * (logits.softmax(-1) * counted.unsqueeze(-1)) / counted.sum()
        rest = step["grad of logits"] - softmax
        suspects = add_up_suspects(ranks) | {
            "ignored targets were counted in the mean": int(counted.sum()) / targets.numel(),
            "the gradient that arrives from behind the loss was left out": 1 / weight,
        }
        missing = "the softmax is missing: no gradient flows through the sum of exponentials"
        alone = "the softmax alone: nothing is subtracted at the target"
        for rank in range(ranks):
            likes = {missing: piece(rest, -1, rank, ranks), alone: piece(softmax, -1, rank, ranks)}
            check.agree(
                only(run.values[rank][case], {"grad of logits": 0, "logits after the call": 0}),
                {
                    "grad of logits": piece(step["grad of logits"], -1, rank, ranks),
                    "logits after the call": piece(logits, -1, rank, ranks),
                },
                f"vocab_cross_entropy (V = {vocab}, p = {ranks}, smoothing {smoothing}, rank {rank})",
                suspects=suspects,
                resembles={sentence: {"grad of logits": value} for sentence, value in likes.items()},
                atol=1e-6,
            )


some = torch.tensor([[0, 3, 4], [6, -100, 2]])
verdict_loss_gradients([(440, some, 7, 0.0, 1.0, 0.0, 1.5), (441, some, 7, 2.0, 1.0, 0.1, 1.0)], 2)
### BEGIN HIDDEN TESTS
edges = torch.tensor([[0, 7, 8, 15], [16, 23, 24, 31]])
verdict_loss_gradients([(450, edges, 32, 20.0, 1.0, 0.0, 1.0), (451, edges, 32, 0.0, 100.0, 0.0, 0.5)], 4)
far = torch.tensor([[10, 9, -100], [-100, 10, -100]])  # all of them the last rank's
verdict_loss_gradients([(452, far, 11, 3.0, 1.0, 0.0, 0.5), (453, some, 11, 30.0, 1.0, 0.2, 2.0)], 3)
verdict_loss_gradients([(454, some, 7, 1.0, 3.0, 0.1, 0.25)], 1)
### END HIDDEN TESTS

# %% test="vocab_traffic" points=1
def probe_vocab_traffic(cases):
    return [{"out": step["out"]} for step in loss_steps(vocab_cross_entropy, cases)]


def verdict_vocab_traffic(cases, ranks):
    run = launch(probe_vocab_traffic, cases, ranks=ranks, timeout=20)
    steps = []
    for case, (seed, targets, vocab, tilt, scale, smoothing, _) in enumerate(cases):
        loss = dense_loss(loss_case(seed, targets, vocab, tilt, scale), targets, smoothing)
        where = f"vocab_cross_entropy (V = {vocab}, p = {ranks})"
        for rank in range(ranks):
            check.agree(run.values[rank][case], {"out": loss}, f"{where}, rank {rank}", atol=1e-5)
        steps.append((where, [("all_reduce", targets.numel())] * 4, []))
    check.step_traffic(run.trace, steps)


few = torch.tensor([[60, 3, 44], [6, -100, 2]])
verdict_vocab_traffic([(460, few, 67, 1.0, 1.0, 0.0, 1.0)], 2)
### BEGIN HIDDEN TESTS
verdict_vocab_traffic([(461, few, 131, 1.0, 1.0, 0.1, 1.0), (462, few, 67, 1.0, 1.0, 0.0, 1.0)], 3)
verdict_vocab_traffic([(463, few, 131, 1.0, 1.0, 0.0, 1.0)], 4)
verdict_vocab_traffic([(464, few, 131, 1.0, 1.0, 0.0, 1.0)], 1)
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. Between the split layers
#
# ## gather_sequence, scatter_sequence, sequence_mlp
#
# Around the split layers stand norms, residual sums and dropout. So far every rank does all of them on all
# tokens and keeps all of their activations. *Sequence parallelism* (序列并行; Korthikanti et al. 2022, section
# 4.2.2) splits them along S, without sending a byte more: an all-reduce is a reduce-scatter and an
# all-gather, and the norms go in between.
#
# | | forward | backward |
# |---|---|---|
# | `gather_sequence(x)` | all-gather: `[B, S/p, H]` to `[B, S, H]` | reduce-scatter |
# | `scatter_sequence(x)` | reduce-scatter: partial sums `[B, S, H]` to `[B, S/p, H]` | all-gather |
#
# Both work along **dim 1**; rank r has tokens `r*S/p` up to `(r+1)*S/p`, and p divides S. *Careful:*
# torch's collectives cut and join along dim 0, and with B > 1 that is not the same.
#
# `sequence_mlp(x, norm_weight, norm_bias, up, up_bias, down, down_bias, group)`: x `[B, S/p, H]` is this
# rank's tokens. Returns, for the same tokens, `x + FFN(norm(x))`, with the feed-forward of part 2 and norm
# = `F.layer_norm(x, (H,), norm_weight, norm_bias)`. `norm_weight`, `norm_bias` and `down_bias` `[H]` are
# replicated and work on each rank's **own tokens only**; yet after `backward` each rank's copy must have
# the gradient of the dense layer, over all tokens. Gradients of x, up, up_bias, down: pieces of the dense
# ones.
#
# *Example*, p = 2, B = 2, S = 2: rank 0 has tokens a0 and b0, rank 1 has a1 and b1. Gathered: [[a0, a1],
# [b0, b1]].
#
# *Target:* one all-gather and one reduce-scatter of `[B, S, H]` in each direction, and in the backward pass
# what three vectors `[H]` need. (Megatron-LM gathers the tokens once more in the backward pass rather than
# keep them; you may.) *Size:* about 25 lines for the pair, 7 for the layer.

# %% solution="sequence_parallel"
def joined_tokens(x, group):
    """[B, S/p, H] of all ranks to [B, S, H], without a gradient."""
    ### BEGIN SOLUTION
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=1)
    ### END SOLUTION


def summed_tokens(x, group):
    """[B, S, H] of all ranks to this rank's tokens of the sum, [B, S/p, H], without a gradient."""
    ### BEGIN SOLUTION
    parts = x.chunk(dist.get_world_size(group), dim=1)
    own = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_single(own, torch.cat(parts), group=group)
    return own
    ### END SOLUTION


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ### BEGIN SOLUTION
        ctx.group = group
        return joined_tokens(x, group)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        return summed_tokens(grad, ctx.group), None
        ### END SOLUTION


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ### BEGIN SOLUTION
        ctx.group = group
        return summed_tokens(x, group)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        return joined_tokens(grad, ctx.group), None
        ### END SOLUTION


def gather_sequence(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    return GatherSequence.apply(x, group)


def scatter_sequence(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    return ScatterSequence.apply(x, group)


def sequence_mlp(
    x: torch.Tensor,
    norm_weight: torch.Tensor,
    norm_bias: torch.Tensor,
    up: torch.Tensor,
    up_bias: torch.Tensor,
    down: torch.Tensor,
    down_bias: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    norm_weight, norm_bias, down_bias = copy_to(torch.stack([norm_weight, norm_bias, down_bias]), group)
    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias)
    inner = F.gelu(F.linear(gather_sequence(normed, group), up, up_bias))
    return x + scatter_sequence(F.linear(inner, down), group) + down_bias
    ### END SOLUTION


# %% shared="sequence_cases"
def sequence_steps(layer, cases: list) -> list[dict]:
    """On a rank: one step of `layer` on this rank's pieces of each case."""
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for case in cases:
        tensors, upstream = sequence_case(*case)
        own = piece(upstream, 1, rank, ranks)
        results.append(one_step(layer, pieces(tensors, SEQUENCE, rank, ranks), own))
    return results


# %% test="sequence_step" points=1
def probe_sequence(pair_cases, cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, batch, seq, hidden in pair_cases:
        whole, own = draw(seed + rank, batch, seq, hidden), draw(seed + 10 + rank, batch, seq // ranks, hidden)
        results.append({
            "gather_sequence": one_step(gather_sequence, {"x": own}, whole),
            "scatter_sequence": one_step(scatter_sequence, {"x": whole}, own),
        })
    return results, sequence_steps(sequence_mlp, cases)


def verdict_sequence(pair_cases, cases, ranks, delay=None):
    run = launch(probe_sequence, pair_cases, cases, ranks=ranks, timeout=20, delay=delay)
    everyone = range(ranks)
    for case, (seed, batch, seq, hidden) in enumerate(pair_cases):
        wholes = [draw(seed + r, batch, seq, hidden) for r in everyone]
        owns = [draw(seed + 10 + r, batch, seq // ranks, hidden) for r in everyone]
        mixed = torch.cat(owns, 0).view(batch, seq, hidden)
        for rank in everyone:
            sums, gathered, got = piece(sum(wholes), 1, rank, ranks), torch.cat(owns, 1), run.values[rank][0][case]
            flat = sum(wholes).view(ranks, batch, seq // ranks, hidden)[rank]
            where, other = f"(p = {ranks}, B = {batch}, rank {rank})", "it was cut or joined along dim 0, not dim 1"
            local = "it is a piece of this rank's own tensor: nothing was added up"
            check.agree(
                got["gather_sequence"],
                {"out": gathered, "grad of x": sums, "x after the call": owns[rank]},
                f"gather_sequence {where}",
                suspects=add_up_suspects(ranks),
                resembles={
                    other: {"out": mixed, "grad of x": flat},
                    local: {"grad of x": piece(wholes[rank], 1, rank, ranks)},
                },
                atol=1e-5,
            )
            check.agree(
                got["scatter_sequence"],
                {"out": sums, "grad of x": gathered, "x after the call": wholes[rank]},
                f"scatter_sequence {where}",
                suspects=add_up_suspects(ranks),
                resembles={
                    other: {"out": flat, "grad of x": mixed},
                    local: {"out": piece(wholes[rank], 1, rank, ranks)},
                },
                atol=1e-5,
            )
    for case, sizes in enumerate(cases):
        tensors, upstream = sequence_case(*sizes)
        dense = one_step(dense_sequence, tensors, upstream)
        names = tuple(name for name in dense if name.removeprefix("grad of ") not in COPIES)
        for rank in everyone:
            many = f"down_bias is in it {ranks} times: every rank added it before the sum"
            over = piece(dense["out"] + (ranks - 1) * tensors["down_bias"], 1, rank, ranks)
            check.agree(
                run.values[rank][1][case],
                wanted(dense, SEQUENCE, rank, ranks, names),
                f"sequence_mlp (p = {ranks}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles={many: {"out": over}},
                atol=2e-5,
            )


verdict_sequence([(500, 2, 4, 3)], [(510, 2, 4, 3, 6)], 2)
### BEGIN HIDDEN TESTS
verdict_sequence([(520, 3, 6, 2), (522, 1, 3, 2)], [(524, 2, 6, 4, 9)], 3, delay={1: 0.02})
verdict_sequence([(530, 2, 8, 3)], [(532, 3, 4, 4, 8)], 4)
verdict_sequence([(540, 2, 3, 3)], [(542, 2, 3, 4, 5)], 1)
### END HIDDEN TESTS

# %% test="sequence_copies" points=1
def probe_sequence_copies(cases):
    return sequence_steps(sequence_mlp, cases)


def verdict_sequence_copies(cases, ranks):
    run = launch(probe_sequence_copies, cases, ranks=ranks, timeout=20)
    names = [f"grad of {name}" for name in COPIES]
    for case, sizes in enumerate(cases):
        dense = one_step(dense_sequence, *sequence_case(*sizes))
        grads = [only(value[case], dict.fromkeys(names)) for value in run.values]
        for rank in range(ranks):
            likes = {}
            for name in names:
                parts = [grad[name] for grad in grads if isinstance(grad.get(name), torch.Tensor)]
                part = parts[rank] if len(parts) == ranks else None
                fits = part is not None and part.shape == dense[name].shape
                if fits and torch.allclose(sum(parts), dense[name], atol=2e-5):
                    likes[name] = part
            alone = "it is the part of this rank's own tokens: never added up over the group"
            check.agree(
                grads[rank],
                {name: dense[name] for name in names},
                f"sequence_mlp (p = {ranks}, rank {rank})",
                suspects=add_up_suspects(ranks),
                resembles={alone: likes},
                atol=2e-5,
            )


verdict_sequence_copies([(550, 2, 4, 3, 6)], 2)
### BEGIN HIDDEN TESTS
verdict_sequence_copies([(560, 2, 6, 4, 9), (562, 1, 3, 4, 6)], 3)
verdict_sequence_copies([(564, 3, 4, 4, 8)], 4)


run = launch(probe_sequence_copies, [TORCH_CASES[1]], ranks=2, timeout=20)
torchs = check.reference(torch_feed_forwards, *TORCH_CASES, ranks=2)
for rank in range(2):
    want = torchs.values[rank]["sequence"]
    got = only(run.values[rank][0], want)
    check.agree(got, want, f"sequence_mlp beside torch's SequenceParallel (rank {rank})", atol=2e-5)
### END HIDDEN TESTS

# %% test="sequence_traffic" points=1
def probe_sequence_traffic(pair, cases):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    batch, seq, hidden = pair
    whole, own = draw(rank, batch, seq, hidden), draw(rank, batch, seq // ranks, hidden)
    outs = [one_step(gather_sequence, {"x": own}, whole)["out"], one_step(scatter_sequence, {"x": whole}, own)["out"]]
    return outs, [{"out": step["out"]} for step in sequence_steps(sequence_mlp, cases)]


def verdict_sequence_traffic(pair, cases, ranks):
    run = launch(probe_sequence_traffic, pair, cases, ranks=ranks, timeout=20)
    for case, sizes in enumerate(cases):
        dense = one_step(dense_sequence, *sequence_case(*sizes))
        for rank in range(ranks):
            want = {"out": piece(dense["out"], 1, rank, ranks)}
            check.agree(run.values[rank][1][case], want, f"sequence_mlp (p = {ranks}, rank {rank})", atol=2e-5)
    numel = math.prod(pair)
    gather, scatter = [("all_gather", numel)], [("reduce_scatter", numel)]
    steps = [("gather_sequence", gather, scatter), ("scatter_sequence", scatter, gather)]
    for _, batch, seq, hidden, _ in cases:
        both = [("all_gather", batch * seq * hidden), ("reduce_scatter", batch * seq * hidden)]
        again = ("all_gather?", batch * seq * hidden)  # for who does not keep the gathered tokens
        steps.append(("sequence_mlp", both, [*both, again, ("all_reduce?", 3 * hidden)]))
    check.step_traffic(run.trace, steps)


verdict_sequence_traffic((2, 8, 6), [(570, 2, 12, 4, 6)], 2)
### BEGIN HIDDEN TESTS
verdict_sequence_traffic((3, 12, 4), [(580, 3, 12, 4, 12)], 3)
verdict_sequence_traffic((2, 8, 6), [(582, 2, 16, 4, 8)], 4)
verdict_sequence_traffic((2, 3, 4), [(584, 2, 3, 4, 8)], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## dropout_generators
#
# *Dropout* (随机失活) draws a random mask. Which ranks must draw the same one? With tensor and data parallelism
# together a rank has a number in its tensor-parallel group (`tp_rank`) and one in its data-parallel group
# (`dp_rank`).
#
# - A **replicated** activation (after a row-parallel layer): the same mask on all ranks of a
#   tensor-parallel group, or the copies are copies no longer. Different data, different masks: it differs
#   between dp_ranks.
# - A **sharded** activation (inside the split layers, or split by tokens): every rank has another piece, so
#   every rank needs a mask of its own.
#
# `dropout_generators(seed, dp_rank, tp_rank)` returns two `torch.Generator`s, (for replicated, for
# sharded). The same three numbers always give the same streams. Streams that should differ must do so for
# any two ranks with numbers below 1000, between the two generators of a rank too, and for another `seed` (0
# to 2^31 - 1).
#
# *Careful:* `seed + dp_rank + tp_rank` is the same number on (0, 1) and on (1, 0). *Size:* about 6 lines.

# %% solution="dropout_generators"
def dropout_generators(seed: int, dp_rank: int, tp_rank: int) -> tuple[torch.Generator, torch.Generator]:
    ### BEGIN SOLUTION
    base = (seed * 1000 + dp_rank) * 1001
    replicated = torch.Generator().manual_seed(base)
    sharded = torch.Generator().manual_seed(base + 1 + tp_rank)
    return replicated, sharded
    ### END SOLUTION


# %% test="dropout_streams" points=1
def probe_dropout(seeds, dp_ranks, tp_ranks):
    rows = []
    for seed in seeds:
        for dp_rank in dp_ranks:
            for tp_rank in tp_ranks:
                replicated, sharded = dropout_generators(seed, dp_rank, tp_rank)
                draws = {
                    "replicated": torch.rand(8, generator=replicated),
                    "sharded": torch.rand(8, generator=sharded),
                }
                again = torch.rand(8, generator=dropout_generators(seed, dp_rank, tp_rank)[1])
                rows.append({"seed": seed, "dp": dp_rank, "tp": tp_rank, "again": again, **draws})
    return rows


def verdict_dropout(seeds, dp_ranks, tp_ranks):
    rows = launch(probe_dropout, seeds, dp_ranks, tp_ranks, ranks=None, timeout=20).value
    assert len(rows) == len(seeds) * len(dp_ranks) * len(tp_ranks)

    def who(row):
        return f"seed {row['seed']}, dp_rank {row['dp']}, tp_rank {row['tp']}"

    first, seen = {}, {}
    for row in rows:
        assert torch.equal(row["again"], row["sharded"]), f"{who(row)}: a second call gives another stream."
        partner = first.setdefault((row["seed"], row["dp"]), row)
        assert torch.equal(row["replicated"], partner["replicated"]), (
            f"replicated: ({who(row)}) and ({who(partner)}) draw different masks; copies of one activation "
            "need the same one."
        )
    for row in rows:
        for kind in ("replicated", "sharded"):
            if kind == "replicated" and row is not first[row["seed"], row["dp"]]:
                continue
            key = tuple(row[kind].tolist())
            assert key not in seen, (
                f"{kind} of ({who(row)}) and {seen[key]} draw the same mask; they are different pieces or "
                "different data."
            )
            seen[key] = f"{kind} of ({who(row)})"


verdict_dropout([5], [0, 1], [0, 1])
### BEGIN HIDDEN TESTS
verdict_dropout([0, 1, 2, 1000, 2**31 - 1], [0, 1, 2, 3], [0, 1, 2, 3])
verdict_dropout([0, 1, 999, 1000], [0, 1, 10, 100, 999], [0, 1, 10, 100, 999])
### END HIDDEN TESTS

# %% [markdown]
# ## Only the group that was passed
#
# On a large machine the tensor-parallel group is a few ranks of many. Here ranks 0 and 2 are one group and
# ranks 1 and 3 another, each with data of its own: whoever talks to all four mixes them. This test uses
# your `parallel_mlp`, `parallel_attention`, `vocab_embedding`, `vocab_cross_entropy` and `sequence_mlp`.

# %% test="passed_group" points=1
def probe_passed_group(seeds):
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    which = dist.get_rank() % 2
    group, seed = groups[which], seeds[which]
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    results = {}
    tensors, upstream = mlp_case(seed, 2, 2, 3, 4)
    results["parallel_mlp"] = one_step(parallel_mlp, pieces(tensors, MLP, rank, ranks), upstream, group=group)
    tensors, upstream = sequence_case(seed, 2, 2, 3, 4)
    own = piece(upstream, 1, rank, ranks)
    parts = pieces(tensors, SEQUENCE, rank, ranks)
    results["sequence_mlp"] = one_step(sequence_mlp, parts, own, group=group)
    tensors, upstream, heads, kv_heads = attention_shards((seed, 1, 3, 4, 2, 2), rank, ranks)
    options = {"heads": heads, "kv_heads": kv_heads, "group": group}
    results["parallel_attention"] = one_step(parallel_attention, tensors, upstream, **options)
    targets = torch.tensor([[0, 3, 4], [6, -100, 2]])
    logits = piece(loss_case(seed, targets, 7, 1.0, 1.0), -1, rank, ranks)
    fixed = {"targets": targets, "start": starts(7, ranks)[rank], "vocab_size": 7, "group": group}
    results["vocab_cross_entropy"] = one_step(vocab_cross_entropy, {"logits": logits}, torch.tensor(1.0), **fixed)

    def embed(weight):
        return vocab_embedding(targets.clamp(min=0), weight, starts(7, ranks)[rank], group)

    weight = piece(draw(seed, 7, 3), 0, rank, ranks)
    results["vocab_embedding"] = one_step(embed, {"weight": weight}, draw(seed + 1, 2, 3, 3))
    return results


def verdict_passed_group(seeds):
    run = launch(probe_passed_group, seeds, ranks=4, timeout=20)
    targets = torch.tensor([[0, 3, 4], [6, -100, 2]])
    for which, seed in enumerate(seeds):
        attention, attention_up = attention_case(seed, 1, 3, 4, 2, 2)
        logits = loss_case(seed, targets, 7, 1.0, 1.0)
        fixed = {"targets": targets, "label_smoothing": 0.0}
        dense = {
            "parallel_mlp": (one_step(dense_mlp, *mlp_case(seed, 2, 2, 3, 4)), MLP),
            "sequence_mlp": (one_step(dense_sequence, *sequence_case(seed, 2, 2, 3, 4)), SEQUENCE),
            "vocab_cross_entropy": (
                one_step(dense_loss, {"logits": logits}, torch.tensor(1.0), **fixed),
                {"logits": -1, "out": None},
            ),
            "vocab_embedding": (
                one_step(
                    lambda weight: F.embedding(targets.clamp(min=0), weight),
                    {"weight": draw(seed, 7, 3)},
                    draw(seed + 1, 2, 3, 3),
                ),
                {"weight": 0, "out": None},
            ),
        }
        whole = one_step(dense_attention, attention, attention_up, dim=2)
        for rank, member in enumerate((which, which + 2)):
            where, got = f"in the group of ranks {which} and {which + 2} (rank {member} of 4)", run.values[member]
            for name, (step, dims) in dense.items():
                copies = () if name == "sequence_mlp" else ("down_bias",)
                names = tuple(key for key in step if key.removeprefix("grad of ") not in copies)
                check.agree(got[name], wanted(step, dims, rank, 2, names), f"{name} {where}", atol=2e-5)
            want = attention_wanted(whole, (seed, 1, 3, 4, 2, 2), rank, 2)
            check.agree(only(got["parallel_attention"], want), want, f"parallel_attention {where}", atol=2e-5)


verdict_passed_group([600, 620])
### BEGIN HIDDEN TESTS
verdict_passed_group([640, 660])
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It runs one block (your attention and your feed-forward) on 1 to 4 ranks and
# draws, for one step, the bytes that a rank sent, as the journal counted them, beside the formula of
# question `"bytes_per_block"`; and the bytes of weights that a rank holds. *Before you run it: which curve
# falls, which rises, and where does the rising one end?*

# %%
def block_on_rank(batch, seq, heads, dim, ffn):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    attention, upstream, own_heads, own_kv = attention_shards((1, batch, seq, heads, heads, dim), rank, ranks)
    mlp = pieces(mlp_case(2, batch, seq, heads * dim, ffn)[0], MLP, rank, ranks)
    own = [value.requires_grad_() for part in (attention, mlp) for name, value in part.items() if name != "x"]
    x = attention.pop("x").requires_grad_()
    del mlp["x"]
    y = x + parallel_attention(x, **attention, heads=own_heads, kv_heads=own_kv)
    (y + parallel_mlp(y, **mlp)).backward(upstream)
    return sum(value.numel() * value.element_size() for value in own)


def measure_and_plot(batch=2, seq=32, heads=12, dim=4):
    import matplotlib.pyplot as plt

    hidden, worlds = heads * dim, [1, 2, 3, 4]
    runs = [launch(block_on_rank, batch, seq, heads, dim, 4 * hidden, ranks=ranks) for ranks in worlds]
    sent = [run.trace.bytes_sent(0) for run in runs]
    predicted = [8 * (p - 1) / p * batch * seq * hidden * 4 for p in worlds]
    weights = [run.values[0] for run in runs]
    for p, measured, guess, held in zip(worlds, sent, predicted, weights, strict=True):
        print(f"p = {p}: sent {measured} bytes, predicted {guess:.0f}; weights {held} bytes")
    left, right = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")[1]
    left.plot(worlds, [n / 1024 for n in predicted], "--", color="#E69F00", label="8 (p-1)/p B S H x 4 bytes")
    left.plot(worlds, [n / 1024 for n in sent], "o", color="#0072B2", label="measured")
    left.axhline(8 * batch * seq * hidden * 4 / 1024, color="#BBBBBB", linewidth=1)
    left.set(xlabel="ranks", ylabel="KiB sent by a rank in one step", xticks=worlds)
    right.plot(worlds, [weights[0] / p / 1024 for p in worlds], "--", color="#E69F00", label="all weights / p")
    right.plot(worlds, [n / 1024 for n in weights], "o", color="#0072B2", label="measured")
    right.set(xlabel="ranks", ylabel="KiB of weights on a rank", xticks=worlds, ylim=(0, None))
    for ax in (left, right):
        ax.legend(frameon=False, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
    plt.show()


measure_and_plot()

# %% [markdown]
# # Part 6. Questions
#
# ## questions
#
# The visible tests show only whether your answer has the right form. Return one dictionary. Shapes and
# vectors are lists of whole numbers.
#
# *The lecture's example*: X = [1, 2], W = [[1, 1], [2, 3]], two ranks.
#
# - `"column_0"`, `"column_1"`: what do ranks 0 and 1 compute when W is split by columns?
# - `"row_0"`, `"row_1"`, `"row_sum"`: what do they compute when W is split by rows, and what is the sum?
#
# *The lecture's question*: W1 of shape [H, 4H] (the lecture's layout, `[in, out]`) is split by columns in
# two, W2 of shape [4H, H] by rows. B = 2, S = 5, H = 8.
#
# - `"w1_shape"`: the shape of one rank's part of W1. `"inner_shape"`: of the activation between W1 and W2
#   on one rank. `"w2_shape"`: of one rank's part of W2. `"partial_shape"`: of what a rank has before the
#   all-reduce.
#
# *Traffic*: a block of attention and feed-forward, forward and backward, on p = 8 ranks; B = 1, S = 2048, H
# = 4096, activations in bf16.
#
# - `"bytes_per_block"`: how many bytes does each rank send (an all-reduce sends 2(p-1)/p of its bytes)?
#
# *One letter for each*:
#
# `"first_by_columns"`: what does splitting W1 by columns save?
#
# - A: nothing has to be sent before the product: every rank has the whole x, and gets whole output
#   features, to which the activation can be applied at once.
# - B: the backward pass through W1 needs no communication.
# - C: the activation does not have to be computed on every rank twice.
# - D: each rank needs only a part of x.
#
# `"second_by_rows"`: and splitting W2 by rows?
#
# - A: the output need not be added up.
# - B: each rank can use the part of the activation that it already has; only the output is added up, in one
#   all-reduce.
# - C: the bias of W2 is split too.
# - D: each rank gets whole output features.
#
# `"gather_between"`: the lecture says that the parts `[B, S, 2H]` are merged to `[B, S, 4H]` before the
# activation. When is that needed?
#
# - A: always, since the activation needs all features of a token.
# - B: only in the backward pass.
# - C: not with W2 split by rows; it would be if every rank had to have the whole activation.
# - D: whenever p > 2.
#
# `"fast_link"`: why is a tensor-parallel group kept inside one machine?
#
# - A: every layer waits for its all-reduces, several times in a step, and nothing can be computed
#   meanwhile.
# - B: its messages are larger than those of data parallelism.
# - C: collectives do not work across machines.
# - D: its weights would be sent across the network in every step.

# %% solution="questions"
def questions() -> dict:
    ### BEGIN SOLUTION
    return {
        "column_0": [5],
        "column_1": [7],
        "row_0": [1, 1],
        "row_1": [4, 6],
        "row_sum": [5, 7],
        "w1_shape": [8, 16],
        "inner_shape": [2, 5, 16],
        "w2_shape": [16, 8],
        "partial_shape": [2, 5, 8],
        "bytes_per_block": 8 * 7 // 8 * 2048 * 4096 * 2,
        "first_by_columns": "A",
        "second_by_rows": "B",
        "gather_between": "C",
        "fast_link": "A",
    }
    ### END SOLUTION


# %% test="question_values" points=1
answer = check.answer(launch(lambda: questions(), ranks=None, timeout=20).value, "questions")
for key in ("column_0", "column_1", "row_0", "row_1", "row_sum"):
    check.has_list_of_ints(answer, key, "questions")
for key in ("w1_shape", "inner_shape", "w2_shape", "partial_shape"):
    check.has_list_of_ints(answer, key, "questions")
check.has_number(answer, "bytes_per_block", "questions")
for key in ("first_by_columns", "second_by_rows", "gather_between", "fast_link"):
    check.has_letter(answer, key, "ABCD", "questions")
### BEGIN HIDDEN TESTS
x, w = torch.tensor([[1, 2]]), torch.tensor([[1, 1], [2, 3]])
columns = [(x @ part)[0].tolist() for part in w.chunk(2, 1)]
rows = [(a @ b)[0].tolist() for a, b in zip(x.chunk(2, 1), w.chunk(2, 0), strict=True)]
wanted_answers = {"column_0": columns[0], "column_1": columns[1], "row_0": rows[0], "row_1": rows[1]}
wanted_answers["row_sum"] = (x @ w)[0].tolist()
batch, first, second = torch.zeros(2, 5, 8), torch.zeros(8, 32).chunk(2, 1)[0], torch.zeros(32, 8).chunk(2, 0)[0]
inner = batch @ first
wanted_answers |= {"w1_shape": list(first.shape), "inner_shape": list(inner.shape)}
wanted_answers |= {"w2_shape": list(second.shape), "partial_shape": list((inner @ second).shape)}
wanted_answers |= {"first_by_columns": "A", "second_by_rows": "B", "gather_between": "C", "fast_link": "A"}
check.answers_agree(answer, wanted_answers, "questions")
one_all_reduce = 2 * 7 / 8 * (1 * 2048 * 4096 * 2)
check.number(answer["bytes_per_block"], 4 * one_all_reduce, "bytes_per_block", "bytes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - Identity one way, all-reduce the other: with that pair around it, any chain column, elementwise, row
#   needs one all-reduce in each direction, and the gradients come out by themselves.
# - The forward pass alone proves nothing. A missing all-reduce in the backward pass leaves the output and
#   the layer's own weights right, and spoils all layers before it.
# - Whatever is replicated but works on a part (norms on a rank's own tokens, copies of a KV head) needs its
#   gradient added up.
# - The logits never have to exist in one place: a maximum and a few sums for each token are enough.
