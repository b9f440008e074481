"""The course's own serving engine: a pretrained model, its tokenizer, and what serves it, over 1 or 3 ranks.

The file and the tokenizer:

    file = ModelFile()                            # ModelMissing says how to get it
    file.config                                   # a DecoderConfig: 30 layers, hidden 576, 9 heads, 3 KV heads, ...
    file.packed("model.layers.0.self_attn.q_proj").float()    # a matrix [out, in], decoded; names as in transformers
    file.packed(...).data                         # its blocks as they lie, bytes [rows, bytes of a row]
    file.vector("model.norm")                     # a norm's weights
    tokenizer = Tokenizer(file)                   # encode, decode, chat(messages)

The model, called as `utils.models.Decoder` is, so a cache that serves one serves the other:

    model = Model(file)                           # one process, or inside a launch: this rank's share
    model(tokens, positions, attention)           # tokens [B, S] -> logits [B, S, V] on every rank

The engine, on every rank of a launch (or in one process):

    def serve(prompts, parts):                    # parts: what replaces the course's own, see below
        engine = Engine(Model(parts=parts), Limits(num_blocks=64))
        return engine.generate([Request(i, prompt, max_new=20) for i, prompt in enumerate(prompts)])
    launch(serve, prompts, parts, ranks=3).value  # {id: tokens}

or step by step, rank 0 with `add`, `cancel`, `step`, `idle`, `stop`, the others with `follow`.

`Parts` names what can be replaced, by functions and classes of the same names and signatures as in labs 06
(column_linear, row_linear, vocab_embedding, shard_qkv, shard_gate_up), 08 (gqa_attention, next_token_probabilities) and
09 (paged_attention, block_manager=BlockManager, scheduler=Scheduler). What is None is the course's own.
Functions of lab 06 talk to a process group, so they need a launch; lab 08's `KVCache(model.share, batch, capacity)` and
`generate(model, prompts, max_new_tokens, eos)`, and lab 09's `Engine(model, KVBlocks(model.share, ...), scheduler)`
take a `Model` as it is.
"""

from __future__ import annotations

from utils.engine.attention import PagedAttention
from utils.engine.blocks import BlockManager, PagedCache
from utils.engine.engine import Engine, Limits
from utils.engine.files import ModelFile, ModelMissing, Packed, model_path
from utils.engine.model import Model
from utils.engine.parts import Parts
from utils.engine.sampling import Asked
from utils.engine.scheduler import Scheduler
from utils.engine.tokenizer import Stream, Tokenizer

__all__ = [
    "Asked", "BlockManager", "Engine", "Limits", "Model", "ModelFile", "ModelMissing", "Packed", "PagedAttention",
    "PagedCache", "Parts", "Scheduler", "Stream", "Tokenizer", "model_path",
]  # fmt: skip
