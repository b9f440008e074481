# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 10: Online softmax and ring attention
#
# **20 points.** You write exact attention that never holds the S x S matrix, forward and backward. Then you
# cut the sequence over ranks and let keys and values travel round a ring, with equal work on every rank.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | softmax in one pass over blocks; merging partial results | 3 |
# | 2 | blockwise attention, forward and backward: values, masks, precision, memory, work | 6 |
# | 3 | a sequence on ranks: positions, labels, the loss | 3 |
# | 4 | ring attention: values, gradients, traffic, overlap, balance, memory | 6 |
# | 5 | all-to-all attention, the other way to split | 1 |
# | 6 | questions | 1 |
#
# *You should have read* notebooks 02 and 13. *Time:* about four hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs them with further sizes, masks and numbers of ranks.
# - The tests look at **values** and **gradients**, at **bytes** alive, at the **FLOPs** of matrix products,
#   at **traffic**, and at **order**: what travels while products are computed.
# - **You may call** anything in `torch` and `torch.distributed`, except finished attention:
#   `scaled_dot_product_attention`, `flex_attention`, `torch.nn.MultiheadAttention`, and
#   `torch.distributed.tensor`. They are what you are held to.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`.
#
# **Conventions.** Shapes: B batch, N heads, S tokens, D head_dim. q, k, v are `[B, N, S, D]`; keys and
# values may be fewer or more tokens than queries. `p` is the number of ranks; a *group* (进程组) is always the
# group of all ranks. Scores (分数) are q k^T / sqrt(D).
#
# **Masks.** `visible(q_pos, k_pos, causal, window, pad)` in the next cell says which query sees which key,
# from their *positions* (位置) in the whole sequence. The three rules can be combined; functions below take
# them as keyword arguments `**rule` and hand them on:
#
# - `causal`: a query sees no key behind it;
# - `window` (滑动窗口): only the last `window` keys, itself included;
# - `pad`: sequence b begins with `pad[b]` tokens of left padding (左填充), which nobody sees.
#
# **A row that sees nothing** has output 0, log-sum-exp `-inf`, and gives no gradient. (Others choose NaN or
# the mean of the values. Here it is 0.)

# %% shared="imports"
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import check, launch
from utils.checks import attention
from utils.checks.attention import Watched
from utils.memory import LiveBytes

torch.set_num_threads(1)  # the tensors are small: a second thread would only wait


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 numbers of this shape, the same ones for the same seed on every rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def visible(
    q_pos: torch.Tensor,
    k_pos: torch.Tensor,
    causal: bool = True,
    window: int | None = None,
    pad: list[int] | None = None,
) -> torch.Tensor:
    """Which query sees which key: bool, `[1, 1, queries, keys]`, or `[B, 1, queries, keys]` with `pad`.

    >>> visible(torch.tensor([2, 3]), torch.tensor([0, 3]))[0, 0].tolist()
    [[True, False], [True, True]]
    """
    ahead = k_pos[None, :] - q_pos[:, None]
    seen = torch.ones_like(ahead, dtype=torch.bool) if not causal else ahead <= 0
    if window is not None:
        seen = seen & (ahead > -window)
    if pad is None:
        return seen[None, None]
    return seen[None, None] & (k_pos[None, :] >= torch.tensor(pad)[:, None])[:, None, None, :]


def inputs(seed: int, batch: int, heads: int, queries: int, keys: int, dim: int, scale: float = 1.0) -> list:
    """q, k, v and the gradient of the output."""
    q, up = scale * draw(seed, batch, heads, queries, dim), draw(seed + 1, batch, heads, queries, dim)
    k, v = draw(seed + 2, batch, heads, keys, dim), draw(seed + 3, batch, heads, keys, dim)
    return [q, k, v, up]


def dense(q, k, v, up, rule: dict, q_pos=None, k_pos=None) -> dict:
    """For oracles: torch's own attention in float64, with "out", "lse", "dq", "dk", "dv" in float32.

    A row that sees nothing is let see everything, and its result is then put to 0.
    """
    q_pos = torch.arange(q.shape[2]) if q_pos is None else q_pos
    k_pos = torch.arange(k.shape[2]) if k_pos is None else k_pos
    seen = visible(q_pos, k_pos, **rule).expand(q.shape[0], 1, q.shape[2], k.shape[2])
    empty = ~seen.any(-1, keepdim=True)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, attn_mask=seen | empty).masked_fill(empty, 0)
    out.backward(up.double())
    scores = (leaves[0] @ leaves[1].transpose(-1, -2)).detach() / math.sqrt(q.shape[-1])
    lse = scores.masked_fill(~seen, -math.inf).logsumexp(-1)
    grads = {name: leaf.grad.float() for name, leaf in zip(("dq", "dk", "dv"), leaves, strict=True)}
    return {"out": out.detach().float(), "lse": lse.float(), **grads}


def no_nan(got: object, where: dict, what: str) -> None:
    """CheckFailed where `got` holds NaN; `where`: sentence -> which rows (a mask over its first dimensions)."""
    if not isinstance(got, torch.Tensor) or not bool(got.isnan().any()):
        return
    for sentence, rows in where.items():
        if rows.shape == got.shape[: rows.ndim] and bool(got[rows].isnan().any()):
            raise check.CheckFailed(
                f"{what}: NaN where {sentence}. The maximum of such scores is -inf, and exp(-inf - (-inf)) is NaN."
            )
    raise check.CheckFailed(f"{what}: {int(got.isnan().sum())} of {got.numel()} elements are NaN.")


def every_token_once(positions: list, seq: int, what: str) -> None:
    """CheckFailed where the ranks' positions are not those of the whole sequence."""
    if sorted(torch.cat(positions).tolist()) != list(range(seq)):
        raise check.CheckFailed(f"{what}: the ranks' zigzag_positions are not the {seq} positions, each once.")


def in_order(got: dict, want: dict, what: str, likes: dict | None = None, rtol=1e-4, atol=1e-5) -> None:
    """`check.agree` for one tensor after the other: what comes first explains what comes later.

    A log-sum-exp of -inf (a row that sees nothing) must be exactly that.
    """
    for name, tensor in want.items():
        x = got.get(name)
        if name == "lse" and isinstance(x, torch.Tensor) and x.shape == tensor.shape:
            empty = tensor == -math.inf
            if bool((x[empty] != -math.inf).any()):
                seen = x[empty][x[empty] != -math.inf][0].item()
                raise check.CheckFailed(f"{what}: lse of a row that sees nothing is {seen:.4g}, wanted -inf.")
        resembles = {cause: {name: slip[name]} for cause, slip in (likes or {}).items() if name in slip}
        check.agree({name: x}, {name: tensor}, what, resembles=resembles, rtol=rtol, atol=atol)


# %% [markdown]
# # Part 1. Softmax over a stream
#
# ## online_update and online_finish
#
# Scores arrive in blocks, with the values that belong to them, and each block is thrown away after use.
# *Online softmax* (在线 softmax; Milakov and Gimelshein 2018) keeps three things for each row: the largest
# score so far m, the denominator l = sum of exp(score - m), and the weighted sum u = sum of exp(score - m)
# value.
#
# `online_update(state, scores, values)`: `scores` is `[R, T]` for R rows and T keys, `values` is `[T, D]`;
# `state` is `None` at the beginning, then what the call before returned: `(m, l, u)` of shapes `[R]`,
# `[R]`, `[R, D]`. Blocks may have any T from 1 on. A score of `-inf` is a key that the row does not see.
# The arguments keep their values.
#
# `online_finish(state)` returns `(out, lse)`: the softmax of all scores times all values, `[R, D]`, and the
# logarithm of the sum of exp(score), `[R]`. A row that saw nothing: 0 and `-inf`.
#
# *Example*, one row: scores [0, 0] with values [1], [3] give m = 0, l = 2, u = [4]. Then the score ln 4
# with value [5]: the old ones shrink by exp(0 - ln 4) = 1/4, so m = ln 4, l = 2/4 + 1 = 1.5, u = 4/4 + 5 =
# 6, and the output is 6 / 1.5 = 4 = (1 + 3 + 4*5) / 6. The log-sum-exp is ln 6.
#
# *Size:* about 12 lines together. *Careful:* a block can be all `-inf` for a row, the first one too.

# %% solution="online"
State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def online_update(state: State | None, scores: torch.Tensor, values: torch.Tensor) -> State:
    ### BEGIN SOLUTION
    if state is None:
        rows = scores.shape[:-1]
        state = scores.new_full(rows, -math.inf), scores.new_zeros(rows), scores.new_zeros(*rows, values.shape[-1])
    m, l, u = state  # noqa: E741
    top = torch.maximum(m, scores.amax(-1))
    safe = top.masked_fill(top == -math.inf, 0)  # such a row has seen nothing: every exp below is 0
    weights, shrink = (scores - safe[..., None]).exp(), (m - safe).exp()
    return top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ values
    ### END SOLUTION


def online_finish(state: State) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    m, l, u = state  # noqa: E741
    seen = l > 0
    return torch.where(seen[..., None], u / l.where(seen, 1)[..., None], 0), m + l.log()
    ### END SOLUTION


# %% test="online_stream" points=1
def probe_stream(cases):
    results = []
    for blocks in cases:
        given = [(scores.clone(), values.clone()) for scores, values in blocks]
        state, states = None, []
        for scores, values in given:
            state = online_update(state, scores, values)
            states.append(tuple(state))
        results.append({"finished": [online_finish(state) for state in states], "states": states, "given": given})
    return results


def stream(seed, rows, sizes, dim, shifts):
    """Blocks of scores and values; the scores of block i are around shifts[i]."""
    scores = [draw(seed + i, rows, size) + shift for i, (size, shift) in enumerate(zip(sizes, shifts, strict=True))]
    return [(block, draw(seed + 50 + i, block.shape[1], dim)) for i, block in enumerate(scores)]


def verdict_stream(cases):
    got = launch(probe_stream, cases, ranks=None, timeout=20).value
    for number, (blocks, result) in enumerate(zip(cases, got, strict=True)):
        for k in range(len(blocks)):
            what = f"online_update (case {number}, after block {k})"
            seen = [(scores.double(), values.double()) for scores, values in blocks[: k + 1]]
            scores, values = torch.cat([s for s, _ in seen], -1), torch.cat([v for _, v in seen])
            want = {"out": (scores.softmax(-1) @ values).float(), "lse": scores.logsumexp(-1).float()}
            parts = [s.softmax(-1) @ v for s, v in seen]
            fresh = sum((s - s.amax(-1, keepdim=True)).exp() @ v for s, v in seen)
            total = sum((s - s.amax(-1, keepdim=True)).exp().sum(-1) for s, _ in seen)
            likes = {}
            if k > 0:
                likes = {
                    "it is the sum of each block's own softmax; they do not share a denominator": {"out": sum(parts)},
                    "it is the mean of each block's own softmax": {"out": sum(parts) / len(parts)},
                    "old sums were not rescaled by exp(old maximum - new maximum)": {"out": fresh / total[:, None]},
                }
            out, lse = result["finished"][k]
            in_order({"out": out, "lse": lse}, want, what, likes)
        for k, (m, l, u) in enumerate(result["states"]):  # noqa: E741
            what = f"online_update (case {number}, after block {k})"
            scores = torch.cat([scores.double() for scores, _ in blocks[: k + 1]], -1)
            values = torch.cat([values.double() for _, values in blocks[: k + 1]])
            shapes = [tuple(getattr(x, "shape", ())) for x in (m, l, u)]
            sizes = [tuple(scores.shape[:1]), tuple(scores.shape[:1]), (scores.shape[0], values.shape[1])]
            if shapes != sizes:
                raise check.CheckFailed(f"{what}: m, l, u have shapes {shapes}, wanted {sizes}.")
            check.agree(m, scores.amax(-1).float(), f"{what}: m")
            check.agree(l, (scores - m[:, None]).exp().sum(-1).float(), f"{what}: l", atol=1e-5)
            check.agree(u, ((scores - m[:, None]).exp() @ values).float(), f"{what}: u", atol=1e-5)
        for (scores, values), (scores_after, values_after) in zip(blocks, result["given"], strict=True):
            check.unchanged([scores_after, values_after], [scores, values], "online_update")


example = [(torch.zeros(1, 2), torch.tensor([[1.0], [3.0]])), (torch.tensor([[math.log(4)]]), torch.tensor([[5.0]]))]
verdict_stream([example, stream(10, 3, [2, 3, 1], 2, [0, 5, -2])])
### BEGIN HIDDEN TESTS
verdict_stream([stream(20, 4, [1, 7, 2], 3, [0, 0, 0]), stream(30, 2, [5, 1, 4], 1, [200, -300, 400])])
verdict_stream([stream(40, 3, [4, 4], 2, [90, 0]), stream(45, 1, [1], 1, [-1000])])
### END HIDDEN TESTS

# %% test="online_masked" points=1
def probe_online_masked(cases):
    results = []
    for scores, values, sizes in cases:
        state = None
        for block, part in zip(scores.split(sizes, 1), values.split(sizes), strict=True):
            state = online_update(state, block.clone(), part.clone())
        results.append(tuple(online_finish(state)))
    return results


def verdict_online_masked(cases):
    got = launch(probe_online_masked, cases, ranks=None, timeout=20).value
    for (scores, values, sizes), (out, lse) in zip(cases, got, strict=True):
        hidden = scores == -math.inf
        empty = hidden.all(-1)
        likes = {"rows that see nothing must be 0 (here they are the mean of the values)": {
            "out": torch.where(empty[:, None], values.mean(0), (scores.softmax(-1) @ values).nan_to_num(0))
        }}  # fmt: skip
        where = {
            "all keys of the first block are masked, and later ones are not": hidden[:, : sizes[0]].all(-1) & ~empty,
            "all keys are masked": empty,
        }
        no_nan(out, where, "online softmax, out")
        no_nan(lse, where, "online softmax, lse")
        want = {"out": (scores.double().softmax(-1).nan_to_num(0) @ values.double()).float()}
        want["lse"] = scores.double().logsumexp(-1).float()
        in_order({"out": out, "lse": lse}, want, "online softmax with masked keys", likes)


def masked_case(seed, hidden, sizes, dim=2):
    """Scores of one row for each list in `hidden`: the keys that this row does not see."""
    scores = 3 * draw(seed, len(hidden), sum(sizes))
    for row, keys in enumerate(hidden):
        scores[row, list(keys)] = -math.inf
    return scores, draw(seed + 1, sum(sizes), dim), sizes


verdict_online_masked([masked_case(60, [[], [0, 1], [2, 3], range(5)], [2, 2, 1])])
### BEGIN HIDDEN TESTS
verdict_online_masked([masked_case(70, [[0], range(1, 6), range(4), range(6)], [1, 3, 2])])
verdict_online_masked([masked_case(80, [range(3), [3]], [3, 1]), masked_case(90, [[0], [0, 1]], [1, 1])])
### END HIDDEN TESTS

# %% [markdown]
# ## merge
#
# Two partial results over *different* keys, each with the log-sum-exp (对数求和指数, LSE) of its scores, make
# the result over all of them:
#
# $$\text{lse} = \ln(e^{\text{lse}_a} + e^{\text{lse}_b}), \qquad \text{out} = e^{\text{lse}_a - \text{lse}}
# \,\text{out}_a + e^{\text{lse}_b - \text{lse}}\, \text{out}_b .$$
#
# `merge(out_a, lse_a, out_b, lse_b)` returns `(out, lse)`; `out` is `[..., D]`, `lse` is `[...]`, all
# float32. It must hold for any two finite LSEs, however far apart: exp(89) is already infinite in float32.
# An LSE may be `-inf` (that part saw nothing), in either or in both.
#
# *Example:* out_a = [2] with lse_a = ln 2, out_b = [5] with lse_b = ln 4: lse = ln 6, out = [2*2/6 + 5*4/6]
# = [4].
#
# *Size:* about 6 lines.

# %% solution="merge"
def merge(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    lse = torch.logaddexp(lse_a, lse_b)
    safe = lse.masked_fill(lse == -math.inf, 0)[..., None]
    return (lse_a[..., None] - safe).exp() * out_a + (lse_b[..., None] - safe).exp() * out_b, lse
    ### END SOLUTION


# %% test="merge_gaps" points=1
def probe_merge(parts):
    given = [x.clone() for x in parts]
    out, lse = merge(*given)
    return {"out": out, "lse": lse, "given": given}


def verdict_merge(lse_a, lse_b, dim=2):
    """One row for each pair of log-sum-exps; each has outputs of its own."""
    lse_a, lse_b = torch.tensor(lse_a, dtype=torch.float32), torch.tensor(lse_b, dtype=torch.float32)
    out_a, out_b = draw(100, len(lse_a), dim), draw(101, len(lse_a), dim)
    nothing_a, nothing_b = lse_a == -math.inf, lse_b == -math.inf
    out_a, out_b = out_a.masked_fill(nothing_a[:, None], 0), out_b.masked_fill(nothing_b[:, None], 0)
    got = launch(probe_merge, [out_a, lse_a, out_b, lse_b], ranks=None, timeout=20).value
    where = {"one part saw nothing": nothing_a ^ nothing_b, "neither part saw anything": nothing_a & nothing_b}
    for name in ("out", "lse"):
        no_nan(got[name], where, f"merge, {name}")
    both = torch.stack([lse_a, lse_b]).double()
    weights = both.softmax(0).nan_to_num(0)
    out = weights[0][:, None] * out_a + weights[1][:, None] * out_b
    want = {"out": out.float(), "lse": both.logsumexp(0).float()}
    for row, gap in enumerate((lse_b - lse_a).tolist()):
        far = isinstance(got["lse"], torch.Tensor) and got["lse"].shape == lse_a.shape and got["lse"][row] == math.inf
        if far:
            raise check.CheckFailed(
                f"merge: lse is inf where lse_b - lse_a = {gap:g}: exp of a difference above 88 overflows in float32."
            )
    likes = {"it is the sum of both parts, each weighted as if it were alone": {"out": out_a + out_b}}
    likes["it is the mean of both parts"] = {"out": (out_a + out_b) / 2}
    in_order(got, want, "merge", likes, atol=1e-6)
    check.unchanged(got["given"], [out_a, lse_a, out_b, lse_b], "merge")


verdict_merge([math.log(2), 1.0, 0.0, 3.0], [math.log(4), 1.0, 88.0, -84.0])
### BEGIN HIDDEN TESTS
never = -math.inf
verdict_merge([0.0, 0.0, 90.0, 1000.0, -1000.0, 0.0], [89.0, 100.0, 0.0, -1000.0, -1000.0, 1000.0], 3)
verdict_merge([never, 2.0, never, 500.0, never], [1.0, never, never, never, -200.0])
verdict_merge([never], [never], 1)
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Blockwise attention
#
# ## blockwise_forward
#
# `blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule)` returns `(out, lse)`: attention of q `[B, N, Sq,
# D]` over k and v `[B, N, Sk, D]`, out `[B, N, Sq, D]` and the log-sum-exp of each row, `[B, N, Sq]`.
# `q_pos` `[Sq]` and `k_pos` `[Sk]` are positions in the whole sequence (ascending, not always next to each
# other); `rule` goes to `visible`.
#
# Cut the queries and the keys into *tiles* (分块) of `tile` tokens; the last one may be shorter.
#
# - **Memory:** never more than a few tiles of scores at once, nothing of the size Sq x Sk, no mask of it
#   either.
# - **Work:** the products of a tile pair in which nothing is visible are not computed. With a causal mask
#   that is nearly half of them.
# - **Precision:** q, k, v may be bf16. Scores, exponentials and sums are float32, and so are `out` and
#   `lse`.
#
# *Example*, tile 1, D = 1, causal: q = [0, 0], v = [1, 3]: row 0 sees only key 0: out 1, lse ln 1 = 0; row
# 1 sees both, with scores 0: out 2, lse ln 2.
#
# *Size:* about 15 lines, with `online_update`. It also takes leading dimensions, if you let it.

# %% solution="blockwise_forward"
def blockwise_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    q_pos: torch.Tensor,
    k_pos: torch.Tensor,
    tile: int,
    **rule,
) -> tuple[torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    outs, lses = [], []
    keys = list(zip(k.split(tile, 2), v.split(tile, 2), k_pos.split(tile), strict=True))
    for rows, row_pos in zip(q.split(tile, 2), q_pos.split(tile), strict=True):
        rows = rows.float() / math.sqrt(q.shape[-1])
        m = torch.full(rows.shape[:-1], -math.inf)
        l, u = torch.zeros_like(m), torch.zeros_like(rows)  # noqa: E741
        for key, value, key_pos in keys:
            seen = visible(row_pos, key_pos, **rule)
            if not seen.any():
                continue
            scores = (rows @ key.float().transpose(-1, -2)).masked_fill(~seen, -math.inf)
            top = torch.maximum(m, scores.amax(-1))
            safe = top.masked_fill(top == -math.inf, 0)
            weights, shrink = (scores - safe[..., None]).exp(), (m - safe).exp()
            m, l, u = top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ value.float()  # noqa: E741
        outs.append(u / l.masked_fill(l == 0, 1)[..., None])
        lses.append(m + l.log())
    return torch.cat(outs, 2), torch.cat(lses, 2)
    ### END SOLUTION


# %% test="blockwise_values" points=1
def probe_blockwise(cases):
    results = []
    for seed, sizes, scale, tile, rule in cases:
        q, k, v, _ = inputs(seed, *sizes, scale=scale)
        with Watched() as watched:
            out, lse = blockwise_forward(q, k, v, torch.arange(sizes[2]), torch.arange(sizes[3]), tile, **rule)
        results.append({"out": out, "lse": lse, "after": [q, k, v], "ops": sorted(watched.operators)})
    return results


def verdict_blockwise(cases):
    got = launch(probe_blockwise, cases, ranks=None, timeout=20).value
    for (seed, sizes, scale, tile, rule), result in zip(cases, got, strict=True):
        what = f"blockwise_forward ({sizes[2]} queries, {sizes[3]} keys, tile {tile}, {rule})"
        attention.by_hand(result["ops"], what)
        q, k, v, up = inputs(seed, *sizes, scale=scale)
        want = dense(q, k, v, up, rule)
        unscaled = dense(q * math.sqrt(sizes[4]), k, v, up, rule)
        likes = {"scores were not divided by sqrt(D)": unscaled}
        everything = dense(q, k, v, up, {"causal": False})
        likes["later keys are seen: the mask is missing"] = everything
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(sizes[4])
        late = scores.softmax(-1) * visible(torch.arange(sizes[2]), torch.arange(sizes[3]), **rule)
        likes["masked after the softmax: the weights of a row no longer add up to 1"] = {"out": late @ v}
        shifted = visible(torch.arange(sizes[2]) - 1, torch.arange(sizes[3]), **rule)
        strict = scores.masked_fill(~shifted, -math.inf).softmax(-1).nan_to_num(0) @ v
        likes["a query must see its own key too"] = {"out": strict}
        cut = sizes[3] // tile * tile
        if cut:
            likes["the last tile, which is shorter, was left out"] = dense(q, k[:, :, :cut], v[:, :, :cut], up, rule)
        in_order(result, {name: want[name] for name in ("out", "lse")}, what, likes)
        check.unchanged(result["after"], [q, k, v], "blockwise_forward")


full, causal = {"causal": False}, {"causal": True}
verdict_blockwise([(200, (1, 2, 4, 4, 2), 1.0, 2, full), (205, (2, 1, 5, 5, 3), 1.0, 2, causal)])
### BEGIN HIDDEN TESTS
verdict_blockwise([(210, (2, 3, 13, 13, 4), 1.0, 4, causal), (215, (1, 2, 3, 11, 5), 1.0, 4, full)])
verdict_blockwise([(220, (1, 2, 9, 9, 2), 60.0, 2, causal), (225, (1, 1, 6, 6, 4), 1.0, 100, causal)])
verdict_blockwise([(230, (3, 1, 7, 7, 1), 1.0, 1, causal), (235, (1, 1, 1, 1, 8), 1.0, 3, causal)])
verdict_blockwise([(240, (1, 2, 11, 4, 5), 1.0, 3, full)])
### END HIDDEN TESTS

# %% test="blockwise_masks" points=1
def probe_masks(cases):
    results = []
    for seed, sizes, tile, rule, q_pos, k_pos in cases:
        q, k, v, _ = inputs(seed, *sizes)
        out, lse = blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule)
        results.append({"out": out, "lse": lse})
    return results


def verdict_masks(cases):
    for case in cases:  # positions by default: 0, 1, 2, ...
        case += [torch.arange(case[1][2]), torch.arange(case[1][3])] if len(case) == 4 else []
    got = launch(probe_masks, cases, ranks=None, timeout=20).value
    for (seed, sizes, tile, rule, q_pos, k_pos), result in zip(cases, got, strict=True):
        what = f"blockwise_forward (tile {tile}, {rule})"
        q, k, v, up = inputs(seed, *sizes)
        want = dense(q, k, v, up, rule, q_pos, k_pos)
        seen = visible(q_pos, k_pos, **rule).expand(sizes[0], sizes[1], -1, -1)
        some = seen.any(-1)
        where = {
            "a row's first tile is masked, and later ones are not": ~seen[..., :tile].any(-1) & some,
            "a row sees nothing at all": ~some,
        }
        for name in ("out", "lse"):
            no_nan(result[name], where, f"{what}, {name}")
        local = dense(q, k, v, up, rule)
        mean = torch.where(some[..., None], want["out"], v.mean(2, keepdim=True))
        likes = {
            "positions are those of the tensor's rows, not q_pos and k_pos": local,
            "a row that sees nothing must be 0 (here it is the mean of the values)": {"out": mean},
        }
        in_order(result, {name: want[name] for name in ("out", "lse")}, what, likes)


window, padded = {"causal": True, "window": 2}, {"causal": True, "pad": [0, 3]}
apart, causal_only = torch.tensor([0, 1, 6, 7]), {"causal": True}
verdict_masks([[250, (1, 2, 6, 6, 2), 2, window], [255, (2, 1, 5, 5, 2), 2, padded]])
verdict_masks([[260, (1, 1, 4, 4, 2), 2, causal_only, apart, torch.tensor([2, 3, 4, 5])]])
### BEGIN HIDDEN TESTS
both = {"causal": True, "window": 3, "pad": [4, 0, 9]}
verdict_masks([[270, (3, 2, 9, 9, 3), 2, both], [275, (1, 1, 8, 8, 2), 3, {"causal": False, "window": 2}]])
verdict_masks([[280, (2, 1, 7, 7, 2), 7, {"causal": False, "pad": [2, 7]}], [285, (2, 2, 6, 6, 2), 1, padded]])
verdict_masks([[290, (1, 2, 4, 6, 2), 3, {"causal": True, "window": 4}, apart, torch.tensor([2, 3, 4, 5, 8, 9])]])
verdict_masks([[295, (1, 1, 3, 3, 2), 2, causal_only, torch.tensor([0, 1, 2]), torch.tensor([7, 8, 9])]])
### END HIDDEN TESTS

# %% test="blockwise_precision" points=1
def probe_precision(cases):
    results = []
    for seed, sizes, tile, rule in cases:
        q, k, v, _ = (x.bfloat16() for x in inputs(seed, *sizes))
        out, lse = blockwise_forward(q, k, v, torch.arange(sizes[2]), torch.arange(sizes[3]), tile, **rule)
        results.append({"out": out, "lse": lse})
    return results


def verdict_precision(cases):
    got = launch(probe_precision, cases, ranks=None, timeout=20).value
    for (seed, sizes, tile, rule), result in zip(cases, got, strict=True):
        what = f"blockwise_forward of bf16 ({sizes[3]} keys, tile {tile})"
        q, k, v, up = (x.bfloat16().float() for x in inputs(seed, *sizes))
        want = dense(q, k, v, up, rule)
        for name in ("out", "lse"):
            if getattr(result[name], "dtype", None) is not torch.float32:
                raise check.CheckFailed(f"{what}: {name} has type {result[name].dtype}; sums and results are float32.")
        off = (result["lse"] - want["lse"]).abs().max().item() if result["lse"].shape == want["lse"].shape else 0
        if 1e-3 < off < 1.5:
            raise check.CheckFailed(
                f"{what}: lse is off by up to {off:.3g}. bf16 keeps 8 bits: a sum of ones in bf16 ends at 256. "
                "Take scores, exponentials and sums in float32."
            )
        in_order(result, {name: want[name] for name in ("out", "lse")}, what, atol=2e-5)


verdict_precision([(300, (1, 2, 40, 40, 4), 8, {"causal": True})])
### BEGIN HIDDEN TESTS
verdict_precision([(305, (1, 1, 8, 700, 4), 32, {"causal": False}), (310, (2, 1, 33, 33, 8), 100, {"causal": True})])
### END HIDDEN TESTS

# %% [markdown]
# ## blockwise_backward, blockwise_attention
#
# The backward pass has no weights to read, they were never kept. It computes them again, tile by tile, from
# the scores and the kept lse (Dao et al. 2022, section 3 and appendix B). With P = exp(scores - lse), which
# is the finished softmax, and dO the gradient of the output:
#
# $$\delta = \sum_d dO \cdot O, \quad dV = P^T dO, \quad dP = dO\, V^T, \quad dS = P \cdot (dP - \delta),
# \quad dQ = dS\, K / \sqrt D, \quad dK = dS^T Q / \sqrt D .$$
#
# `blockwise_backward(dout, q, k, v, out, lse, q_pos, k_pos, tile, **rule)` returns `(dq, dk, dv)`, float32.
# `out` and `lse` are those of the **whole** row, also where k and v are only some of the keys: this
# function then gives their share of dq, and their dk and dv. (Part 4 needs that.) Memory, work and
# precision as in the forward pass: five products for a tile pair, none where nothing is visible.
#
# `BlockwiseAttention` makes one differentiable function of the two: positions are 0, 1, 2, ...; it returns
# out in the type of q, and gradients in the types of q, k and v. Keep q, k, v, out and lse for the backward
# pass, and nothing else.
#
# *Example*, D = 1, one query 0, keys [0, 0], values [1, 3], dO = 1: P = [1/2, 1/2], O = 2, dV = [1/2, 1/2],
# dP = [1, 3], dS = [1/2 (1 - 2), 1/2 (3 - 2)] = [-1/2, 1/2].
#
# *Size:* about 25 lines together.

# %% solution="blockwise_backward"
def blockwise_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    q_pos: torch.Tensor,
    k_pos: torch.Tensor,
    tile: int,
    **rule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    scale = 1 / math.sqrt(q.shape[-1])
    dq, dk, dv = (torch.zeros(x.shape) for x in (q, k, v))
    delta = (dout.float() * out.float()).sum(-1, keepdim=True)
    lse = lse.masked_fill(lse == -math.inf, 0)[..., None]  # such a row sees nothing: its exponentials are 0
    for r in range(0, q.shape[2], tile):
        rows = slice(r, r + tile)
        query, grad = q[:, :, rows].float() * scale, dout[:, :, rows].float()
        for c in range(0, k.shape[2], tile):
            cols = slice(c, c + tile)
            seen = visible(q_pos[rows], k_pos[cols], **rule)
            if not seen.any():
                continue
            key, value = k[:, :, cols].float(), v[:, :, cols].float()
            scores = (query @ key.transpose(-1, -2)).masked_fill(~seen, -math.inf)
            weights = (scores - lse[:, :, rows]).exp()
            dv[:, :, cols] += weights.transpose(-1, -2) @ grad
            dscores = weights * (grad @ value.transpose(-1, -2) - delta[:, :, rows])
            dq[:, :, rows] += dscores @ key * scale
            dk[:, :, cols] += dscores.transpose(-1, -2) @ query
    return dq, dk, dv
    ### END SOLUTION


class BlockwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, tile, rule):
        ### BEGIN SOLUTION
        q_pos, k_pos = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        out, lse = blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.tile, ctx.rule = tile, rule
        return out
        ### END SOLUTION

    @staticmethod
    def backward(ctx, dout):  # one gradient for each argument of forward; those of tile and rule are None
        ### BEGIN SOLUTION
        q, k, v, out, lse = ctx.saved_tensors
        q_pos, k_pos = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        grads = blockwise_backward(dout, q, k, v, out, lse, q_pos, k_pos, ctx.tile, **ctx.rule)
        return *(grad.to(x.dtype) for grad, x in zip(grads, (q, k, v), strict=True)), None, None
        ### END SOLUTION


def blockwise_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tile: int, **rule) -> torch.Tensor:
    return BlockwiseAttention.apply(q, k, v, tile, rule)


# %% shared="gradient_help"
def parts_of(q, k, v, up, out, weights) -> dict:
    """The gradients that these softmax weights give, whatever they are."""
    inner = weights * (up @ v.transpose(-1, -2) - (up * out).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    grads = {"dq": inner @ k, "dk": inner.transpose(-1, -2) @ q, "dv": weights.transpose(-1, -2) @ up}
    return {name: grad.float() for name, grad in grads.items()}


def share(q, k, v, up, out, lse, rule, q_pos, k_pos) -> dict:
    """For oracles: some keys' share of the gradients, in float64, from a whole row's out and lse."""
    q, k, v, up, out, lse = (x.double() for x in (q, k, v, up, out, lse))
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~visible(q_pos, k_pos, **rule), -math.inf)
    weights = (scores - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
    return parts_of(q, k, v, up, out, weights)


def gradient_mistakes(q, k, v, up, rule: dict, tile: int) -> dict:
    """What known slips of the backward pass give: sentence -> "dq", "dk", "dv"."""
    q_pos, k_pos, root = torch.arange(q.shape[2]), torch.arange(k.shape[2]), math.sqrt(q.shape[-1])
    want = dense(q, k, v, up, rule)
    no_delta = share(q, k, v, up, torch.zeros_like(up), want["lse"], rule, q_pos, k_pos)
    scores = (q @ k.transpose(-1, -2) / root).masked_fill(~visible(q_pos, k_pos, **rule), -math.inf)
    by_tile = torch.cat([part.softmax(-1).nan_to_num(0) for part in scores.split(tile, -1)], -1)
    return {
        "delta = sum of dO * O was not subtracted": {"dq": no_delta["dq"], "dk": no_delta["dk"]},
        "dS was not divided by sqrt(D) again": {"dq": want["dq"] * root, "dk": want["dk"] * root},
        "the weights are a softmax over each tile; they must be exp(scores - lse), with the lse of the whole row":
            parts_of(q, k, v, up, want["out"], by_tile),
    }  # fmt: skip


# %% test="blockwise_gradients" points=1
def probe_gradients(cases, shares):
    results, parts = [], []
    for seed, sizes, tile, rule, dtype in cases:
        *leaves, up = (x.to(dtype) for x in inputs(seed, *sizes))
        leaves = [x.requires_grad_() for x in leaves]
        with Watched() as watched:
            for _ in range(2):  # the second pass adds the same gradients again
                out = blockwise_attention(*leaves, tile, **rule)
                out.backward(up)
        grads = {name: leaf.grad for name, leaf in zip(("dq", "dk", "dv"), leaves, strict=True)}
        results.append({"out": out.detach(), **grads, "ops": sorted(watched.operators)})
    for tensors, tile, rule, q_pos, k_pos in shares:
        q, k, v, up, out, lse = (x.clone() for x in tensors)
        dq, dk, dv = blockwise_backward(up, q, k, v, out, lse, q_pos, k_pos, tile, **rule)
        parts.append({"dq": dq, "dk": dk, "dv": dv})
    return results, parts


def share_case(seed, sizes, tile, rule, begin, end):
    """Tensors of a whole row, of which only keys begin..end-1 are there."""
    q, k, v, up = inputs(seed, *sizes)
    whole = dense(q, k, v, up, rule)
    own = [q, k[:, :, begin:end], v[:, :, begin:end], up, whole["out"], whole["lse"]]
    return [own, tile, rule, torch.arange(sizes[2]), torch.arange(begin, end)]


def verdict_gradients(cases, shares):
    got, parts = launch(probe_gradients, cases, shares, ranks=None, timeout=20).value
    for (seed, sizes, tile, rule, dtype), result in zip(cases, got, strict=True):
        what = f"blockwise_attention ({sizes[2]} queries, {sizes[3]} keys, tile {tile}, {rule}, {dtype})"
        attention.by_hand(result.pop("ops"), what)
        q, k, v, up = (x.to(dtype).float() for x in inputs(seed, *sizes))
        want = {name: x for name, x in dense(q, k, v, up, rule).items() if name != "lse"}
        likes = gradient_mistakes(q, k, v, up, rule, tile)
        likes = {cause: {name: 2 * x for name, x in slip.items()} for cause, slip in likes.items()}
        want = {name: (x if name == "out" else 2 * x).to(dtype) for name, x in want.items()}
        rtol, atol = (1e-4, 2e-5) if dtype is torch.float32 else (2e-2, 3e-2)
        for name in want:
            no_nan(result[name], {}, f"{what}, {name} (a row that sees nothing gives no gradient)")
        in_order(result, want, what, likes, rtol, atol)
    for (tensors, tile, rule, q_pos, k_pos), part in zip(shares, parts, strict=True):
        what = f"blockwise_backward with keys {k_pos[0]} to {k_pos[-1]} only (tile {tile}, {rule})"
        check.agree(part, share(*tensors, rule, q_pos, k_pos), what, rtol=1e-4, atol=2e-5)


float32, causal = torch.float32, {"causal": True}
verdict_gradients([(400, (1, 2, 5, 5, 2), 2, causal, float32)], [share_case(405, (1, 1, 4, 4, 2), 2, causal, 2, 4)])
### BEGIN HIDDEN TESTS
rule = {"causal": True, "window": 3, "pad": [4, 0]}
verdict_gradients(
    [
        (410, (2, 2, 9, 9, 3), 2, rule, float32),
        (415, (1, 1, 4, 11, 5), 3, {"causal": False}, float32),
        (420, (1, 2, 12, 12, 4), 5, causal, torch.bfloat16),
    ],
    [share_case(425, (2, 1, 9, 9, 2), 2, rule, 3, 7), share_case(430, (1, 2, 6, 9, 2), 4, {"causal": False}, 5, 9)],
)
### END HIDDEN TESTS

# %% [markdown]
# *Memory target:* the test takes a sequence whose scores alone are 16 MiB, and allows each pass less than
# half of that: room for six tiles as wide as all queries, and some tensors of the size of q.

# %% test="blockwise_memory" points=1
def probe_memory(seed, sizes, tile, rule):
    *leaves, up = inputs(seed, *sizes)
    leaves = [x.requires_grad_() for x in leaves]
    with LiveBytes([*leaves, up]) as live:
        before = live.now()
        out = blockwise_attention(*leaves, tile, **rule)
        live.mark("forward")
        out.backward(up)
        live.mark("backward")
    peaks = {name: peak - before for name, (_, peak) in live.marks.items()}
    return {**peaks, "held": live.marks["forward"][0] - before, "out": out.detach()}


def verdict_memory(seed, sizes, tile, rule):
    run = launch(probe_memory, seed, sizes, tile, rule, ranks=None, timeout=20, device="cpu")
    got, (batch, heads, queries, keys, dim) = run.value, sizes
    what, row = f"blockwise_attention of {keys} tokens", 4 * batch * heads * queries
    want = dense(*inputs(seed, *sizes), rule)
    check.agree(got["out"], want["out"], what, atol=1e-4)
    limit = 6 * row * tile + 16 * row * dim
    square = row * keys
    for name in ("forward", "backward"):
        if got[name] > limit:
            raise check.CheckFailed(
                f"{what}: {got[name] / 2**20:.1f} MiB at the peak of the {name} pass; {limit / 2**20:.1f} are enough. "
                f"All scores together are {square / 2**20:.0f}, a bool mask of them {square / 2**22:.0f}."
            )
    if got["held"] > 3 * row * dim + 2 * row:
        raise check.CheckFailed(
            f"{what}: {got['held']} bytes are held between the passes; out and lse are {row * (dim + 1)}. "
            "Keep the inputs, out and lse, and compute the rest again."
        )
    resident = run.peak_bytes[0]
    if resident > limit + 32 * 2**20:
        grown = f"{resident / 2**20:.0f} MiB"
        raise check.CheckFailed(f"{what}: the process grew by {grown}: something large lives outside of tensors.")


verdict_memory(440, (1, 1, 2048, 2048, 4), 128, {"causal": True})
### BEGIN HIDDEN TESTS
verdict_memory(445, (2, 1, 1280, 1280, 4), 100, {"causal": True, "window": 500})
### END HIDDEN TESTS

# %% test="blockwise_work" points=1
def probe_work(cases):
    results = []
    for seed, sizes, tile, rule in cases:
        *leaves, up = inputs(seed, *sizes)
        leaves = [x.requires_grad_() for x in leaves]
        with Watched() as watched:
            out = blockwise_attention(*leaves, tile, **rule)
            middle = len(watched.products)
            out.backward(up)
        results.append({"forward": watched.flops - watched.flops_from(middle), "backward": watched.flops_from(middle)})
    return results


def verdict_work(cases):
    got = launch(probe_work, cases, ranks=None, timeout=20).value
    for (_, (batch, heads, queries, keys, dim), tile, rule), flops in zip(cases, got, strict=True):
        seen = visible(torch.arange(queries), torch.arange(keys), **rule)
        needed = sum(
            rows.shape[2] * part.shape[3]
            for rows in seen.split(tile, 2)
            for part in rows.split(tile, 3)
            if part.any()
        )
        pair = 2 * batch * heads * dim  # FLOPs of one product for one query and one key
        for name, products in (("forward", 2), ("backward", 5)):
            causes = {"tiles in which nothing is visible were computed too": products * pair * queries * keys}
            what = f"blockwise_attention, {name} ({queries} tokens, tile {tile}, {rule})"
            attention.work(flops[name], products * pair * needed, what, causes, slack=1.1)


verdict_work([(450, (1, 2, 16, 16, 4), 4, {"causal": True})])
### BEGIN HIDDEN TESTS
verdict_work([(455, (1, 1, 50, 50, 2), 8, {"causal": True, "window": 9})])
verdict_work([(460, (2, 1, 21, 21, 3), 5, {"causal": True})])
verdict_work([(465, (1, 1, 12, 12, 2), 4, {"causal": False, "window": 3})])
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. A sequence on ranks
#
# *Context parallelism* (上下文并行) cuts the sequence: each rank has some of the tokens, for all layers. Norms,
# projections and feed-forwards do not notice. Three things do: attention (parts 4 and 5), positions, and
# the loss.
#
# ## zigzag_positions and shard_tokens
#
# With a causal mask the last tokens have the most to do. Cut into p pieces in order, the last of 4 ranks
# has 7 times the work of the first. *Zigzag* (之字形切分): cut into 2p chunks, rank r gets chunk r and chunk
# 2p-1-r, in this order.
#
# `zigzag_positions(seq, rank, ranks)` returns the positions of the rank's tokens, ascending (int64). Chunks
# are those of `tensor_split`: where 2p does not divide `seq` the first ones are one longer.
#
# `shard_tokens(tokens, rank, ranks)` cuts a batch `[B, S]` of token ids and returns a dictionary:
# `"inputs"` `[B, T]`, this rank's tokens; `"labels"` `[B, T]`, for each of them the token that **follows it
# in the whole sequence**, and -100 for the last of the sequence; `"positions"` `[T]`, where they stand in
# the whole sequence (what RoPE and masks must be told).
#
# *Example*, 8 tokens 10..17, p = 2: rank 0 has the positions [0, 1, 6, 7], inputs [10, 11, 16, 17], labels
# [11, 12, 17, -100]; rank 1 has [2, 3, 4, 5], labels [13, 14, 15, 16].
#
# *Size:* about 8 lines.

# %% solution="shard_tokens"
def zigzag_positions(seq: int, rank: int, ranks: int) -> torch.Tensor:
    ### BEGIN SOLUTION
    chunks = torch.arange(seq).tensor_split(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])
    ### END SOLUTION


def shard_tokens(tokens: torch.Tensor, rank: int, ranks: int) -> dict[str, torch.Tensor]:
    ### BEGIN SOLUTION
    positions = zigzag_positions(tokens.shape[1], rank, ranks)
    labels = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], -100)], 1)
    return {"inputs": tokens[:, positions], "labels": labels[:, positions], "positions": positions}
    ### END SOLUTION


# %% test="shard_layout" points=1
def probe_shard(cases):
    results = []
    for tokens, ranks in cases:
        shards = [{"zigzag": zigzag_positions(tokens.shape[1], r, ranks)} for r in range(ranks)]
        results.append([{**own, **shard_tokens(tokens.clone(), r, ranks)} for r, own in enumerate(shards)])
    return results


def verdict_shard(cases):
    got = launch(probe_shard, cases, ranks=None, timeout=20).value
    for (tokens, ranks), shards in zip(cases, got, strict=True):
        seq = tokens.shape[1]
        chunks = torch.arange(seq).tensor_split(2 * ranks)
        follows = torch.full_like(tokens, -100)
        follows[:, :-1] = tokens[:, 1:]
        for rank, shard in enumerate(shards):
            own = torch.cat([chunks[rank], chunks[-1 - rank]])
            what = f"{seq} tokens on {ranks} ranks, rank {rank}"
            plain = torch.arange(seq).tensor_split(ranks)[rank]
            check.outcome(shard["zigzag"], own, f"zigzag_positions, {what}", {
                "these are pieces in order, not zigzag": plain,
                "rank r has chunks r and r + p": torch.cat([chunks[rank], chunks[rank + ranks]]),
                "every 2p-th token, striped": torch.cat([torch.arange(rank, seq, 2 * ranks),
                                                         torch.arange(2 * ranks - 1 - rank, seq, 2 * ranks)]),
                "the second chunk is turned round": torch.cat([chunks[rank], chunks[-1 - rank].flip(0)]),
            }, rtol=0, atol=0)  # fmt: skip
            inputs_here = tokens[:, own]
            check.outcome(shard["inputs"], inputs_here, f"shard_tokens, inputs of {what}", {}, rtol=0, atol=0)
            inside = torch.full_like(inputs_here, -100)
            inside[:, :-1] = inputs_here[:, 1:]
            halves = follows[:, own].clone()
            halves[:, len(chunks[rank]) - 1] = -100
            halves[:, -1] = -100
            check.outcome(shard["labels"], follows[:, own], f"shard_tokens, labels of {what}", {
                "they were shifted after the cut, so the last token of a piece got another one's label": inside,
                "each chunk lost its last label: shift first, then cut": halves,
                "these are the inputs; each token's label is the next token": inputs_here,
            }, rtol=0, atol=0)  # fmt: skip
            check.outcome(shard["positions"], own, f"shard_tokens, positions of {what}", {
                "they begin at 0 on each rank, so tokens of different ranks seem to stand at one place":
                    torch.arange(len(own)),
            }, rtol=0, atol=0)  # fmt: skip


verdict_shard([(torch.arange(10, 18)[None], 2)])
### BEGIN HIDDEN TESTS
ids = torch.randint(100, (3, 37), generator=torch.Generator().manual_seed(5))
verdict_shard([(ids, 3), (ids[:, :13], 4), (ids[:1, :9], 1), (ids[:2, :24], 4), (ids[:, :7], 2)])
### END HIDDEN TESTS

# %% [markdown]
# ## split_tokens
#
# Where the embeddings have been computed for the whole sequence on every rank, they are cut now.
# `split_tokens(x)`: x `[B, S, H]` is replicated; returns this rank's `[B, T, H]`, at its
# `zigzag_positions`. Each rank goes on with its own tokens, and its loss is its own part of the loss. In
# the **backward** pass the gradient of x is the whole one, `[B, S, H]`, on every rank: whatever computed x
# is replicated too, and must take the same step everywhere.
#
# *Example*, S = 2, p = 1: the identity in both directions. S = 4, p = 2, H = 1: rank 0 has tokens 0 and 3.
# If gradients [1, 4] arrive there and [2, 3] on rank 1, the gradient of x is [1, 2, 3, 4] on both.
#
# *Size:* about 12 lines. Any collective will do.

# %% solution="split_tokens"
class SplitTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ### BEGIN SOLUTION
        ctx.shape = x.shape
        ctx.positions = zigzag_positions(x.shape[1], dist.get_rank(), dist.get_world_size())
        return x[:, ctx.positions]
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        whole = grad.new_zeros(ctx.shape)
        whole[:, ctx.positions] = grad
        dist.all_reduce(whole)
        return whole
        ### END SOLUTION


def split_tokens(x: torch.Tensor) -> torch.Tensor:
    return SplitTokens.apply(x)


# %% test="split_gradient" points=1
def probe_split(cases):
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, shape in cases:
        x, up = draw(seed, *shape).requires_grad_(), draw(seed + 1, *shape)
        positions = zigzag_positions(shape[1], rank, ranks)
        y = split_tokens(x)
        (y * up[:, positions]).sum().backward()
        results.append({"positions": positions, "out": y.detach(), "grad of x": x.grad})
    return results


def verdict_split(cases, ranks, delay=None):
    run = launch(probe_split, cases, ranks=ranks, timeout=20, delay=delay)
    for number, (seed, shape) in enumerate(cases):
        x, up = draw(seed, *shape), draw(seed + 1, *shape)
        every_token_once([value[number]["positions"] for value in run.values], shape[1], "split_tokens")
        for rank in range(ranks):
            got = dict(run.values[rank][number])
            own = got.pop("positions")
            here = torch.zeros_like(up)
            here[:, own] = up[:, own]
            alone = "it holds this rank's tokens only: the other ranks' gradients were not gathered"
            likes = {alone: {"grad of x": here}}
            likes["gathered in the order of ranks, not of positions"] = {
                "grad of x": torch.cat([up[:, value[number]["positions"]] for value in run.values], 1)
            }
            check.agree(
                got,
                {"out": x[:, own], "grad of x": up},
                f"split_tokens (p = {ranks}, rank {rank}, {shape[1]} tokens)",
                suspects={f"each of the {ranks} ranks counted it": float(ranks), "divided by p": 1 / ranks},
                resembles=likes,
            )


verdict_split([(500, (2, 8, 3))], 2)
### BEGIN HIDDEN TESTS
verdict_split([(505, (1, 13, 2)), (510, (2, 12, 1))], 3, delay={1: 0.02})
verdict_split([(515, (2, 17, 2))], 4)
verdict_split([(520, (1, 5, 2))], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## sequence_loss
#
# `sequence_loss(logits, labels)`: logits `[B, T, V]` and labels `[B, T]` of this rank's tokens; a label of
# -100 does not count. Returns the cross-entropy (交叉熵), averaged over **all labels that count on all
# ranks**: one number, the same on every rank. Each rank then calls `backward()` on it, and its logits must
# get the gradient that they would have in one process.
#
# Ranks have different numbers of labels, and a rank may have none at all (a long prompt, of which only the
# answer counts). At least one counts somewhere.
#
# *Example*, p = 2, with losses of single tokens 2 on rank 0, and 5, 6, 7 on rank 1: (2 + 5 + 6 + 7) / 4 =
# 5, where the mean of the ranks' means is 4. Each token's share of the gradient is 1/4.
#
# *Size:* about 6 lines.

# %% solution="sequence_loss"
def sequence_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    count = (labels != -100).sum()
    dist.all_reduce(count)
    own = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / count
    whole = own.detach().clone()
    dist.all_reduce(whole)
    return own + (whole - own.detach())
    ### END SOLUTION


# %% test="loss_mean" points=1
def probe_loss(cases):
    rank, results = dist.get_rank(), []
    for seed, vocabulary, labels in cases:
        own = labels[rank]
        logits = (3 * draw(seed + rank, *own.shape, vocabulary)).requires_grad_()
        loss = sequence_loss(logits, own.clone())
        loss.backward()
        results.append({"loss": loss.detach(), "grad of logits": logits.grad})
    return results


def labels_case(seed, vocabulary, batch, counts, per_rank):
    """Labels by rank, of which the first counts[rank] in each row count."""
    rows = []
    for rank, count in enumerate(counts):
        labels = torch.randint(vocabulary, (batch, per_rank), generator=torch.Generator().manual_seed(seed + rank))
        labels[:, count:] = -100
        rows.append(labels)
    return seed, vocabulary, rows


def verdict_loss(cases, ranks, delay=None):
    run = launch(probe_loss, cases, ranks=ranks, timeout=20, delay=delay)
    for number, (seed, vocabulary, labels) in enumerate(cases):
        logits = [(3 * draw(seed + r, *labels[r].shape, vocabulary)).requires_grad_() for r in range(ranks)]
        flat = torch.cat([x.flatten(0, 1) for x in logits])
        loss = F.cross_entropy(flat, torch.cat([x.flatten() for x in labels]))
        loss.backward()
        counts = [int((own != -100).sum()) for own in labels]
        means = [F.cross_entropy(x.detach().flatten(0, 1), y.flatten()) for x, y in zip(logits, labels, strict=True)]
        for rank in range(ranks):
            what = f"sequence_loss (p = {ranks}, rank {rank}; labels that count by rank: {counts})"
            got = run.values[rank][number]
            if counts[rank] == 0 and bool(got["loss"].isnan().any() | got["grad of logits"].isnan().any()):
                raise check.CheckFailed(f"{what}: NaN. This rank has no label that counts, and 0/0 is NaN.")
            likes = {
                "it is the mean of the ranks' means; a rank with few labels weighs as much as one with many": {
                    "loss": torch.stack(means).mean()
                },
                "it is the mean over this rank's own labels": {"loss": means[rank]},
                "it is this rank's part of the sum only": {
                    "loss": means[rank].nan_to_num(0) * counts[rank] / sum(counts)
                },
            }
            suspects = {f"each of the {ranks} ranks' backward passes counted it": float(ranks)}
            for k, count in enumerate(counts):
                if count and rank == k:
                    local = sum(counts) / count
                    suspects["divided by this rank's number of labels, not by that of all ranks"] = local
                    suspects["divided by this rank's number of labels, and by p"] = local / ranks
            check.agree({"loss": got["loss"]}, {"loss": loss.detach()}, what, resembles=likes)
            grads = {"grad of logits": got["grad of logits"]}, {"grad of logits": logits[rank].grad}
            check.agree(*grads, what, suspects=suspects)


verdict_loss([labels_case(530, 5, 1, [1, 4], 4)], 2)
### BEGIN HIDDEN TESTS
verdict_loss([labels_case(540, 7, 2, [0, 5, 2], 5), labels_case(550, 3, 1, [0, 0, 1], 2)], 3, delay={0: 0.02})
verdict_loss([labels_case(560, 4, 2, [3, 1, 0, 2], 3)], 4)
verdict_loss([labels_case(570, 6, 1, [2], 3)], 1)
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. Ring attention
#
# ## ring_attention
#
# Each rank holds q, k, v `[B, N, T, D]` of its own tokens: rank r those at `zigzag_positions(seq, r, p)`,
# where `seq` is the length of the whole sequence. T may differ by a few tokens from rank to rank.
#
# *Ring attention* (环形注意力; Liu et al. 2023): q stays; k and v travel. In each of p rounds a rank computes
# with the block that it has, merges the result into its own (`merge`), and passes the block on to its
# neighbour; after p-1 passes every rank has met every block. In the backward pass k and v travel again, and
# with each block travel its dk and dv: every rank adds its share, and after p passes they are home.
#
# `ring_attention(q, k, v, seq, tile, **rule)` returns out `[B, N, T, D]` in the type of q, and is
# differentiable: the gradients of q, k and v are those of this rank's tokens in one process. Inputs keep
# their values.
#
# - **Traffic:** by `isend`, `irecv` (or `batch_isend_irecv`) to one neighbour. Forward p-1 blocks of k and
#   v; backward p-1 blocks of k and v and p of dk and dv (float32).
# - **Overlap** (通信与计算重叠)**:** the transfer of the next block of k and v is started *before* the products
#   with the present one, and waited for after them, in both passes.
# - **Balance:** with a causal mask each rank computes about the same: S^2 / 2p of the S^2 / 2 score
#   pairs.
# - **Memory:** does not grow with p as long as T stays the same. So received blocks are not kept for the
#   backward pass. And nothing of the size T x T is held.
#
# *Example*, p = 2, D = 1, S = 4, causal, all scores 0, v = [1, 2, 3, 4]: rank 0 has tokens 0 and 3. With
# its own block, token 0 gets 1 (lse 0), token 3 gets (1 + 4)/2 (lse ln 2). From rank 1's block token 0 sees
# nothing, token 3 gets (2 + 3)/2 (lse ln 2). Merged: [1, 2.5].
#
# *Size:* about 50 lines. *Hints:* k and v of one block stacked into one message, which `start_pass` sends on;
# it returns the tensor that is being received, and the works. Sizes of other ranks' blocks follow from
# `zigzag_positions`. Do not write into a tensor that is still being sent. Wait for each work once: a second
# wait for a send never ends under gloo.

# %% solution="ring_attention"
def start_pass(x: torch.Tensor, length: int) -> tuple[torch.Tensor, list]:  # a helper: change it, or do without
    """Send x to the right and receive the left neighbour's, which has `length` tokens."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = x.new_empty(*x.shape[:3], length, x.shape[4])
    works = [dist.isend(x, (rank + 1) % ranks), dist.irecv(received, (rank - 1) % ranks)]
    return received, works
    ### END SOLUTION


def wait_all(works: list) -> None:
    for work in works:
        work.wait()


class RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, seq, tile, rule):
        ### BEGIN SOLUTION
        rank, ranks = dist.get_rank(), dist.get_world_size()
        positions = [zigzag_positions(seq, r, ranks) for r in range(ranks)]
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
            out, lse = part if out is None else merge(out, lse, *part)
            del part
            wait_all(works)
            if step < ranks - 1:
                kv = received
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.positions, ctx.tile, ctx.rule = positions, tile, rule
        return out
        ### END SOLUTION

    @staticmethod
    def backward(ctx, dout):
        ### BEGIN SOLUTION
        q, k, v, out, lse = ctx.saved_tensors
        rank, ranks, positions = dist.get_rank(), dist.get_world_size(), ctx.positions
        kv, dq, dkv_in, grad_works = torch.stack([k, v]), torch.zeros(q.shape), None, []
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
            where = (positions[rank], positions[source], ctx.tile)
            own_dq, *own = blockwise_backward(dout, q, kv[0], kv[1], out, lse, *where, **ctx.rule)
            dq += own_dq
            own = torch.stack(own)
            wait_all(grad_works)
            dkv = own if dkv_in is None else own + dkv_in
            if ranks > 1:  # the last pass brings them home
                dkv_in, grad_works = start_pass(dkv, len(positions[source - 1]))
            wait_all(works)
            if step < ranks - 1:
                kv = received
        wait_all(grad_works)
        dk, dv = dkv if ranks == 1 else dkv_in
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None
        ### END SOLUTION


def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq: int, tile: int, **rule) -> torch.Tensor:
    return RingAttention.apply(q, k, v, seq, tile, rule)


# %% shared="ring_help"
def ring_steps(attend, layout, cases: list, passes: int = 1, backward: bool = True) -> list[dict]:
    """On a rank: forward and backward of `attend` on the tokens that `layout(seq, rank, ranks)` gives it.

    A case is (seed, (B, N, S, D), tile, rule, dtype). Barriers stand before, between and after the passes.
    """
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    for seed, (batch, heads, seq, dim), tile, rule, dtype in cases:
        positions = layout(seq, rank, ranks)
        whole = inputs(seed, batch, heads, seq, seq, dim)
        *given, up = (x[:, :, positions].contiguous().to(dtype) for x in whole)
        leaves = [x.clone().requires_grad_() for x in given]
        with Watched() as watched:
            for _ in range(passes):
                dist.barrier()
                out = attend(*leaves, seq, tile, **rule)
                middle = len(watched.products)
                dist.barrier()
                if backward:
                    out.backward(up)
                dist.barrier()
        grads = {name: leaf.grad for name, leaf in zip(("dq", "dk", "dv"), leaves, strict=True)}
        flops = {"forward": watched.flops - watched.flops_from(middle), "backward": watched.flops_from(middle)}
        after = [leaf.detach() for leaf in leaves]
        what = {"positions": positions, "out": out.detach(), **grads, "after": after}
        results.append({**what, **flops, **watched.notes()})
    return results


def whole_case(case: tuple) -> tuple[list, dict]:
    """The tensors of a case in one process, rounded to its type, and what torch's attention makes of them."""
    seed, (batch, heads, seq, dim), _, rule, dtype = case
    tensors = [x.to(dtype).float() for x in inputs(seed, batch, heads, seq, seq, dim)]
    return tensors, dense(*tensors, rule)


# %% test="ring_values" points=1
def probe_ring(cases):
    return ring_steps(ring_attention, zigzag_positions, cases, backward=False)


def verdict_ring(cases, ranks, delay=None):
    run = launch(probe_ring, cases, ranks=ranks, timeout=20, delay=delay)
    for number, case in enumerate(cases):
        (q, k, v, up), want = whole_case(case)
        _, (_, _, seq, _), tile, rule, dtype = case
        positions = [value[number]["positions"] for value in run.values]
        what = f"ring_attention (p = {ranks}, {seq} tokens, tile {tile}, {rule}"
        every_token_once(positions, seq, f"{what})")
        for rank, own in enumerate(positions):
            got = run.values[rank][number]
            attention.by_hand(got["ops"], f"{what})")
            blocks = [
                dense(q[:, :, own], k[:, :, other], v[:, :, other], up[:, :, own], rule, own, other)
                for other in positions
            ]
            likes = {
                "it is attention to this rank's own block only": blocks[rank]["out"],
                "it is the sum of the blocks' results, without the weights of their log-sum-exps":
                    sum(block["out"] for block in blocks),
                "it is the mean of the blocks' results, without the weights of their log-sum-exps":
                    sum(block["out"] for block in blocks) / ranks,
            }  # fmt: skip
            rounds = list(range(len(own)))
            local = dense(q[:, :, own], torch.cat([k[:, :, o] for o in positions], 2), torch.cat([v[:, :, o] for o in
                          positions], 2), up[:, :, own], rule, torch.tensor(rounds),
                          torch.cat([torch.arange(len(o)) for o in positions]))  # fmt: skip
            likes["positions began at 0 in each block"] = local["out"]
            no_nan(got["out"], {}, f"{what}, rank {rank}): out, probably where a row sees nothing of a block")
            rtol, atol = (1e-4, 1e-5) if dtype is torch.float32 else (1e-2, 1e-2)
            check.agree(
                got["out"], want["out"][:, :, own].to(dtype), f"{what}, rank {rank})",
                resembles={cause: x.to(dtype) for cause, x in likes.items()}, rtol=rtol, atol=atol,
            )  # fmt: skip
            check.unchanged(got["after"], [x[:, :, own].to(dtype) for x in (q, k, v)], "ring_attention")


causal, float32 = {"causal": True}, torch.float32
verdict_ring([(600, (1, 2, 8, 3), 2, causal, float32), (605, (2, 1, 8, 2), 3, {"causal": False}, float32)], 2)
### BEGIN HIDDEN TESTS
uneven = (610, (2, 2, 19, 3), 4, causal, float32)
masked = (615, (2, 1, 17, 2), 3, {"causal": True, "window": 4, "pad": [0, 6]}, float32)
verdict_ring([uneven, masked, (620, (1, 1, 30, 4), 5, causal, torch.bfloat16)], 3, delay={1: 0.02})
verdict_ring([uneven, (625, (1, 2, 21, 2), 3, {"causal": False, "window": 5}, float32)], 4)
verdict_ring([uneven, masked], 1)
### END HIDDEN TESTS

# %% test="ring_gradients" points=1
def probe_ring_gradients(cases):
    return ring_steps(ring_attention, zigzag_positions, cases, passes=2)


def verdict_ring_gradients(cases, ranks, delay=None):
    run = launch(probe_ring_gradients, cases, ranks=ranks, timeout=20, delay=delay)
    for number, case in enumerate(cases):
        (q, k, v, up), want = whole_case(case)
        _, (_, _, seq, _), tile, rule, dtype = case
        positions = [value[number]["positions"] for value in run.values]
        every_token_once(positions, seq, "ring_attention")
        for rank, own in enumerate(positions):
            what = f"ring_attention, two passes (p = {ranks}, rank {rank}, {seq} tokens, tile {tile}, {rule})"
            got = {name: run.values[rank][number][name] for name in ("dq", "dk", "dv")}
            tensors = [x[:, :, own] for x in (q, k, v, up, want["out"], want["lse"][..., None])]
            alone = share(*tensors[:5], tensors[5][..., 0], rule, own, own)
            likes = {"it is only what this rank's own queries and keys give": {n: 2 * x for n, x in alone.items()}}
            for other, there in enumerate(positions):
                if other != rank and len(there) == len(own):
                    likes[f"these are the gradients of rank {other}'s tokens: the last pass brings them home"] = {
                        name: 2 * want[name][:, :, there] for name in ("dk", "dv")
                    }
            for name in got:
                no_nan(got[name], {}, f"{what}: {name}")
            rtol, atol = (1e-4, 3e-5) if dtype is torch.float32 else (2e-2, 5e-2)
            wanted = {name: (2 * want[name][:, :, own]).to(dtype) for name in got}
            check.agree(got, wanted, what, suspects={"divided by p": 1 / ranks, "p times": float(ranks)},
                        resembles=likes, rtol=rtol, atol=atol)  # fmt: skip


causal, float32 = {"causal": True}, torch.float32
verdict_ring_gradients([(630, (1, 2, 8, 3), 2, causal, float32)], 2)
### BEGIN HIDDEN TESTS
uneven = (635, (2, 2, 19, 3), 4, causal, float32)
masked = (640, (2, 1, 17, 2), 3, {"causal": True, "window": 4, "pad": [0, 6]}, float32)
verdict_ring_gradients([uneven, masked, (645, (1, 1, 30, 4), 5, causal, torch.bfloat16)], 3, delay={2: 0.02})
verdict_ring_gradients([(650, (1, 2, 21, 2), 3, {"causal": True, "window": 9}, float32)], 4)
verdict_ring_gradients([uneven], 1)
### END HIDDEN TESTS

# %% test="ring_traffic" points=1
def probe_ring_traffic(cases):
    steps = ring_steps(ring_attention, zigzag_positions, cases)
    return [{"out": step["out"], "positions": step["positions"]} for step in steps]


def verdict_ring_traffic(case, ranks):
    run = launch(probe_ring_traffic, [case], ranks=ranks, timeout=20)
    _, (batch, heads, seq, dim), _, rule, _ = case
    want, block = whole_case(case)[1], 2 * batch * heads * seq // ranks * dim * 4
    attention.around_the_ring(run.trace, f"ring_attention (p = {ranks})")
    for rank in range(ranks):
        got = run.values[rank][0]
        where = f"ring_attention (p = {ranks}, rank {rank})"
        check.agree(got["out"], want["out"][:, :, got["positions"]], where, atol=1e-5)
        forward, backward = attention.passes(run.trace, rank)[:2]
        limits = {"forward": (forward, ranks - 1), "backward": (backward, 2 * ranks - 1 if ranks > 1 else 0)}
        for name, (events, blocks) in limits.items():
            sent, received = sum(event.sent for event in events), sum(event.received for event in events)
            what = f"ring_attention (p = {ranks}), {name}, rank {rank}"
            if sent > blocks * block:
                extra = ": the last block need not be passed on" if sent == (blocks + 1) * block else ""
                raise check.CheckFailed(
                    f"{what}: sent {sent} bytes, {sent / block:.3g} blocks of k and v; {blocks} are enough{extra}."
                )
            if name == "forward" and received < blocks * block:
                raise check.CheckFailed(
                    f"{what}: {received} bytes came by messages; the {blocks} other blocks have {blocks * block}."
                )


verdict_ring_traffic((660, (1, 2, 8, 3), 2, {"causal": True}, torch.float32), 2)
### BEGIN HIDDEN TESTS
verdict_ring_traffic((665, (2, 1, 24, 2), 4, {"causal": True}, torch.float32), 3)
verdict_ring_traffic((670, (1, 2, 16, 4), 2, {"causal": False}, torch.float32), 4)
verdict_ring_traffic((675, (1, 1, 6, 2), 2, {"causal": True}, torch.float32), 1)
### END HIDDEN TESTS

# %% test="ring_overlap" points=1
def probe_ring_overlap(cases):
    steps = ring_steps(ring_attention, zigzag_positions, cases)
    return [{name: step[name] for name in ("out", "positions", "products", "anchor")} for step in steps]


def verdict_ring_overlap(case, ranks):
    run = launch(probe_ring_overlap, [case], ranks=ranks, timeout=20)
    _, (batch, heads, seq, dim), _, rule, _ = case
    want, block = whole_case(case)[1], 2 * batch * heads * seq // ranks * dim * 4
    for rank in range(ranks):
        got, what = run.values[rank][0], f"ring_attention (p = {ranks})"
        check.agree(got["out"], want["out"][:, :, got["positions"]], f"{what}, rank {rank}", atol=1e-5)
        attention.overlapped(run.trace, rank, got, [(ranks - 1) * block] * 2, what)


verdict_ring_overlap((680, (1, 2, 8, 3), 2, {"causal": False}, torch.float32), 2)
### BEGIN HIDDEN TESTS
verdict_ring_overlap((685, (2, 1, 24, 2), 4, {"causal": False}, torch.float32), 3)
verdict_ring_overlap((690, (1, 2, 16, 4), 2, {"causal": False}, torch.float32), 4)
### END HIDDEN TESTS

# %% test="ring_balance" points=1
def probe_ring_balance(cases):
    steps = ring_steps(ring_attention, zigzag_positions, cases)
    return [{name: step[name] for name in ("out", "positions", "forward", "backward")} for step in steps]


def verdict_ring_balance(case, ranks):
    run = launch(probe_ring_balance, [case], ranks=ranks, timeout=20)
    _, (batch, heads, seq, dim), tile, rule, _ = case
    want, seen = whole_case(case)[1], visible(torch.arange(seq), torch.arange(seq), **rule)[0, 0]
    pairs, last = int(seen.sum()), int(seen.tensor_split(ranks)[-1].sum())
    for rank in range(ranks):
        got, what = run.values[rank][0], f"ring_attention (p = {ranks}, {seq} tokens, tile {tile})"
        check.agree(got["out"], want["out"][:, :, got["positions"]], f"{what}, rank {rank}", atol=1e-5)
    for name, products in (("forward", 2), ("backward", 5)):
        flops = [value[0][name] for value in run.values]
        busiest = max(range(ranks), key=flops.__getitem__)
        unit = products * 2 * batch * heads * dim
        causes = {
            "this is what the last rank has where the sequence is cut in order": unit * last,
            "blocks and tiles in which nothing is visible were computed too": unit * seq * seq // ranks,
        }
        need, shares = unit * pairs // ranks, [round(n / (unit * pairs), 2) for n in flops]
        what = f"{what.split('), ')[0]}, {name}, rank {busiest} (shares of the needed work: {shares})"
        attention.work(flops[busiest], need, what, causes, slack=1.3)


verdict_ring_balance((700, (1, 1, 64, 4), 8, {"causal": True}, torch.float32), 2)
### BEGIN HIDDEN TESTS
verdict_ring_balance((705, (1, 2, 120, 2), 10, {"causal": True}, torch.float32), 3)
verdict_ring_balance((710, (1, 1, 192, 2), 12, {"causal": True}, torch.float32), 4)
### END HIDDEN TESTS

# %% test="ring_memory" points=1
def probe_ring_memory(case):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    seed, (batch, heads, seq, dim), tile, rule, _ = case
    positions = zigzag_positions(seq, rank, ranks)
    *leaves, up = (x[:, :, positions].contiguous() for x in inputs(seed, batch, heads, seq, seq, dim))
    leaves = [x.requires_grad_() for x in leaves]
    with LiveBytes([*leaves, up]) as live:
        before = live.now()
        out = ring_attention(*leaves, seq, tile, **rule)
        live.mark("forward")
        out.backward(up)
        live.mark("backward")
    peaks = {name: peak - before for name, (_, peak) in live.marks.items()}
    held = live.marks["forward"][0] - before
    return {**peaks, "held": held, "out": out.detach(), "positions": positions}


def verdict_ring_memory(seed, batch, heads, tokens, dim, tile, worlds):
    """The same number of tokens on each rank, on more and more ranks."""
    peaks, unit = {}, batch * heads * tokens * dim * 4
    for ranks in worlds:
        case = (seed, (batch, heads, tokens * ranks, dim), tile, {"causal": True}, torch.float32)
        run = launch(probe_ring_memory, case, ranks=ranks, timeout=20, device="cpu")
        want, what = whole_case(case)[1], f"ring_attention (p = {ranks}, {tokens} tokens on each rank)"
        for rank, got in enumerate(run.values):
            own = want["out"][:, :, got["positions"]]
            check.agree(got["out"], own, f"{what}, rank {rank}", rtol=1e-3, atol=1e-4)
            if got["held"] > (1.5 + 2 / dim) * unit + 8 * tokens * ranks**2:
                raise check.CheckFailed(
                    f"{what}: {got['held'] / unit:.1f} times q's bytes are held for the backward pass besides q, k, v; "
                    f"out and lse are {1 + 1 / dim:.1f}. Blocks that came round travel again, they are not kept."
                )
        peaks[ranks] = {name: max(value[name] for value in run.values) / unit for name in ("forward", "backward")}
        for name, peak in peaks[ranks].items():
            square = tokens / dim
            if peak > 2 * square:
                raise check.CheckFailed(
                    f"{what}: at the peak of the {name} pass {peak:.1f} times q's bytes; T x T is {square:.0f}."
                )
    fewest, most = worlds[0], worlds[-1]
    for name in ("forward", "backward"):
        grown, more = peaks[most][name] - peaks[fewest][name], most - fewest
        if grown > 1.5 * more:
            raise check.CheckFailed(
                f"ring_attention: the peak of the {name} pass is {peaks[fewest][name]:.1f} times q's bytes on {fewest} "
                f"ranks and {peaks[most][name]:.1f} on {most}, with as many tokens on each. k and v of {more} more "
                f"ranks are {2 * more} times q's bytes: blocks that passed by are kept."
            )


verdict_ring_memory(720, 1, 16, 96, 4, 32, [3, 5])
### BEGIN HIDDEN TESTS
verdict_ring_memory(725, 4, 3, 90, 4, 30, [4])
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. All-to-all attention
#
# ## all_to_all_attention
#
# The other way to split (Jacobs et al. 2023, DeepSpeed-Ulysses): heads do not talk to each other. One
# all-to-all (全互换) turns "all heads of my tokens" into "my heads of all tokens", attention needs nothing
# from anybody, a second one turns the result back.
#
# `all_to_all_attention(q, k, v, seq, tile, **rule)` takes and returns what `ring_attention` does, and is
# differentiable. N is a multiple of p; rank r computes heads r N/p to (r+1) N/p - 1. T may differ between
# ranks.
#
# *Traffic:* q, k, v out and the result back: (p-1)/p of each, 4 in all forward and 4 backward. The ring
# passes 2(p-1) forward and 2(p-1) + 2p backward, in units of q's bytes.
#
# *Example*, p = 2, N = 2, S = 4: before, rank 0 has both heads of tokens 0 and 3. After the first exchange
# it has head 0 of tokens 0, 1, 2, 3, in order.
#
# *Size:* about 25 lines. `dist.all_to_all_single` takes uneven splits of its flat buffers.

# %% solution="all_to_all_attention"
def swapped(x: torch.Tensor, seq: int, to_tokens: bool) -> torch.Tensor:  # a helper: change it, or do without
    """[B, N, T, D] of this rank's tokens to [B, N/p, S, D] of its heads, or back."""
    ### BEGIN SOLUTION
    rank, ranks = dist.get_rank(), dist.get_world_size()
    positions = [zigzag_positions(seq, r, ranks) for r in range(ranks)]
    parts = x.chunk(ranks, 1) if to_tokens else [x[:, :, own] for own in positions]
    heads = x.shape[1] // ranks if to_tokens else x.shape[1]
    lengths = [len(positions[r] if to_tokens else positions[rank]) for r in range(ranks)]
    shapes = [(x.shape[0], heads, length, x.shape[3]) for length in lengths]
    sizes = [math.prod(shape) for shape in shapes]
    received, sent = x.new_empty(sum(sizes)), torch.cat([part.flatten() for part in parts])
    dist.all_to_all_single(received, sent, sizes, [part.numel() for part in parts])
    got = [piece.view(shape) for piece, shape in zip(received.split(sizes), shapes, strict=True)]
    if not to_tokens:
        return torch.cat(got, 1)
    whole = x.new_empty(x.shape[0], heads, seq, x.shape[3])
    for own, piece in zip(positions, got, strict=True):
        whole[:, :, own] = piece
    return whole
    ### END SOLUTION


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seq, to_tokens):
        ### BEGIN SOLUTION
        ctx.seq, ctx.to_tokens = seq, to_tokens
        return swapped(x, seq, to_tokens)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, grad):
        ### BEGIN SOLUTION
        return swapped(grad, ctx.seq, not ctx.to_tokens), None, None
        ### END SOLUTION


def all_to_all_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seq: int, tile: int, **rule
) -> torch.Tensor:
    ### BEGIN SOLUTION
    q, k, v = (Swap.apply(x, seq, True) for x in (q, k, v))
    return Swap.apply(blockwise_attention(q, k, v, tile, **rule), seq, False)
    ### END SOLUTION


# %% test="all_to_all_step" points=1
def probe_all_to_all(cases):
    return ring_steps(all_to_all_attention, zigzag_positions, cases)


def verdict_all_to_all(cases, ranks, delay=None):
    run = launch(probe_all_to_all, cases, ranks=ranks, timeout=20, delay=delay)
    for number, case in enumerate(cases):
        want = whole_case(case)[1]
        _, (batch, heads, seq, dim), tile, rule, _ = case
        positions = [value[number]["positions"] for value in run.values]
        every_token_once(positions, seq, "all_to_all_attention")
        order = torch.cat(positions)
        for rank, own in enumerate(positions):
            what = f"all_to_all_attention (p = {ranks}, rank {rank}, {seq} tokens, {heads} heads, {rule})"
            got = {name: run.values[rank][number][name] for name in ("out", "dq", "dk", "dv")}
            attention.by_hand(run.values[rank][number]["ops"], what)
            (q, k, v, up), _ = whole_case(case)
            mixed = dense(*(x[:, :, order] for x in (q, k, v, up)), rule)["out"]
            places = torch.empty_like(order)
            places[order] = torch.arange(seq)
            likes = {"tokens stand in the order of ranks, and the mask takes them for positions 0, 1, 2, ...": {
                "out": mixed[:, :, places][:, :, own]}}  # fmt: skip
            in_order(got, {name: want[name][:, :, own] for name in got}, what, likes, atol=3e-5)
            own_passes = attention.passes(run.trace, rank)[3 * number :]
            for name, events in zip(("forward", "backward"), own_passes, strict=False):
                sent = sum(event.sent for event in events)
                most = max(len(there) for there in positions)
                limit = 4 * batch * heads * dim * 4 * most * (ranks - 1) // ranks
                if sent > limit:
                    used = sorted({event.op for event in events if event.sent})
                    raise check.CheckFailed(
                        f"{what}: sent {sent} bytes in the {name} pass ({', '.join(used)}); {limit} are enough: "
                        "(p-1)/p of four tensors of q's size."
                    )


causal = {"causal": True}
verdict_all_to_all([(740, (1, 2, 8, 3), 2, causal, torch.float32)], 2)
### BEGIN HIDDEN TESTS
padded = {"causal": True, "window": 5, "pad": [3, 0]}
verdict_all_to_all([(745, (2, 6, 19, 2), 4, padded, torch.float32), (750, (1, 3, 12, 2), 3, causal, torch.float32)], 3)
verdict_all_to_all([(755, (1, 8, 21, 3), 4, {"causal": False}, torch.float32)], 4, delay={3: 0.02})
verdict_all_to_all([(760, (1, 3, 7, 2), 2, causal, torch.float32)], 1)
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It measures the peak of live bytes of one step, forward and backward, against
# the sequence length: attention that holds all scores, yours in blocks, and your ring on 4 ranks (on one of
# them). *Before you run it: which curve has slope 2 in this picture? A rank of the ring holds a quarter of the
# tokens, but also what is on its way; how far apart will the other two be?*


# %%
def whole_attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


def peak_of_step(kind, seq, tile):
    own = zigzag_positions(seq, dist.get_rank(), dist.get_world_size())
    *parts, up = (x[:, :, own].contiguous() for x in inputs(1, 1, 1, seq, seq, 16))
    leaves = [part.requires_grad_() for part in parts]
    with LiveBytes([*leaves, up]) as live:
        if kind == "ring":
            out = ring_attention(*leaves, seq, tile)
        else:
            out = blockwise_attention(*leaves, tile) if kind == "blockwise" else whole_attention(*leaves)
        out.backward(up)
    return live.peak()


def measure_and_plot(lengths=(256, 512, 1024, 2048), tile=64):
    import matplotlib.pyplot as plt

    ax = plt.subplots(figsize=(6, 3.6), layout="constrained")[1]
    for kind, ranks, color, marker in (
        ("all scores", 1, "#D55E00", "s"), ("blockwise", 1, "#0072B2", "o"), ("ring", 4, "#009E73", "^"),
    ):  # fmt: skip
        peaks = [launch(peak_of_step, kind, seq, tile, ranks=ranks, timeout=30, device="cpu").value for seq in lengths]
        print(f"{kind:>10}, p = {ranks}:", *(f"{peak / 2**20:7.2f} MiB" for peak in peaks))
        style = {"marker": marker, "color": color, "label": f"{kind}, p = {ranks}"}
        ax.loglog(lengths, [peak / 2**20 for peak in peaks], base=2, **style)
    ax.set(xlabel="tokens S in the whole sequence", ylabel="MiB on one rank", title="peak of one step, with q, k and v")
    ax.set_xticks(lengths, [str(n) for n in lengths])
    ax.grid(True, color="#E5E5E5")
    ax.legend(frameon=False, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    plt.show()


measure_and_plot()

# %% [markdown]
# # Part 6. Questions
#
# ## questions
#
# The visible tests show only whether your answer has the right form. Return one dictionary.
#
# *The lecture's example*: after the first block a row has m = 3, l = 2 and u = 6. The second block has one
# key, with the score 3 + ln 2 and the value 9.
#
# - `"shrink"`: by what are the old l and u multiplied? `"l"`, `"u"`, `"out"`: the new l, the new u, the
#   output.
#
# *Traffic*, forward pass of one layer: p = 8 ranks, B = 1, S = 65536 tokens, N D = 1024 (as many key-value
# heads as heads), bf16.
#
# - `"ring_bytes"`, `"all_to_all_bytes"`: what does each rank send, in bytes, in the ring and with
#   all-to-all attention?
# - `"ring_rounds"`: how often does a rank pass a block of k and v on?
#
# *Balance*, causal, 4 ranks, the diagonal neglected:
#
# - `"in_order_share"`, `"zigzag_share"`: the last rank's share of all score pairs, with the sequence cut in
#   order, and in zigzag.
#
# *One letter for each*:
#
# `"not_additive"`: why can the softmax results of the blocks not simply be added?
#
# - A: rounding errors of the blocks would add up.
# - B: each block's softmax adds up to 1 by itself, but the whole row's denominator depends on the scores of
#   all blocks; the earlier sums must be rescaled to a common maximum first.
# - C: the blocks' values have different lengths.
# - D: the maximum of a block may be negative.
#
# `"ring_remains"`: the sequence is cut already; why does the ring's traffic not vanish?
#
# - A: every query still has to meet the keys and values of the whole sequence, so all blocks must visit all
#   ranks; placing them differently changes the memory, not that need.
# - B: because q has to be sent as well.
# - C: the gradients of the weights must be averaged in each round.
# - D: only because of the causal mask; without it nothing would be sent.
#
# `"heads_limit"`: what limits all-to-all attention that does not limit the ring?
#
# - A: it needs a causal mask.
# - B: it cannot be differentiated.
# - C: it sends more bytes for every p.
# - D: it cannot use more ranks than there are (key-value) heads to deal out.
#
# `"overlap"`: when does the ring's traffic cost no time?
#
# - A: never; bytes always cost time.
# - B: if a block's products take longer than the next block's transfer, which is started before them.
# - C: if p is even.
# - D: if k and v travel in one message.

# %% solution="questions"
def questions() -> dict:
    ### BEGIN SOLUTION
    return {
        "shrink": 0.5,
        "l": 2,
        "u": 12,
        "out": 6,
        "ring_bytes": 2 * 7 * 65536 // 8 * 1024 * 2,
        "all_to_all_bytes": 4 * 7 * 65536 // 8 * 1024 * 2 // 8,
        "ring_rounds": 7,
        "in_order_share": 7 / 16,
        "zigzag_share": 1 / 4,
        "not_additive": "B",
        "ring_remains": "A",
        "heads_limit": "D",
        "overlap": "B",
    }
    ### END SOLUTION


# %% test="question_values" points=1
answer = check.answer(launch(lambda: questions(), ranks=None, timeout=20).value, "questions")
for key in ("shrink", "l", "u", "out", "in_order_share", "zigzag_share"):
    check.has_number(answer, key, "questions")
for key in ("ring_bytes", "all_to_all_bytes", "ring_rounds"):
    check.has_number(answer, key, "questions")
for key in ("not_additive", "ring_remains", "heads_limit", "overlap"):
    check.has_letter(answer, key, "ABCD", "questions")
### BEGIN HIDDEN TESTS
scores, values = torch.tensor([3.0, 3.0, 3 + math.log(2)]).double(), torch.tensor([2.0, 4.0, 9.0]).double()
top = scores.max()
check.number(answer["shrink"], math.exp(3 - top), "shrink", "times", rel=1e-3)
check.number(answer["l"], (scores - top).exp().sum().item(), "l", "", rel=1e-3)
check.number(answer["u"], ((scores - top).exp() @ values).item(), "u", "", rel=1e-3)
check.number(answer["out"], (scores.softmax(0) @ values).item(), "out", "", rel=1e-3)
tensor = 65536 // 8 * 1024 * 2  # bytes of q, k or v on one rank
check.number(answer["ring_bytes"], 2 * 7 * tensor, "ring_bytes", "bytes")
check.number(answer["all_to_all_bytes"], 4 * 7 / 8 * tensor, "all_to_all_bytes", "bytes")
wanted_answers = {"ring_rounds": 7, "not_additive": "B", "ring_remains": "A", "heads_limit": "D", "overlap": "B"}
check.answers_agree(answer, wanted_answers, "questions")
check.number(answer["in_order_share"], (2 * 4 - 1) / 4**2, "in_order_share", "of all", rel=1e-2)
check.number(answer["zigzag_share"], 1 / 4, "zigzag_share", "of all", rel=1e-2)
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - A softmax over a stream needs a maximum, a denominator and a weighted sum; a new maximum rescales the
#   other two. Partial results merge by their log-sum-exps.
# - Attention never needs its S x S matrix: the forward pass keeps out and lse, the backward pass computes
#   the weights again. The FLOPs stay; the bytes go.
# - A masked row, or a masked first tile, is where -inf - (-inf) waits.
# - On ranks, labels are shifted before the cut, positions are those of the whole sequence, and the loss is
#   divided by the labels of all ranks.
# - The ring needs every block to visit every rank: the traffic stays, but it can hide behind the products.
#   Zigzag makes those equal. All-to-all sends less, on as many ranks as there are heads.
