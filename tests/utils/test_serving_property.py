"""Whatever comes when, lab 09's reference gives each request the text that it would get alone, and loses no block.

Its classes are taken from the lab's text source. Arrivals, lengths, shared beginnings, block sizes, memory, budgets and
cancellations are drawn by hypothesis.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from autograder.sources.cells import read_source
from utils.checks import serving

LAB = Path(__file__).resolve().parents[2] / "solutions" / "lab09_serving.py"


@cache
def lab() -> SimpleNamespace:
    names = {"__name__": "lab09"}
    for cell in read_source(LAB).of_kind("shared", "solution"):
        exec(compile(cell.text, str(LAB), "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


BEGINNINGS = ([], [17, 4, 31], [17, 4, 31, 8, 8, 50, 2, 23])
prompts = st.builds(lambda head, tail: [*head, *tail], st.sampled_from(BEGINNINGS),
                    st.lists(st.integers(0, 60), min_size=1, max_size=6))  # fmt: skip
requests = st.lists(st.tuples(st.integers(0, 8), prompts, st.integers(1, 7)), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None, database=None)
@seed(0)
@given(
    requests=requests,
    size=st.integers(1, 5),
    spare=st.integers(0, 4),
    max_running=st.integers(1, 4),
    more_tokens=st.integers(0, 9),
    cancel=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 4)),
)
def test_texts_are_those_of_each_request_alone_and_no_block_is_lost(
    requests, size, spare, max_running, more_tokens, cancel
):
    code = lab()
    requests = sorted(requests, key=lambda request: request[0])
    blocks = max(-(-(len(prompt) + new) // size) for _, prompt, new in requests) + spare
    sizes = {"blocks": blocks, "size": size, "max_tokens": max_running + more_tokens, "max_running": max_running}
    case = code.case_of(requests, steps=120, cancels={cancel[0]: [cancel[1]]} if cancel else {}, **sizes)
    log = serving.read_log(code.serve(case, code.BlockManager, code.Scheduler, code.Engine))
    for step, entry in enumerate(log):
        serving.picture_conserved(entry["after"], f"step {step}")
        assert sum(entry["passes"]) <= case["max_tokens"] and len(entry["passes"]) <= 1
    last = log[-1]["after"]
    assert len(last["free"]) == blocks and not last["running"] and not last["waiting"]
    for name, (_, prompt, new) in enumerate(requests):
        want = expected(tuple(prompt), new)
        got = last["requests"][name]["output"]
        assert got == (want if cancel is None or name != cancel[1] else want[: len(got)])


@cache
def expected(prompt: tuple[int, ...], count: int) -> list[int]:
    """Greedy tokens of one request alone, without a cache."""
    model, tokens = model_of_the_lab(), list(prompt)
    for _ in range(count):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@cache
def model_of_the_lab():
    return lab().small_model()


def test_a_token_anywhere_in_a_prompt_changes_the_text():
    """Otherwise a wrong key or value could not be seen."""
    prompt = [17, 4, 31, 8, 8, 50, 2, 23, 5, 41]
    texts = [expected((*prompt[:i], (prompt[i] + 9) % 61, *prompt[i + 1 :]), 8) for i in range(len(prompt))]
    assert sum(text != expected(tuple(prompt), 8) for text in texts) >= len(prompt) - 1
