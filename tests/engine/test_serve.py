"""The server over three ranks, spoken to by the official client, by broken ones, and by none."""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from utils.engine.files import PACKAGE
from utils.serve import Server
from utils.serve.protocol import MODEL

HERE = Path(__file__)
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(
        importlib.util.find_spec(PACKAGE) is None, reason="needs the pretrained model: run `make model`"
    ),
    pytest.mark.skipif(importlib.util.find_spec("openai") is None, reason="needs the openai client: a dev package"),
]
FRANCE = "The capital of France is"
GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(3, "--blocks", "64", "--max-tokens", "64") as running:
        yield running


@pytest.fixture
def client(server: Server):
    return openai_client(server)


def openai_client(server: Server):
    from openai import OpenAI

    return OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=120)


def until(what: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.05)


def ask(server: Server, method: str, path: str, body: bytes | None = None) -> tuple[int, dict]:
    """A call without the client, which would not send what is wrong."""
    address = server.url.removeprefix("http://").removesuffix("/v1")
    line = http.client.HTTPConnection(address, timeout=60)
    try:
        line.request(method, path, body)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


def health(server: Server) -> dict:
    return ask(server, "GET", "/health")[1]


def test_the_client_lists_completes_and_chats(client) -> None:
    assert [model.id for model in client.models.list()] == [MODEL] and client.models.retrieve(MODEL).id == MODEL
    said = client.completions.create(prompt=FRANCE, **GREEDY)
    assert said.choices[0].text.startswith(" Paris") and said.choices[0].finish_reason == "length"
    assert (said.usage.prompt_tokens, said.usage.completion_tokens, said.usage.total_tokens) == (5, 8, 13)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    chat = client.chat.completions.create(messages=asked, **{**GREEDY, "max_tokens": 30})
    assert "Paris" in chat.choices[0].message.content and chat.choices[0].finish_reason == "stop"


def test_a_stream_brings_the_same_text_in_pieces(client) -> None:
    whole = client.completions.create(prompt=FRANCE, **GREEDY).choices[0].text
    how = {"stream": True, "stream_options": {"include_usage": True}}
    events = list(client.completions.create(prompt=FRANCE, **how, **GREEDY))
    pieces = [event.choices[0] for event in events if event.choices]
    assert "".join(piece.text for piece in pieces) == whole and len(pieces) > 4
    assert [piece.finish_reason for piece in pieces[-2:]] == [None, "length"]
    assert events[-1].usage.completion_tokens == 8 and not events[-1].choices
    asked = {"messages": [{"role": "user", "content": "Say hi."}], **GREEDY}
    deltas = [event.choices[0].delta for event in client.chat.completions.create(stream=True, **asked)]
    chat = client.chat.completions.create(**asked).choices[0].message.content
    assert deltas[0].role == "assistant" and "".join(delta.content or "" for delta in deltas) == chat


def test_many_at_once_get_what_each_gets_alone(client) -> None:
    prompts = [FRANCE, "def add(a, b):", "Once upon a time", "1, 2, 3, 4,", "Hello", "The sky is"]
    alone = [client.completions.create(prompt=prompt, **GREEDY).choices[0].text for prompt in prompts]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda prompt: client.completions.create(prompt=prompt, **GREEDY), prompts))
    assert [answer.choices[0].text for answer in together] == alone
    in_one = client.completions.create(prompt=prompts, **GREEDY)
    assert [choice.text for choice in in_one.choices] == alone
    assert [choice.index for choice in in_one.choices] == list(range(6))


def test_a_seed_draws_the_same_and_n_draws_several(client) -> None:
    hot = {"model": MODEL, "prompt": "My favourite animal is", "max_tokens": 8, "temperature": 1.5, "seed": 5}
    first, again = (client.completions.create(n=3, **hot) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert texts == [choice.text for choice in again.choices] and len(set(texts)) == 3
    assert first.usage.completion_tokens == 24
    cold = client.completions.create(**{**hot, "top_p": 1e-6}).choices[0].text
    assert cold == client.completions.create(prompt=hot["prompt"], **GREEDY).choices[0].text


def test_a_stop_text_ends_the_answer(client, server: Server) -> None:
    whole = client.completions.create(prompt="1, 2, 3,", **{**GREEDY, "max_tokens": 16}).choices[0].text
    cut = client.completions.create(prompt="1, 2, 3,", stop=[" 6", "zz"], **{**GREEDY, "max_tokens": 16}).choices[0]
    assert cut.text == whole[: whole.index(" 6")] and cut.finish_reason == "stop"
    until(lambda: health(server)["used_blocks"] == 0)


def test_bad_requests_get_the_protocols_errors(client, server: Server) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="does not exist") as caught:
        client.completions.create(model="gpt-4", prompt="Hi")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(messages=[{"role": "user", "content": "Hi"}], tools=[{"type": "x"}], **GREEDY)
    with pytest.raises(openai.BadRequestError, match="This server holds 1024 tokens a request") as caught:
        client.completions.create(prompt="a " * 3000, **GREEDY)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="not below 49152"):
        client.completions.create(prompt=[1, 49152], **GREEDY)
    for method, path, body, status in [
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/completions", b'{"model": "' + MODEL.encode() + b'"}', 400),
        ("GET", "/v1/completions", None, 405), ("GET", "/v1/nothing", None, 404), ("GET", "/v1/models/x", None, 404),
        ("POST", "/v1/completions", json.dumps({"prompt": "", **GREEDY}).encode(), 400),
    ]:  # fmt: skip
        got, said = ask(server, method, path, body)
        assert got == status and set(said["error"]) == {"message", "type", "param", "code"}, (method, path, said)
        assert said["error"]["message"] and said["error"]["type"] == "invalid_request_error"
    assert health(server)["used_blocks"] == 0


def test_a_client_that_leaves_frees_its_blocks(client, server: Server) -> None:
    stream = client.completions.create(prompt=FRANCE, stream=True, **{**GREEDY, "max_tokens": 900, "n": 2})
    next(iter(stream))
    assert health(server)["running"] == 2 and health(server)["used_blocks"] >= 2
    stream.close()
    until(lambda: health(server)["used_blocks"] == 0)
    body = json.dumps({"prompt": FRANCE, **GREEDY, "max_tokens": 900}).encode()  # and one that waits for the whole
    address = server.url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((address[0], int(address[1]))) as line:
        line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        until(lambda: health(server)["running"] == 1)
    until(lambda: health(server)["used_blocks"] == 0)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def heaviest(process: subprocess.Popen, count: int) -> list[psutil.Process]:
    """The ranks: whoever holds weights."""
    return sorted(family(process), key=lambda child: child.memory_info().rss)[-count:]


def nothing_left(children: list[psutil.Process]) -> bool:
    return not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("blow, said", [(signal.SIGKILL, "was ended by SIGKILL"), (signal.SIGSTOP, "interrupted")])
def test_a_dead_rank_ends_with_a_report_and_clean_errors(blow: signal.Signals, said: str) -> None:
    import openai

    with Server(3, "--patience", "4") as server:
        client, children = openai_client(server), family(server.process)
        long = {**GREEDY, "max_tokens": 2000, "prompt": FRANCE}
        stream = iter(client.completions.create(stream=True, **long))
        next(stream)
        with ThreadPoolExecutor(1) as pool:
            whole = pool.submit(client.completions.create, **long)
            until(lambda: health(server)["running"] == 2)
            victims = heaviest(server.process, 3)
            victims[1].send_signal(blow)
            with pytest.raises(openai.APIError, match="rank"):
                list(stream)
            with pytest.raises(openai.InternalServerError) as caught:
                whole.result(60)
        assert caught.value.status_code == 503 and caught.value.code == "ranks_gone"
        assert server.process.wait(60) == 1
        assert said in server.errors and "rank" in server.errors
        until(lambda: nothing_left(children))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(number: signal.Signals) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        with Server(1) as server:
            client, children = openai_client(server), family(server.process)
            stream = iter(client.completions.create(prompt=FRANCE, stream=True, **{**GREEDY, "max_tokens": 900}))
            next(stream)
            server.process.send_signal(number)
            assert server.process.wait(30) == 0 and server.errors == ""
            until(lambda: nothing_left(children))
        assert os.listdir(folder) == []


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "utils.serve", *arguments], capture_output=True, text=True, timeout=120,
        cwd=HERE.parents[2],
    )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    return done.stderr.strip()


def test_what_cannot_be_is_said_at_once(server: Server) -> None:
    assert refused("--ranks", "2") == "9 heads and 3 KV heads do not divide over 2 ranks: use 1 or 3"
    assert "num_blocks is 0" in refused("--blocks", "0")
    port = server.url.removesuffix("/v1").rsplit(":", 1)[1]
    assert refused("--port", port) == f"Port {port} cannot be had: Address already in use."
