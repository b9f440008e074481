"""The model's file: found without importing its package, its table and its tensors held to the `gguf` library's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from utils.engine import ModelFile, ModelMissing, Packed, model_path
from utils.engine.files import PACKAGE, halves_together
from utils.engine.table import Table
from utils.models import apply_rope

needs_model = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="needs the pretrained model: run `make model`"
)


@pytest.fixture(scope="module")
def file() -> ModelFile:
    return ModelFile()


@pytest.fixture(scope="module")
def library():
    from gguf import GGUFReader

    return GGUFReader(model_path())


def test_a_missing_model_is_said_in_one_sentence(monkeypatch) -> None:
    monkeypatch.setattr("utils.engine.files.PACKAGE", "no_such_package")
    with pytest.raises(ModelMissing, match=r"^The pretrained model is missing: run `make model`.* once\.$"):
        model_path()


def test_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF\x02\0\0\0" + bytes(40))
    with pytest.raises(ValueError, match=r"version 2; GGUF version 3 is read"):
        Table(other)


@needs_model
def test_the_package_is_found_and_not_imported() -> None:
    assert model_path().is_file()
    assert PACKAGE not in sys.modules


@needs_model
@pytest.mark.heavy
def test_every_value_of_the_table_is_the_librarys(file: ModelFile, library) -> None:
    theirs = {name: field.contents() for name, field in library.fields.items() if not name.startswith("GGUF.")}
    assert file.table.values == theirs


@needs_model
@pytest.mark.heavy
def test_every_tensor_is_the_librarys_to_the_bit(file: ModelFile, library) -> None:
    from gguf.quants import dequantize

    mine = {
        "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj",
        "blk.29.ffn_down.weight": "model.layers.29.mlp.down_proj",
        "blk.7.ffn_gate.weight": "model.layers.7.mlp.gate_proj", "token_embd.weight": "model.embed_tokens",
        "blk.3.attn_output.weight": "model.layers.3.self_attn.o_proj",
    }  # fmt: skip
    tensors = {tensor.name: tensor for tensor in library.tensors}
    assert len(tensors) == len(file.table.tensors)
    for name, own in mine.items():
        theirs = dequantize(tensors[name].data, tensors[name].tensor_type)
        assert np.array_equal(file.packed(own).float().numpy(), theirs), name
    for name, tensor in tensors.items():
        assert file.table.bytes_of(name, tensor.n_bytes).tobytes() == tensor.data.tobytes(), name
    assert np.array_equal(file.vector("model.norm").numpy(), tensors["output_norm.weight"].data)


@needs_model
def test_cut_rows_and_columns_decode_to_the_pieces(file: ModelFile) -> None:
    packed = file.packed("model.layers.0.mlp.down_proj")
    whole = packed.float()
    assert packed.shape == (576, 1536) and whole.shape == packed.shape
    assert torch.equal(packed.columns(512, 1024).float(), whole[:, 512:1024])
    assert torch.equal(packed.with_data(packed.data[100:103]).float(), whole[100:103])
    with pytest.raises(ValueError, match="500 to 1000 cut a block"):
        packed.columns(500, 1000)


def test_a_zero_block_is_zero() -> None:
    assert not Packed(torch.zeros(2, 40, dtype=torch.uint8), "Q4_1", 32, 20).float().any()


def test_rows_are_put_so_that_rotating_halves_is_rotating_neighbours() -> None:
    """The same scores, whichever of two elements make a pair: neighbours in the file, halves here."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(8, 5, generator=generator) for _ in "qk")  # two heads of 4 rows, as in a file
    x, y = torch.randn(2, 5, generator=generator)
    position = torch.tensor([3])

    def neighbours(rows: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(rows.view(2, 2, 2).contiguous())  # [heads, pairs]
        angles = 3 * 10000.0 ** (-torch.arange(2) / 2)
        return torch.view_as_real(pairs * torch.polar(torch.ones(2), angles)).view(2, 4)

    here = [apply_rope((halves_together(w, 2) @ z).view(2, 1, 4), position)[:, 0] for w, z in ((q, x), (k, y))]
    there = [neighbours(w @ z) for w, z in ((q, x), (k, y))]
    torch.testing.assert_close((here[0] * here[1]).sum(-1), (there[0] * there[1]).sum(-1))
