"""The tensors of the model's file as they lie there, in blocks, for whoever wants to unpack them by hand.

Q4_1 keeps 32 weights in a block of 20 bytes, Q8_0 in one of 34; F32 is plain float32. Names and the order of rows are
the file's own. Left out: other kinds of blocks (the engine's `ModelFile` knows them all, and puts rows in order).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch

from utils.engine.files import ModelFile
from utils.models import DecoderConfig

KINDS = {0: ("F32", 4, 1), 3: ("Q4_1", 20, 32), 8: ("Q8_0", 34, 32)}  # bytes of a block, weights in it


@dataclass(frozen=True)
class RawTensor:
    """One tensor of a file: its kind, the shape it unpacks to, rows first, and its blocks, uint8 [n, bytes of a block].

    Blocks lie in the order of the weights, row after row. A tensor of kind F32 is a single block with all its bytes.
    """

    kind: str
    shape: tuple[int, ...]
    blocks: torch.Tensor


def read_raw(layers: int | None = None, vocab_size: int | None = None) -> dict[str, RawTensor]:
    """The tensors of the first `layers` layers (of all with None), and those of no layer, by the file's names.

    With `vocab_size`, only so many rows of the embedding. Raises ModelMissing where there is no file.

    >>> tensors = read_raw(layers=1)   # doctest: +SKIP
    >>> tensors["blk.0.attn_q.weight"].kind, tensors["blk.0.attn_q.weight"].shape   # doctest: +SKIP
    ('Q4_1', (576, 576))
    """
    table, found = ModelFile().table, {}
    for name, place in table.tensors.items():
        if layers is not None and name.startswith("blk.") and int(name.split(".")[1]) >= layers:
            continue
        rows = vocab_size if name == "token_embd.weight" and vocab_size else place.shape[0]
        shape = (rows, *place.shape[1:])
        if place.kind not in KINDS:
            raise ValueError(f"{name} is in blocks of kind {place.kind}; known are {sorted(KINDS)}")
        kind, width, weights = KINDS[place.kind]
        size = math.prod(shape) // weights * width
        data = torch.from_numpy(table.bytes_of(name, size).copy())
        found[name] = RawTensor(kind, shape, data.view(-1, width if weights > 1 else size))
    return found


@cache
def model_config(layers: int | None = None, vocab_size: int | None = None) -> DecoderConfig:
    """The sizes that the file states; with `layers` and `vocab_size`, of the model cut as `read_raw` cuts it.

    >>> model_config(layers=2).heads   # doctest: +SKIP
    9
    """
    config = ModelFile().config
    return replace(config, layers=layers or config.layers, vocab_size=vocab_size or config.vocab_size)
