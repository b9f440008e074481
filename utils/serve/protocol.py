"""Requests of OpenAI's protocol, read and checked, and the shapes of its answers and errors.

What the protocol names and this server cannot do is refused, not ignored. Source: OpenAI's API reference, /completions
and /chat/completions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL = "smollm2-135m"
MOST_CHOICES, MOST_STOPS, MOST_PROMPTS = 16, 4, 32
# What these mean when they are left out; anything else is not to be had here.
NOT_HERE: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, False), "top_logprobs": (None, 0), "echo": (None, False), "best_of": (None, 1),
    "suffix": (None,), "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "logit_bias": (None, {}),
    "tools": (None, []), "functions": (None, []), "response_format": (None, {"type": "text"}), "audio": (None,),
    "modalities": (None, ["text"]),
}  # fmt: skip


class BadRequest(ValueError):
    """What is wrong with a request: `status` of HTTP, `param` the field, `code` in the protocol's words."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


@dataclass(frozen=True)
class Wanted:
    """What one call asks for. prompts: texts or token numbers; messages: of a chat, else None."""

    prompts: tuple[str | tuple[int, ...], ...]
    messages: tuple[Mapping[str, str], ...] | None
    max_tokens: int | None
    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    n: int
    stream: bool
    include_usage: bool


def parse(body: bytes, chat: bool) -> Wanted:
    """The call in `body`, of /chat/completions or of /completions; BadRequest says what is wrong with it.

    >>> parse(b'{"model": "smollm2-135m", "prompt": "Hi", "max_tokens": 3}', chat=False).prompts
    ('Hi',)
    """
    try:
        call = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(call, dict):
        raise BadRequest(f"The body is a JSON {type(call).__name__}; an object is wanted.")
    check_model(call.get("model"))
    for name, harmless in NOT_HERE.items():
        if call.get(name) not in harmless:
            raise BadRequest(f"{name} = {call[name]!r} is not supported here; leave it out.", name)
    limit = _whole(call, "max_completion_tokens", 1, None) if chat else None
    return Wanted(
        prompts=() if chat else _prompts(call.get("prompt")),
        messages=_messages(call.get("messages")) if chat else None,
        max_tokens=limit if limit is not None else _whole(call, "max_tokens", 1, None, None if chat else 16),
        temperature=_number(call, "temperature", 0, 2, 1.0),
        top_p=_number(call, "top_p", 0, 1, 1.0, above=True),
        seed=_whole(call, "seed", -(2**63), 2**63 - 1),
        stop=_stops(call.get("stop")),
        n=_whole(call, "n", 1, MOST_CHOICES, 1) or 1,
        stream=_flag(call, "stream"),
        include_usage=_flag(_options(call), "include_usage"),
    )


def check_model(name: object) -> None:
    """BadRequest where this is not the model that is served."""
    if name is None:
        raise BadRequest("You must say which model: " + MODEL + ".", "model")
    if name != MODEL:
        raise BadRequest(f"The model {name!r} does not exist; {MODEL} is served.", "model", "model_not_found", 404)


def _prompts(prompt: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(prompt, str):
        return (prompt,)
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt must be a text, texts, token numbers, or lists of token numbers.", "prompt")
    if all(_is_whole(part) for part in prompt):
        return (tuple(prompt),)
    if len(prompt) > MOST_PROMPTS:
        raise BadRequest(f"{len(prompt)} prompts in one call; at most {MOST_PROMPTS} are served.", "prompt")
    for part in prompt:
        if not isinstance(part, str) and not (isinstance(part, list) and part and all(map(_is_whole, part))):
            raise BadRequest(f"a prompt is {part!r}; it must be a text or token numbers, at least one.", "prompt")
    return tuple(part if isinstance(part, str) else tuple(part) for part in prompt)


def _messages(messages: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of at least one message.", "messages")
    return tuple(_message(message, f"messages[{number}]") for number, message in enumerate(messages))


def _message(message: Any, where: str) -> Mapping[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("system", "developer", "user", "assistant"):
        raise BadRequest(f"{where}.role is {role!r}; it must be system, developer, user or assistant.", f"{where}.role")
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise BadRequest(f"{where}.content must be a text, or a list of parts of text.", f"{where}.content")
    return {"role": "system" if role == "developer" else role, "content": content}


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise BadRequest(f"stop must be a text or up to {MOST_STOPS} texts, none of them empty.", "stop")
    return tuple(stops)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(call: dict, name: str, least: int, most: int | None, default: int | None = None) -> int | None:
    value = call.get(name)
    if value is None:
        return default
    if not _is_whole(value) or value < least or (most is not None and value > most):
        to = "" if most is None else f" and at most {most}"
        raise BadRequest(f"{name} is {value!r}; it must be a whole number of at least {least}{to}.", name)
    return value


def _number(call: dict, name: str, least: float, most: float, default: float, above: bool = False) -> float:
    value = call.get(name)
    if value is None:
        return default
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not least <= value <= most or (above and value == least):
        raise BadRequest(f"{name} is {value!r}; it must be {'above' if above else 'from'} {least} to {most}.", name)
    return float(value)


def _flag(call: dict, name: str) -> bool:
    value = call.get(name)
    if value not in (None, True, False) or (isinstance(value, int) and not isinstance(value, bool)):
        raise BadRequest(f"{name} is {value!r}; it must be true or false.", name)
    return bool(value)


def _options(call: dict) -> dict:
    options = call.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict) or not call.get("stream"):
        raise BadRequest("stream_options is an object, and only to be given with stream = true.", "stream_options")
    return options


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """An error in the protocol's shape.

    >>> error_body("no", "server_error")
    {'error': {'message': 'no', 'type': 'server_error', 'param': None, 'code': None}}
    """
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(prompt: int, completion: int) -> dict[str, int]:
    """Tokens that were read and written.

    >>> usage(3, 4)["total_tokens"]
    7
    """
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def choice(chat: bool, index: int, text: str, finish: str | None) -> dict[str, Any]:
    """One choice of a finished answer."""
    one = {"message": {"role": "assistant", "content": text, "refusal": None}} if chat else {"text": text}
    return {"index": index, **one, "logprobs": None, "finish_reason": finish}


def stream_choices(chat: bool, index: int, text: str, finish: str | None, first: bool) -> list[dict[str, Any]]:
    """What a piece of a stream becomes: a chat says first who speaks, and last, by itself, why it ended.

    >>> [one["delta"] for one in stream_choices(True, 0, "Hi", "stop", first=True)]
    [{'role': 'assistant', 'content': ''}, {'content': 'Hi'}, {}]
    """
    if not chat:
        return [{"index": index, "text": text, "logprobs": None, "finish_reason": finish}]
    deltas = [{"role": "assistant", "content": ""}] * first + [{"content": text}] * bool(text)
    said = [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    return said + [{"index": index, "delta": {}, "logprobs": None, "finish_reason": finish}] * bool(finish)
