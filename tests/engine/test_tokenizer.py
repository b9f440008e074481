"""The tokenizer, held to the one that transformers makes of the same file."""

from __future__ import annotations

import importlib.util
import random

import pytest

from utils.engine import ModelFile, Stream, Tokenizer, model_path
from utils.engine.files import PACKAGE
from utils.engine.tokenizer import each_new
from utils.models import stdlib_bytes

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason="needs the pretrained model: run `make model`"
)
TEXTS = [
    "The capital of France is", "", " ", "\n\n\t  x", "1234567 + 0.5 = 3,141,592", "don't they'll I've",
    "张量并行 和 流水线",
    "né 😀👩‍👩‍👧 naïve", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|", "a" * 300, "ＦＵＬＬ　width",
    "def f(x):\n    return x ** 2  # squared\n", "\x00\x07\ufffd", "مرحبا بالعالم", "e\u0301 vs \u00e9",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ModelFile())


@pytest.fixture(scope="module")
def theirs():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_path().parent, gguf_file=model_path().name)


def texts() -> list[str]:
    draw, code = random.Random(0), bytes(stdlib_bytes(200_000).tolist()).decode("utf-8", "replace")
    at = [draw.randrange(len(code) - 400) for _ in range(40)]
    drawn = ["".join(chr(draw.choice([draw.randrange(32, 127), draw.randrange(0xA0, 0xD7FF)])) for _ in range(40))
             for _ in range(20)]  # fmt: skip
    return [*TEXTS, *(code[i : i + draw.randrange(1, 400)] for i in at), *drawn]


@pytest.mark.heavy
def test_numbers_and_texts_are_those_of_transformers(tokenizer: Tokenizer, theirs) -> None:
    for text in texts():
        own = tokenizer.encode(text)
        assert own == theirs(text)["input_ids"], text
        assert tokenizer.decode(own) == theirs.decode(own, skip_special_tokens=True), text
    assert tokenizer.eos == theirs.eos_token_id and tokenizer.vocab_size == len(theirs)


@pytest.mark.heavy
def test_a_conversation_is_written_as_the_template_says(tokenizer: Tokenizer, theirs) -> None:
    user, more = {"role": "user", "content": "What is 2 + 2?\n"}, {"role": "assistant", "content": "4"}
    system = {"role": "system", "content": "Be brief."}
    for messages in ([user], [system, user], [user, more, user], [system, user, more, {"role": "user", "content": ""}]):
        text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert tokenizer.chat_text(messages) == text
        assert tokenizer.chat(messages) == theirs(text)["input_ids"]


def test_a_stream_holds_back_half_a_character(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("né 😀")
    pieces = list(each_new(Stream(tokenizer), tokens))
    assert "".join(pieces) == "né 😀" and "\ufffd" not in "".join(pieces) and "" in pieces[:-1]


def test_a_stream_gives_what_decode_gives(tokenizer: Tokenizer) -> None:
    draw = random.Random(1)
    cut = [[draw.randrange(17, tokenizer.vocab_size) for _ in range(50)] for _ in range(20)]  # much of it is no UTF-8
    for tokens in [*map(tokenizer.encode, texts()), *cut]:
        assert "".join(each_new(Stream(tokenizer), tokens)) == tokenizer.decode(tokens)
