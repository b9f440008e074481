"""Text to token numbers and back, by the vocabulary and the merges of the model's file.

Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909; on bytes as in GPT-2), run by the `tokenizers`
library. Left out: training a vocabulary, chat templates other than that of the course's model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from utils.engine.files import ModelFile

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # what the file's template says
CONTROL = 3  # the token type of "<|im_end|>" and its like


class Tokenizer:
    """The tokenizer of a model's file.

    eos: the token that ends an answer. Tokens such as "<|im_start|>" in a text are taken for what they are.

    >>> tokenizer = Tokenizer()                                          # doctest: +SKIP
    >>> tokenizer.encode("The capital of France is")
    [504, 3575, 282, 4649, 314]
    """

    def __init__(self, file: ModelFile | None = None) -> None:
        from tokenizers import AddedToken, decoders, pre_tokenizers
        from tokenizers import Tokenizer as Library
        from tokenizers.models import BPE

        self.file = file = file or ModelFile()
        words, types = file.field("tokenizer.ggml.tokens"), file.field("tokenizer.ggml.token_type")
        merges = [tuple(pair.split(" ")) for pair in file.field("tokenizer.ggml.merges")]
        self.library = Library(BPE({word: number for number, word in enumerate(words)}, merges))
        self.library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.library.decoder = decoders.ByteLevel()
        control = [word for word, kind in zip(words, types, strict=True) if kind == CONTROL]
        self.library.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in control])
        self.eos: int = file.field("tokenizer.ggml.eos_token_id")
        self.vocab_size = len(words)

    def encode(self, text: str) -> list[int]:
        """Token numbers of a text; nothing is put before or behind it."""
        return self.library.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without those that only mark; bytes that are no UTF-8 become U+FFFD."""
        return self.library.decode(list(tokens), skip_special_tokens=True)

    def chat_text(self, messages: Sequence[Mapping[str, str]]) -> str:
        """A conversation as the model was taught to read it (ChatML), up to where the assistant speaks.

        messages: {"role": "system", "user" or "assistant", "content": text}, in order. Where the first is not the
        system's, the file's own stands before it. ValueError where the file wants another form.

        >>> Tokenizer().chat_text([{"role": "system", "content": "Be brief."}])          # doctest: +SKIP
        '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n'
        """
        template = self.file.field("tokenizer.chat_template")
        if SYSTEM not in template or "'<|im_start|>' + message['role']" not in template:
            raise ValueError(f"{self.file.path.name} has a chat template of its own: {template[:80]!r}...")
        if messages and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": SYSTEM}, *messages]
        said = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
        return "".join(said) + "<|im_start|>assistant\n"

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token numbers of `chat_text`."""
        return self.encode(self.chat_text(messages))


class Stream:
    """Text of tokens that come one by one: a character of several tokens is held back until it is whole.

    All that `feed` and `end` return, put together, is what `decode` gives for all tokens.

    >>> stream = Stream(Tokenizer())                                     # doctest: +SKIP
    >>> [stream.feed(token) for token in stream.tokenizer.encode("né 你")][-1]
    '你'
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.held = tokenizer, []

    def feed(self, token: int) -> str:
        """What this token adds to the text."""
        self.held.append(token)
        text = self.tokenizer.decode(self.held)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        self.held = []  # a text of n tokens costs n steps, not n squared
        return text

    def end(self) -> str:
        """What was held back."""
        text, self.held = self.tokenizer.decode(self.held), []
        return text


def each_new(stream: Stream, tokens: Sequence[int]) -> Iterator[str]:
    """The pieces of text of `tokens`, the rest at the end among them.

    >>> "".join(each_new(Stream(Tokenizer()), Tokenizer().encode("né 你")))   # doctest: +SKIP
    'né 你'
    """
    yield from (stream.feed(token) for token in tokens)
    yield stream.end()
