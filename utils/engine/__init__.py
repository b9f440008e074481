"""The course's own serving engine: a pretrained model, its tokenizer, and what serves it.

    from utils.engine import ModelFile, Tokenizer

    file = ModelFile()                            # ModelMissing says how to get it
    file.config                                   # a DecoderConfig: 30 layers, hidden 576, 9 heads, 3 KV heads, ...
    file.packed("model.layers.0.self_attn.q_proj").float()    # a matrix [out, in], decoded; names as in transformers
    file.vector("model.norm")                     # a norm's weights
    tokenizer = Tokenizer(file)
    tokenizer.decode(tokenizer.encode("The capital of France is"))
"""

from __future__ import annotations

from utils.engine.files import ModelFile, ModelMissing, Packed, model_path
from utils.engine.tokenizer import Stream, Tokenizer

__all__ = ["ModelFile", "ModelMissing", "Packed", "Stream", "Tokenizer", "model_path"]
