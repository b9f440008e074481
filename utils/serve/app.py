"""The HTTP side: routes, answers whole and streamed (server-sent events), errors in the protocol's shape."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tornado import iostream, web

from utils.engine import Tokenizer
from utils.models import DecoderConfig
from utils.serve.backend import Backend, BackendGone, Refused
from utils.serve.protocol import (
    MODEL,
    BadRequest,
    Wanted,
    check_model,
    choice,
    error_body,
    parse,
    stream_choices,
    usage,
)
from utils.serve.texts import Answer, Pieces

MOST_BODY = 4 << 20  # bytes


@dataclass
class Service:
    """What every handler needs: the ranks, the tokenizer, the sizes of the model."""

    backend: Backend
    tokenizer: Tokenizer
    config: DecoderConfig
    started: int = field(default_factory=lambda: int(time.time()))

    def prompts(self, wanted: Wanted) -> list[list[int]]:
        """Token numbers of what was asked; BadRequest where one does not fit."""
        if wanted.messages is not None:
            return [self.tokenizer.chat(wanted.messages)]
        found = [self.tokenizer.encode(p) if isinstance(p, str) else list(p) for p in wanted.prompts]
        for tokens in found:
            if not tokens:
                raise BadRequest("The prompt is empty; at least one token is needed.", "prompt")
            if not 0 <= min(tokens) <= max(tokens) < self.config.vocab_size:
                raise BadRequest(f"A token number is not below {self.config.vocab_size}, or is negative.", "prompt")
        return found

    def room(self, prompt: int, wanted: Wanted) -> int:
        """How many tokens may be generated behind a prompt; BadRequest where those asked for do not fit."""
        most = min(self.config.max_len, self.backend.limits.slots) - prompt
        if most < max(1, wanted.max_tokens or 1):
            raise BadRequest(
                f"This server holds {prompt + most} tokens a request; the prompt has {prompt} and "
                f"{wanted.max_tokens or 1} more are asked for.", "messages" if wanted.messages else "prompt",
                "context_length_exceeded",
            )  # fmt: skip
        return wanted.max_tokens or most


class Handler(web.RequestHandler):
    """What all routes share: the service, and errors that are JSON."""

    def initialize(self, service: Service) -> None:
        self.service = service
        self.numbers: list[int] = []

    def write_error(self, status: int, **details: Any) -> None:
        error = details.get("exc_info", (None, None))[1]
        kind, param, code = ("server_error" if status >= 500 else "invalid_request_error"), None, None
        message = self._reason
        if isinstance(error, BadRequest):
            message, param, code = str(error), error.param, error.code
        elif isinstance(error, Refused):
            message = str(error)
        elif isinstance(error, BackendGone):
            message, code = first_line(str(error)), "ranks_gone"
        self.finish(error_body(message, kind, param, code))

    def send_error(self, status_code: int = 500, **details: Any) -> None:
        if self._headers_written:  # a stream that the server's end cuts off: its status can no longer be changed
            if not self._finished:
                self.finish()
            return
        error = details.get("exc_info", (None, None))[1]
        if isinstance(error, BadRequest):
            status_code = error.status
        elif isinstance(error, Refused):
            status_code = 400
        elif isinstance(error, BackendGone):
            status_code = 503
        super().send_error(status_code, **details)

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, BadRequest | Refused | BackendGone | iostream.StreamClosedError):
            super().log_exception(kind, error, trace)

    def on_connection_close(self) -> None:
        for number in self.numbers:
            self.service.backend.cancel(number)


class Models(Handler):
    """GET /v1/models and /v1/models/NAME."""

    def get(self, name: str | None = None) -> None:
        if name:
            check_model(name)
        one = {"id": MODEL, "object": "model", "created": self.service.started, "owned_by": "course"}
        self.finish(one if name else {"object": "list", "data": [one]})


class Health(Handler):
    """GET /health: how many requests run and wait, and how many blocks are in use."""

    def get(self) -> None:
        gone = self.service.backend.report
        self.set_status(503 if gone else 200)
        self.finish({"status": "gone" if gone else "ready", **self.service.backend.state})


class Completions(Handler):
    """POST /v1/completions, and with chat=True /v1/chat/completions."""

    def initialize(self, service: Service, chat: bool) -> None:
        super().initialize(service)
        self.chat = chat

    async def post(self) -> None:
        wanted = parse(self.request.body, self.chat)
        prompts = self.service.prompts(wanted)
        rooms = [self.service.room(len(prompt), wanted) for prompt in prompts]
        self.pieces: Pieces = asyncio.Queue()
        self.answers: list[Answer] = []
        for prompt, room in zip(prompts, rooms, strict=True):
            for copy in range(wanted.n):
                self._submit(prompt, room, wanted, copy)
        self.begun = {"id": f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex}", "created": int(time.time())}
        self.read = sum(map(len, prompts))
        try:
            await (self._stream(wanted.include_usage) if wanted.stream else self._whole())
        except iostream.StreamClosedError:
            pass  # the client has gone; on_connection_close has been called
        finally:
            self.on_connection_close()  # after an error the others write for nobody

    def _submit(self, prompt: list[int], room: int, wanted: Wanted, copy: int) -> None:
        tokenizer = self.service.tokenizer
        answer = Answer(
            tokenizer, tokenizer.eos, room, wanted.stop, index=len(self.answers), pieces=self.pieces
        )  # fmt: skip
        seed = None if wanted.seed is None else (wanted.seed + copy) % 2**63
        self.numbers.append(
            self.service.backend.submit(
                answer, prompt=prompt, max_new=room, stop=tokenizer.eos, temperature=wanted.temperature,
                top_p=wanted.top_p, seed=seed,
            )
        )  # fmt: skip
        self.answers.append(answer)

    async def _each(self) -> AsyncIterator[tuple[int, str, str | None]]:
        """The pieces of all answers as they come, until each is finished."""
        left = len(self.answers)
        while left:
            piece = await self.pieces.get()
            if isinstance(piece, BaseException):
                raise piece
            left -= piece[2] is not None
            yield piece

    def _usage(self) -> dict[str, int]:
        return usage(self.read, sum(answer.tokens for answer in self.answers))

    async def _whole(self) -> None:
        texts = [""] * len(self.answers)
        async for index, text, _ in self._each():
            texts[index] += text
        choices = [choice(self.chat, one.index, texts[one.index], one.finish) for one in self.answers]
        kind = "chat.completion" if self.chat else "text_completion"
        self.finish({**self.begun, "object": kind, "model": MODEL, "choices": choices, "usage": self._usage()})

    async def _stream(self, with_usage: bool) -> None:
        kind, begun = "chat.completion.chunk" if self.chat else "text_completion", set()
        frame = {**self.begun, "object": kind, "model": MODEL, **({"usage": None} if with_usage else {})}
        try:
            async for index, text, finish in self._each():
                for one in stream_choices(self.chat, index, text, finish, first=index not in begun):
                    await self._event({**frame, "choices": [one]})
                begun.add(index)
            if with_usage:
                await self._event({**frame, "choices": [], "usage": self._usage()})
            await self._event("[DONE]")
        except (BackendGone, Refused) as error:
            if not begun:
                raise  # nothing was sent yet: the status can still say it
            await self._event(error_body(first_line(str(error)), "server_error", None, "ranks_gone"))

    async def _event(self, data: Any) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-cache")
        self.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
        await self.flush()


class Unknown(Handler):
    """Everything else."""

    def prepare(self) -> None:
        raise BadRequest(f"There is no {self.request.method} {self.request.path} here.", None, "not_found", 404)


def first_line(report: str) -> str:
    """The line of a launch's report that says what happened."""
    return next((line.strip() for line in report.splitlines() if line.strip()), "The ranks are gone.")


def make_app(service: Service) -> web.Application:
    """The application; `service` is what it serves from."""
    own = {"service": service}
    return web.Application(
        [
            (r"/v1/models", Models, own),
            (r"/v1/models/([^/]+)", Models, own),
            (r"/v1/completions", Completions, {**own, "chat": False}),
            (r"/v1/chat/completions", Completions, {**own, "chat": True}),
            (r"/health", Health, own),
        ],
        default_handler_class=Unknown,
        default_handler_args=own,
        log_function=lambda handler: None,
    )
