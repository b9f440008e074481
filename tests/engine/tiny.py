"""A model of four thousand random weights in place of the real one, and the same weights in `utils.models.Decoder`.

`Decoder` is held to transformers elsewhere; greedy text from it, without any cache, is the oracle of the engine here.
"""

from __future__ import annotations

import functools
import random

import torch

from utils.engine import Engine, Limits, Model, Packed, Parts
from utils.models import Decoder, DecoderConfig
from utils.serving import Request

CONFIG = DecoderConfig(vocab_size=61, hidden=36, layers=2, heads=9, kv_heads=3, ffn=24, max_len=96, rope_theta=1e4)


class TinyFile:
    """What `ModelFile` offers, with random weights that are the same for every call."""

    def __init__(self, config: DecoderConfig = CONFIG) -> None:
        self.config = config
        self.decoder = decoder_of(config)
        self.state = self.decoder.state_dict()

    def packed(self, name: str) -> Packed:
        return Packed(self.state[f"{name}.weight"].contiguous().view(torch.uint8), "F32", block=1, block_bytes=4)

    def vector(self, name: str) -> torch.Tensor:
        return self.state[f"{name}.weight"]


@functools.cache
def decoder_of(config: DecoderConfig) -> Decoder:
    model, generator = Decoder(config).requires_grad_(False), torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        one = parameter.dim() == 1
        parameter.normal_(1.0 if one else 0.0, 0.1 if one else 2 * config.hidden**-0.5, generator=generator)
    return model


def greedy_text(prompt: list[int], new: int, stop: int | None = None) -> list[int]:
    """The oracle: the whole text through the model for every token."""
    model, tokens = decoder_of(CONFIG), list(prompt)
    while len(tokens) < len(prompt) + new and (len(tokens) == len(prompt) or tokens[-1] != stop):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


def requests(count: int, seed: int = 0, most: int = 20) -> list[Request]:
    """Prompts of many lengths, some of which begin alike; a third of them have a stop token."""
    draw, shared, made = random.Random(seed), [7, 8, 9, 10, 11, 12, 13, 14, 15], []
    for number in range(count):
        own = [draw.randrange(CONFIG.vocab_size) for _ in range(draw.randint(1, most))]
        prompt = [*shared, *own] if draw.random() < 0.5 else own
        stop = draw.randrange(CONFIG.vocab_size) if number % 3 == 0 else None
        made.append(Request(number, prompt, max_new=draw.randint(1, 12), stop=stop))
    return made


def serve(count: int, limits: Limits, parts: Parts | None = None, seed: int = 0) -> tuple[dict, list[int]]:
    """On each rank: the outputs, and how many blocks are still held."""
    engine = Engine(Model(TinyFile(), parts=parts), limits)
    return engine.generate(requests(count, seed)), [n for n in engine.blocks.ref_count if n]


@functools.cache
def wanted(count: int, seed: int = 0) -> dict[int, list[int]]:
    return {one.id: greedy_text(one.prompt, one.max_new, one.stop) for one in requests(count, seed)}


def solution(lab: str, *wanted_cells: str) -> dict:
    """Names that the reference solution of a lab defines in these cells."""
    from autograder.course import REPO
    from autograder.sources.cells import read_source

    (path,) = (REPO / "solutions").glob(f"{lab}_*.py")
    names: dict = {"__name__": f"solution_of_{lab}"}
    for cell in read_source(path).cells:
        if cell.name == "imports" or (cell.kind == "solution" and cell.name in wanted_cells):
            exec(compile(cell.text, str(path), "exec"), names)
    return names
