"""A server that speaks OpenAI's protocol, over the course's engine on 1 or 3 ranks: `python -m utils.serve`.

    from openai import OpenAI
    client = OpenAI(base_url="http://127.0.0.1:8765/v1", api_key="none", max_retries=0)
    client.chat.completions.create(model="smollm2-135m", messages=[{"role": "user", "content": "Hi"}])

`Server` in a `with` block runs one beside a notebook. Left out: authentication (it listens on loopback alone), tools,
images, log-probabilities, penalties; who asks for them is told so.
"""

from __future__ import annotations

from utils.serve.beside import Server

__all__ = ["Server"]
