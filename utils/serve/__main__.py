"""`python -m utils.serve --ranks 3 --port 8765`: serve the pretrained model on loopback until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from utils.engine.engine import Limits
from utils.engine.files import ModelFile, ModelMissing
from utils.engine.parallel import check_divides

HOST = "127.0.0.1"
FAREWELL = 1.0  # seconds in which clients still get their errors after the ranks have died


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    own = Limits()
    parser = argparse.ArgumentParser(prog="python -m utils.serve", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1, help="tensor-parallel ranks, 1 or 3 (default 1)")
    parser.add_argument("--port", type=int, default=8765, help="where to listen on loopback; 0 takes a free one")
    parser.add_argument("--blocks", type=int, default=own.num_blocks, help="blocks of the cache")
    parser.add_argument("--block-size", type=int, default=own.block_size, help="tokens in a block")
    parser.add_argument("--max-tokens", type=int, default=own.max_tokens, help="the most tokens in a step")
    parser.add_argument("--max-running", type=int, default=own.max_running, help="the most requests at once")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds without a step before giving up")
    return parser.parse_args(arguments)


async def serve(file: ModelFile, limits: Limits, given: argparse.Namespace) -> int:
    """Serve until a signal comes or the ranks die; returns the exit status."""
    from utils.engine.tokenizer import Tokenizer
    from utils.serve.app import MOST_BODY, Service, make_app
    from utils.serve.backend import Backend, BackendGone

    ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def end(report: str | None = None) -> None:
        if not ended.done():
            ended.set_result(report)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end)
    sockets = bind_sockets(given.port, HOST)
    backend = Backend(given.ranks, limits, end, patience=given.patience)
    server = None
    try:
        service = Service(backend, Tokenizer(file), file.config)
        await asyncio.wait([backend.ready, ended], return_when=asyncio.FIRST_COMPLETED)
        if backend.ready.done() and not ended.done():
            server = HTTPServer(make_app(service), max_body_size=MOST_BODY)
            server.add_sockets(sockets)
            print(f"Serving on http://{HOST}:{sockets[0].getsockname()[1]}/v1 over {given.ranks} ranks.", flush=True)
        while not ended.done():
            await asyncio.wait([ended], timeout=1.0)
            if backend.overdue():
                backend.interrupt()
        report = ended.result()
        if report is not None:
            print(report, file=sys.stderr, flush=True)
            await asyncio.sleep(FAREWELL)
        return 1 if report is not None else 0
    except BackendGone:
        return 1
    finally:
        if server is not None:
            server.stop()
            await asyncio.wait_for(server.close_all_connections(), FAREWELL)
        for socket in sockets:
            socket.close()
        await asyncio.get_running_loop().run_in_executor(None, backend.stop)


def main(arguments: list[str] | None = None) -> int:
    """Check what can be checked at once, then serve."""
    given = options(arguments)
    try:
        file = ModelFile()
        check_divides(file.config, given.ranks)
        limits = Limits(given.blocks, given.block_size, given.max_tokens, given.max_running)
        return asyncio.run(serve(file, limits, given))
    except (ModelMissing, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"Port {given.port} cannot be had: {error.strerror}.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
