"""The protocol without a model: what is refused and in which words, and where an answer is cut."""

from __future__ import annotations

import doctest
import importlib
import json

import pytest

from utils.serve.protocol import MODEL, BadRequest, parse
from utils.serve.texts import Answer


@pytest.mark.parametrize("name", ["protocol", "texts"])
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(f"utils.serve.{name}"))
    assert result.failed == 0 and result.attempted


def call(chat: bool = False, **fields: object) -> bytes:
    prompt = {"messages": [{"role": "user", "content": "Hi"}]} if chat else {"prompt": "Hi"}
    return json.dumps({"model": MODEL, **prompt, **fields}).encode()


BAD = [
    (b"{", None, "not JSON"), (b"[1]", None, "JSON list; an object is wanted"),
    (b'{"prompt": "Hi"}', "model", "which model"),
    (call(prompt=[]), "prompt", "must be a text"), (call(prompt=[["a"]]), "prompt", "token numbers"),
    (call(prompt=[True]), "prompt", "a prompt is True"), (call(prompt=["x"] * 33), "prompt", "33 prompts"),
    (call(max_tokens=0), "max_tokens", "max_tokens is 0; it must be a whole number of at least 1"),
    (call(max_tokens=True), "max_tokens", "max_tokens is True"), (call(temperature=2.5), "temperature", "from 0 to 2"),
    (call(temperature="hot"), "temperature", "'hot'"), (call(top_p=0), "top_p", "above 0 to 1"),
    (call(temperature=float("nan")), "temperature", "nan"), (call(n=17), "n", "at most 16"), (call(n=1.0), "n", "1.0"),
    (call(stop=["a"] * 5), "stop", "up to 4"), (call(stop=""), "stop", "none of them empty"),
    (call(stream="yes"), "stream", "true or false"), (call(seed=0.5), "seed", "0.5"),
    (call(stream_options={"include_usage": True}), "stream_options", "only to be given with stream"),
    (call(logprobs=3), "logprobs", "not supported here"),
    (call(presence_penalty=0.5), "presence_penalty", "not supported"),
    (call(True, messages=[]), "messages", "at least one"),
    (call(True, messages=[{"role": "robot", "content": "Hi"}]), "messages[0].role", "'robot'"),
    (call(True, messages=[{"role": "user", "content": 3}]), "messages[0].content", "must be a text"),
    (call(True, tools=[{"type": "function"}]), "tools", "not supported here"),
    (call(True, max_completion_tokens=-1), "max_completion_tokens", "at least 1"),
]  # fmt: skip


@pytest.mark.parametrize("body, param, said", BAD, ids=range(len(BAD)))
def test_a_bad_call_is_refused_in_a_sentence(body: bytes, param: str | None, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body, chat=b"messages" in body)
    assert caught.value.param == param and said in str(caught.value) and caught.value.status == 400


def test_another_model_is_not_found() -> None:
    with pytest.raises(BadRequest, match="'gpt-4' does not exist") as caught:
        parse(call(model="gpt-4"), chat=False)
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_what_is_left_out_has_the_protocols_defaults() -> None:
    wanted = parse(call(logprobs=None, tools=[], presence_penalty=0), chat=False)
    assert (wanted.max_tokens, wanted.temperature, wanted.top_p, wanted.n, wanted.stop) == (16, 1.0, 1.0, 1, ())
    chat = parse(call(True, max_tokens=4, max_completion_tokens=7, stop="a", seed=3), chat=True)
    assert (chat.max_tokens, chat.stop, chat.seed) == (7, ("a",), 3)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    said = parse(call(True, messages=[{"role": "developer", "content": parts}]), chat=True).messages
    assert said == ({"role": "system", "content": "ab"},)
    assert parse(call(prompt=[[1, 2], "x"]), chat=False).prompts == ((1, 2), "x")


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_stop_text_is_found_wherever_it_is_cut(cut: int) -> None:
    text, answer = "one STOOP two STOP three", Answer(None, eos=2, max_new=99, stops=["STOP", "zzz"])
    given = ""
    for start in range(0, len(text), cut):
        if not answer.finish:
            given += answer.add_text(text[start : start + cut])
    assert given == "one STOOP two " and answer.finish == "stop"


def test_the_earliest_of_several_stop_texts_counts() -> None:
    answer = Answer(None, eos=2, max_new=9, stops=["b", "ab"])
    assert answer.add_text("xxab") == "xx"
