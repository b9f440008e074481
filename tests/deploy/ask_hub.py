"""One request, from the machine where this is run: `ask_hub.py METHOD URL [BODY]`; prints status and text as JSON.
The token is in the environment."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request


def main(method: str, url: str, body: str = "") -> None:
    headers = {"Authorization": f"token {os.environ['ASK_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, body.encode() or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            print(json.dumps([reply.status, reply.read().decode(errors="replace")]))
    except urllib.error.HTTPError as error:
        print(json.dumps([error.code, error.read().decode(errors="replace")]))
    except OSError as error:
        print(json.dumps([0, str(error)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
