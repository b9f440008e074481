"""The real model: greedy tokens are those of transformers, alone and in a continuous batch, on one rank and on three.

transformers reads the whole text that the engine wrote, once: its largest logit at every place must be the token that
the engine wrote there, which by induction is what its own greedy `generate` writes. Where its two best logits are
closer than 1e-4 either may stand there; such places are counted.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

from utils import launch
from utils.engine import Engine, Limits, Model, ModelFile, Tokenizer, model_path
from utils.engine.files import PACKAGE
from utils.models import stdlib_bytes
from utils.serving import Request

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None, reason="needs the pretrained model: run `make model`"
    ),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers, a dev package"),
]
NEW, NEAR = 6, 1e-4
SENTENCES = [
    "The capital of France is", "Hello", "\n", "1, 1, 2, 3, 5, 8,", "def fibonacci(n):\n", "Once upon a time",
    "The opposite of hot is", "Water boils at", "Q: What is 7 times 8?\nA:", "El perro", "张量并行",
    "import numpy as np\n",
]  # fmt: skip
LIMITS = Limits(num_blocks=40, block_size=8, max_tokens=48, max_running=12)  # prompts in chunks; some have to wait


def prompts() -> list[list[int]]:
    """Sentences, a chat, and pieces of source text of 1 to 110 tokens: 24 prompts."""
    tokenizer = Tokenizer()
    code = tokenizer.encode(bytes(stdlib_bytes(9000).tolist()).decode("utf-8", "replace"))
    chat = tokenizer.chat([{"role": "user", "content": "Name three colours."}])
    pieces = [code[100 * size : 100 * size + 10 * size] for size in range(1, 12)]
    return [*map(tokenizer.encode, SENTENCES), chat, *pieces]


def written(asked: list[list[int]]) -> dict[str, dict[int, list[int]]]:
    """On each rank: what the engine writes behind each prompt, alone and all together."""
    model = Model()
    alone: dict[int, list[int]] = {}
    for number, prompt in enumerate(asked):
        alone |= Engine(model, LIMITS).generate([Request(number, prompt, NEW)])
    together = Engine(model, LIMITS).generate([Request(number, prompt, NEW) for number, prompt in enumerate(asked)])
    return {"alone": alone, "together": together}


@pytest.fixture(scope="module")
def theirs():
    from transformers import AutoModelForCausalLM

    path = model_path()
    return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def texts() -> dict[tuple[int, str], dict[int, list[int]]]:
    runs = {ranks: launch(written, prompts(), ranks=ranks, timeout=800).value for ranks in (1, 3)}
    return {(ranks, way): outputs for ranks, value in runs.items() for way, outputs in value.items()}


@torch.inference_mode()
def test_greedy_tokens_are_those_of_transformers(theirs, texts, record_property) -> None:
    asked, near, read = prompts(), 0, {}
    assert len(asked) >= 20 and all(len(outputs) == len(asked) for outputs in texts.values())
    for (ranks, way), outputs in texts.items():
        for number, prompt in enumerate(asked):
            own = outputs[number]
            assert len(own) == NEW
            key = (*prompt, *own)
            if key not in read:
                read[key] = theirs(torch.tensor([key])).logits[0, len(prompt) - 1 : -1].topk(2)
            best, where = read[key]
            for place, token in enumerate(own):
                gap = float(best[place, 0] - best[place, 1])
                near += gap < NEAR
                fits = where[place].tolist() if gap < NEAR else where[place, :1].tolist()
                assert token in fits, f"{ranks} ranks, {way}, prompt {number}, token {place}: {token}, not {fits}"
    record_property("places where two logits were near", near)
    assert near <= 2, f"{near} places were too near to tell"


@torch.inference_mode()
def test_generate_writes_the_same(theirs, texts) -> None:
    """The induction above once more by experience."""
    for number in (0, 4, 12):
        prompt = prompts()[number]
        out = theirs.generate(torch.tensor([prompt]), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False)
        assert out[0, len(prompt) :].tolist() == texts[3, "together"][number]


@torch.inference_mode()
def test_logits_are_those_of_transformers(theirs) -> None:
    tokens = torch.tensor([prompts()[-1]])
    own = Model(ModelFile())(tokens)
    torch.testing.assert_close(own, theirs(tokens).logits, rtol=1e-3, atol=2e-3)
