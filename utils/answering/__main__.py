"""Start an answering process on descriptors that were inherited, or on a socket in the file system."""

from __future__ import annotations

import argparse
import os
import socket

from . import serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m utils.answering", description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--fds", type=int, nargs=3, metavar=("CHANNEL", "OUT", "ERR"))
    how.add_argument("--connect", metavar="PATH")
    chosen = parser.parse_args()
    if chosen.fds:
        channel, out, err = socket.socket(fileno=chosen.fds[0]), *chosen.fds[1:]
        os.set_inheritable(channel.fileno(), False)
    else:
        channel = socket.socket(socket.AF_UNIX)
        channel.connect(chosen.connect)
        out, err = socket.recv_fds(channel, 1, 2)[1]
    serve.preload()
    serve.main(channel, out, err)


if __name__ == "__main__":
    main()
