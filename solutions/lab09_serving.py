# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 09: Serving
#
# **20 points.** Requests come when they like, their prompts and outputs differ in length, and the memory for
# keys and values is small. You write an engine that serves them all at once: blocks of cache that requests
# share, attention that reads through a block table, a scheduler that decides anew in every step, and the
# loop around them. Whatever the schedule, **every request gets exactly the text that it would have got
# alone**.
#
# | part | what you write | points |
# |---|---|---|
# | 1 | prefill, decode or release: the lecture's four requests, and harder ones | 1 |
# | 2 | the block manager: reference counts, prefixes that are found again, eviction | 4 |
# | 3 | attention through a block table | 2 |
# | 4 | the scheduler: budget, admission, preemption, cancellation | 5 |
# | 5 | the engine | 3 |
# | 6 | prefill here, decode there: the cache of a request moves to another rank | 2 |
# | 7 | measure it | 1 |
# | 8 | questions | 2 |
#
# *You should have read* notebooks 11 and 12. *Time:* about five hours. *Machine:* any; no GPU is needed.

# %% [markdown]
# ## How this lab works
#
# - Write your code in the cells that raise `NotImplementedError`. The test cells below them are locked. Run
#   them as often as you like.
# - Grading runs the same tests with further requests, block sizes and memory limits. Read the specification,
#   not only the tests.
# - The tests drive your objects **step by step** and look at them after every step: block tables, reference
#   counts, the free list, who was given how many tokens, how many tokens went through the model.
# - Parts 2 to 5 are plain Python: no ranks, no messages. Part 6 uses `dist.send` and `dist.recv` (or `isend`
#   and `irecv`) and no collectives.
#
# ## Words and conventions
#
# - A `Request` (from `utils.serving`) has an `id`, a `prompt` (token numbers), `max_new`, perhaps a `stop`
#   token; and what the engine knows about it: `output` (tokens generated so far), `computed` (for how many of
#   its tokens, from the first on, keys and values are in the cache) and `blocks` (its block table, 块表).
#   `request.tokens` is prompt and output together; `request.finished` says whether a stop condition holds.
# - The cache is cut into **blocks** (块) of `block_size` slots. Position i of a request lies in slot
#   `i % block_size` of block `blocks[i // block_size]`. A block number means the same place in every layer.
# - The last token that was generated has no keys and values yet: it is the input of the next step. So a
#   request in the middle of its text has `computed == len(tokens) - 1`.
# - A **step** (or iteration) is one pass through the model, for some tokens of some requests.
# - **Preemption** (抢占): a running request gives all its blocks back, keeps its output, and waits. When it
#   comes back, the keys and values of all its tokens, prompt *and* output, are computed again.

# %% shared="imports"
import json
from functools import cache, partial
from random import Random

import torch
import torch.distributed as dist
import torch.nn.functional as F

from utils import check, launch
from utils.checks import serving
from utils.models import Decoder, DecoderConfig
from utils.serving import KVBlocks, PlainBlocks, Request, latency


def tokens_of(count, first=1):
    """The tests' simplest text."""
    return list(range(first, first + count))


# %% [markdown]
# # Part 1. Which queue
#
# ## queue_of
#
# *Prefill* (预填充) computes keys and values of many known tokens at once; *decode* (解码) adds one token to a
# text whose cache is complete. `queue_of(request)` says what a request needs next:
#
# - `"release"`: a stop condition holds; it needs nothing, and its blocks are for others;
# - `"decode"`: it has an output, and only its last token is not in the cache;
# - `"prefill"`: everything else.
#
# *Example*, the lecture's: D has 800 prompt tokens and nothing else: prefill. E has generated 30 tokens and
# waits for its 31st: decode. F has met its stop condition: release. G has a prompt of 3 tokens and has just
# come: prefill. What about a request with an output that was preempted? *Size:* about 5 lines.

# %% solution="queue_of"
def queue_of(request: Request) -> str:
    ### BEGIN SOLUTION
    if request.finished:
        return "release"
    complete = request.computed == len(request.tokens) - 1
    return "decode" if request.output and complete else "prefill"
    ### END SOLUTION


# %% test="queue_of_each" points=1
def probe_queue(cases):
    return [queue_of(Request(id=0, **case)) for _, case, _, _ in cases]


def verdict_queue(cases):
    run = launch(probe_queue, cases, ranks=None, timeout=10)
    for got, (who, _, queue, why) in zip(run.value, cases, strict=True):
        assert got == queue, f'queue_of: {who} goes to "{queue}", not to {got!r}: {why}.'


verdict_queue([
    ("D", {"prompt": tokens_of(800), "max_new": 9}, "prefill", "nothing of its prompt is in the cache"),
    ("E", {"prompt": tokens_of(40), "max_new": 99, "output": tokens_of(30), "computed": 69}, "decode",
     "all but its last token are in the cache"),
    ("F", {"prompt": tokens_of(40), "max_new": 99, "output": tokens_of(17), "stop": 17, "computed": 56}, "release",
     "its last token is its stop token"),
    ("G", {"prompt": tokens_of(3), "max_new": 9}, "prefill", "nothing of its prompt is in the cache"),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_queue([
    ("a request that was preempted after 30 tokens", {"prompt": tokens_of(5), "max_new": 99, "output": tokens_of(30)},
     "prefill", "it was preempted, so nothing is in the cache; that it has an output proves nothing"),
    ("a request preempted after one token, half computed again",
     {"prompt": tokens_of(9), "max_new": 9, "output": [4], "computed": 8}, "prefill",
     "two of its tokens are not in the cache"),
    ("a request whose prompt is computed in chunks, 6 of 9 so far",
     {"prompt": tokens_of(9), "max_new": 9, "computed": 6}, "prefill", "three tokens of its prompt are missing"),
    ("a new request of which all but the last token were found in the cache",
     {"prompt": tokens_of(9), "max_new": 9, "computed": 8}, "prefill", "it has not got its first token yet"),
    ("a prompt of one token", {"prompt": [3], "max_new": 9}, "prefill", "it has not got its first token yet"),
    ("a request with max_new tokens", {"prompt": [3], "max_new": 2, "output": [8, 8], "computed": 2}, "release",
     "it has max_new tokens"),
    ("a request with its stop token in the middle of its prompt",
     {"prompt": [5, 7, 5], "max_new": 9, "output": [6], "stop": 7, "computed": 3}, "decode",
     "a stop token counts in the output only"),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 2. Blocks
#
# ## BlockManager
#
# It knows which blocks are free, how many requests use each, and what full blocks hold. It touches no tensor.
# `BlockManager(num_blocks, block_size, hash_fn=hash)` has
#
# - `num_blocks`, `block_size`;
# - `ref_count`: a list, how many tables each block is in;
# - `free`: the blocks with reference count 0, in the order in which they will be handed out. A free block
#   **keeps what it holds**, and can be found, until it is handed out again. At first: 0, 1, 2, ...
#
# and these methods:
#
# - `allocate(count)` returns a list of `count` free blocks, now with reference count 1. **All or nothing**:
#   with fewer free blocks it returns None and changes nothing. It takes what has been free for longest (blocks
#   that hold nothing to be found may go first). What these blocks held **can no longer be found**.
# - `acquire(blocks)`: one more reference for each, as somebody else will use them too. A block that was free is
#   free no longer.
# - `release(blocks)`: one reference less for each. At 0 a block joins the end of `free`. The **last** block of
#   the table goes first, so that a beginning outlives what follows it.
# - `register(tokens, blocks)`: the keys and values of `tokens` are in `blocks` (from position 0 on). Every
#   *full* block can be found from now on. Is a prefix known already, nothing changes for that block.
# - `match(tokens)` returns the blocks that hold the beginning of `tokens`, the longest that can be found, full
#   blocks only. It changes nothing. **At least one token must be left over**: without computing one there are
#   no logits, and no next token. So 8 tokens in blocks of 4 match one block at most.
#
# What makes a block the right one? The keys and values of a token depend on **all tokens before it**. So a
# block is found by its own tokens *and everything before them*: the usual key is
# `hash_fn((key of the block before, tuple of own tokens))`. And hashes collide: 4711 and 815 may have one key.
# Another user's text would be continued. So **a hit is compared with the real tokens**, from the first
# position on, before it is used. Call `hash_fn` for your hashes: the tests pass one that collides often. (You
# may also do without hashes.)
#
# *Example*, blocks of 2: `a = allocate(2)` is [0, 1]; `register([5, 6, 7, 8], a)`; `match([5, 6, 7, 8, 9])` is
# [0, 1]; `match([5, 6, 7, 8])` is [0]; `match([7, 8, 9])` is []. `release(a)`: `free` ends with 1, 0, and
# `match` still finds them, until `allocate` hands them out.
#
# *Size:* about 45 lines.

# %% solution="block_manager"
class BlockManager:
    def __init__(self, num_blocks: int, block_size: int, hash_fn=hash) -> None:
        self.num_blocks, self.block_size, self.hash_fn = num_blocks, block_size, hash_fn
        ### BEGIN SOLUTION
        self.ref_count = [0] * num_blocks
        self.free = list(range(num_blocks))
        self.found = {}  # key -> block
        self.holds = {}  # block -> (key, all tokens up to its end)
        ### END SOLUTION

    def allocate(self, count: int) -> list[int] | None:
        ### BEGIN SOLUTION
        if count > len(self.free):
            return None
        blocks, self.free = self.free[:count], self.free[count:]
        for block in blocks:
            self.ref_count[block] = 1
            if block in self.holds:
                del self.found[self.holds.pop(block)[0]]
        return blocks
        ### END SOLUTION

    def acquire(self, blocks: list[int]) -> None:
        ### BEGIN SOLUTION
        for block in blocks:
            if self.ref_count[block] == 0:
                self.free.remove(block)
            self.ref_count[block] += 1
        ### END SOLUTION

    def release(self, blocks: list[int]) -> None:
        ### BEGIN SOLUTION
        for block in reversed(blocks):
            self.ref_count[block] -= 1
            if self.ref_count[block] == 0:
                self.free.append(block)
        ### END SOLUTION

    def register(self, tokens: list[int], blocks: list[int]) -> None:
        ### BEGIN SOLUTION
        key, size = 0, self.block_size
        for block, end in zip(blocks, range(size, len(tokens) + 1, size)):
            key = self.hash_fn((key, tuple(tokens[end - size : end])))
            if key not in self.found and block not in self.holds:
                self.found[key] = block
                self.holds[block] = key, tuple(tokens[:end])
        ### END SOLUTION

    def match(self, tokens: list[int]) -> list[int]:
        ### BEGIN SOLUTION
        key, size, blocks = 0, self.block_size, []
        for end in range(size, len(tokens), size):  # ends before the last token
            key = self.hash_fn((key, tuple(tokens[end - size : end])))
            block = self.found.get(key)
            if block is None or self.holds[block][1] != tuple(tokens[:end]):
                break
            blocks.append(block)
        return blocks
        ### END SOLUTION


# %% [markdown]
# The next cell is the tests' own. It plays a script on your manager and returns what it saw after each line.

# %% shared="scripts"
HASHES = {
    "python's hash": hash,
    "a hash with 3 values": lambda item: hash(item) % 3,
    "a hash that is always 0": lambda item: 0,
}


def start(manager, tables, name, text):
    """What a scheduler does when it admits a request: match, acquire, allocate the rest."""
    matched = list(manager.match(list(text)))
    manager.acquire(list(matched))
    fresh = manager.allocate(-(-len(text) // manager.block_size) - len(matched))
    if fresh is None:
        manager.release(list(matched))
    else:
        tables[name] = [*matched, *fresh]
    return {"matched": matched, "fresh": None if fresh is None else list(fresh)}


def share(manager, tables, name, other):
    """`name` uses all blocks of `other` too."""
    manager.acquire(list(tables[other]))
    tables[name] = list(tables[other])
    return {}


def register(manager, tables, name, text):
    table = tables.get(name)  # None: there was no room for this text
    if table is not None:
        manager.register(list(text), list(table))
    return {}


def release(manager, tables, name, nothing):
    table = tables.pop(name, None)
    if table is not None:
        manager.release(list(table))
    return {}


def match(manager, tables, name, text):
    return {"matched": list(manager.match(list(text)))}


LINES = {"start": start, "share": share, "register": register, "release": release, "match": match}


def play_script(manager, script):
    """One entry a line of the script: what came back, and the manager afterwards."""
    tables, log = {}, []
    for op, name, what in script:
        entry = LINES[op](manager, tables, name, what)
        held = {name: list(table) for name, table in tables.items()}
        ref = [manager.ref_count[block] for block in range(manager.num_blocks)]
        log.append({**entry, "tables": held, "ref": ref, "free": list(manager.free)})
    return log


def spoken(op, name, what):
    """A line of a script in words."""
    if op == "share":
        return f"acquire(the table of {what})"
    if op == "release":
        return f"release(the table of {name})"
    text = str(list(what)) if len(what) < 13 else f"{len(what)} tokens"
    return {"start": f"match and allocate for {text}", "register": f"register({text})", "match": f"match({text})"}[op]


def random_script(seed, block_size, vocab=2, lines=60):
    """Texts of few different tokens, so that beginnings repeat; started, registered, released in any order."""
    random, script, live = Random(seed), [], {}
    for line in range(lines):
        if len(live) > 3 or (live and random.random() < 0.35):
            name = random.choice(sorted(live))
            script.append(("release", name, None))
            del live[name]
        else:
            text = [random.randrange(vocab) for _ in range(random.randint(1, 5 * block_size))]
            script += [("start", line, text), ("register", line, text)]
            live[line] = text
    return script


# %% test="blocks_counted" points=1
def probe_counted(num_blocks, block_size, script):
    return play_script(BlockManager(num_blocks, block_size), script)


def verdict_counted(num_blocks, block_size, script):
    log = launch(probe_counted, num_blocks, block_size, script, ranks=None, timeout=10).value
    before = {"free": list(range(num_blocks)), "ref": [0] * num_blocks, "tables": {}}
    for line, entry in zip(script, log, strict=True):
        where = f"BlockManager({num_blocks}, {block_size}), after {spoken(*line)}"
        if line[0] == "start":
            need = -(-len(line[2]) // block_size) - len(entry["matched"])
            free = len([block for block in before["free"] if block not in entry["matched"]])
            if need > free:
                got = entry["fresh"]
                assert got is None, f"{where}: {need} blocks from {free} free ones is impossible; {got} came, not None."
                same = entry["ref"] == before["ref"] and sorted(entry["free"]) == sorted(before["free"])
                assert same, f"{where}: it returned None and yet took blocks: all or nothing."
            else:
                got = entry["fresh"]
                assert got is not None, f"{where}: {free} blocks are free, {need} are asked for, and None came back."
                assert len(got) == need, f"{where}: {need} blocks are asked for; {got} came back."
        tables = {f"text {name}": table for name, table in entry["tables"].items()}
        serving.blocks_conserved(entry["ref"], entry["free"], tables, where)
        before = entry


def distinct(name, count):
    return [100 * name + i for i in range(count)]


verdict_counted(4, 2, [
    ("start", 1, distinct(1, 3)), ("share", 2, 1), ("start", 3, distinct(3, 5)), ("release", 1, None),
    ("start", 4, distinct(4, 4)), ("release", 2, None), ("start", 5, distinct(5, 8)), ("start", 6, distinct(6, 7)),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_counted(5, 3, [
    ("start", 1, distinct(1, 15)), ("start", 2, distinct(2, 1)), ("share", 3, 1), ("share", 4, 1), ("release", 3, None),
    ("release", 1, None), ("start", 5, distinct(5, 1)), ("release", 4, None), ("start", 6, distinct(6, 13)),
    ("release", 6, None), ("start", 7, distinct(7, 14)), ("release", 7, None),
])  # fmt: skip
for seed, size in ((1, 1), (2, 3)):
    verdict_counted(9, size, random_script(seed, size))
### END HIDDEN TESTS

# %% test="blocks_found" points=1
def probe_found(num_blocks, block_size, script):
    return play_script(BlockManager(num_blocks, block_size), script)


def verdict_found(num_blocks, block_size, script, wanted):
    """wanted: for each `match` of the script, how many blocks are found."""
    log = launch(probe_found, num_blocks, block_size, script, ranks=None, timeout=10).value
    lines = [(line, entry) for line, entry in zip(script, log, strict=True) if line[0] == "match"]
    for (line, entry), (count, whose) in zip(lines, wanted, strict=True):
        where, got = f"BlockManager({num_blocks}, {block_size}): {spoken(*line)}", entry["matched"]
        want = entry["tables"][whose][:count]
        left = len(line[2]) - len(got) * block_size
        assert left > 0, (
            f"{where} returned {got}: no token is left to compute, so there are no logits for the next one. At least "
            f"one token must be left over."
        )
        known = "the longest beginning that is known (full, registered blocks, with all that comes before them)"
        assert got == want, f"{where} returned {got}; {want} is {known}."
        others = [one for one in log if one["tables"] == entry["tables"]]
        assert all(one["ref"] == entry["ref"] for one in others), f"{where} changed reference counts; it only looks."


TEXT = [5, 6, 7, 8, 9, 10, 11]
verdict_found(6, 2, [
    ("start", "a", TEXT), ("match", "", TEXT), ("register", "a", TEXT[:4]), ("match", "", TEXT),
    ("register", "a", TEXT), ("match", "", [*TEXT, 1]), ("match", "", TEXT[:6]), ("match", "", [5, 6, 0, 0, 0]),
], [(0, "a"), (2, "a"), (3, "a"), (2, "a"), (1, "a")])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_found(6, 4, [
    ("start", "a", tokens_of(8)), ("register", "a", tokens_of(8)), ("match", "", tokens_of(8)),
    ("match", "", tokens_of(9)), ("match", "", tokens_of(4)), ("match", "", tokens_of(1)), ("match", "", tokens_of(5)),
    ("start", "b", [*tokens_of(8), 50, 51, 52, 53]), ("register", "b", [*tokens_of(8), 50, 51, 52, 53]),
    ("match", "", [*tokens_of(8), 50, 51, 52, 53, 54]), ("match", "", [*tokens_of(8), 50, 51, 52, 0, 54]),
    ("match", "", tokens_of(8, first=5)),
], [(1, "a"), (2, "a"), (0, "a"), (0, "a"), (1, "a"), (3, "b"), (2, "b"), (0, "b")])  # fmt: skip
verdict_found(3, 1, [
    ("start", "a", [4, 4, 4]), ("register", "a", [4, 4]), ("match", "", [4, 4, 4, 4]), ("match", "", [4, 4]),
    ("match", "", [4]), ("match", "", [3, 4, 4]),
], [(2, "a"), (1, "a"), (0, "a"), (0, "a")])  # fmt: skip
### END HIDDEN TESTS

# %% test="blocks_verified" points=1
def probe_verified(cases):
    return [play_script(BlockManager(40, size, HASHES[name]), script) for name, size, script in cases]


def truth(blocks, matched, tokens, size):
    """Why a matched block is not the right one, in words; None where all are right."""
    for place, block in enumerate(matched):
        held, prefix = blocks.get(block), tuple(tokens[: (place + 1) * size])
        if held == prefix:
            continue
        own = f"returned block {block} for tokens {list(prefix[-size:])} at position {place * size}"
        if held is None:
            return f"{own}; nothing that is known lies there"
        if held[-size:] == prefix[-size:]:
            return (
                f"{own}. It holds these tokens, but after {list(held[:-size])} and not after {list(prefix[:-size])}: "
                f"keys and values depend on everything before. The key of a block must include what comes before it, "
                f"and a hit must be compared from the first token on"
            )
        return f"{own}; it holds {list(held[-size:])}. Two keys collided, and the tokens were not compared"
    return None


def verdict_verified(cases):
    run = launch(probe_verified, cases, ranks=None, timeout=10)
    for (name, size, script), log in zip(cases, run.value, strict=True):
        blocks = {}  # what each block really holds: all tokens up to its end
        for line, entry in zip(script, log, strict=True):
            op, who, tokens = line
            if op == "start" and entry["fresh"]:
                blocks.update(dict.fromkeys(entry["fresh"]))
            if op == "register":
                table = entry["tables"].get(who, [])
                blocks.update({b: tuple(tokens[: (i + 1) * size]) for i, b in enumerate(table[: len(tokens) // size])})
            if op in ("start", "match"):
                why = truth(blocks, entry["matched"], tokens, size)
                assert why is None, f"BlockManager with {name}, blocks of {size}: {spoken(*line)} {why}."


verdict_verified([
    ("python's hash", 2, [
        ("start", "a", [1, 2, 3, 4, 5]), ("register", "a", [1, 2, 3, 4]), ("match", "", [8, 9, 3, 4, 5]),
        ("match", "", [257, 2, 3, 4, 5]),
    ]),
])  # fmt: skip
### BEGIN HIDDEN TESTS
HUGE = 2**61 - 1  # python's hash of this number is that of 0
verdict_verified([
    ("python's hash", 2, [
        ("start", "a", [65, 0, 66, 67, 9]), ("register", "a", [65, 0, 66, 67]), ("match", "", [321, 0, 66, 67, 9]),
        ("match", "", [65, 256, 66, 67, 9]), ("match", "", [0, 65, 66, 67, 9]), ("match", "", [66, 67, 66, 67, 9]),
        ("match", "", [65, HUGE, 66, 67, 9]), ("start", "b", [8, 8, 66, 67, 9]), ("register", "b", [8, 8, 66, 67]),
        ("match", "", [7, 7, 66, 67, 9]), ("match", "", [67, 66, 0, 65, 1]),
    ]),
    *[(name, size, random_script(seed, size, vocab=3)) for name in HASHES for seed, size in ((3, 1), (4, 2), (5, 3))],
])  # fmt: skip
### END HIDDEN TESTS

# %% test="blocks_evicted" points=1
def probe_evicted(num_blocks, block_size, script):
    return play_script(BlockManager(num_blocks, block_size), script)


def verdict_evicted(num_blocks, block_size, script):
    log = launch(probe_evicted, num_blocks, block_size, script, ranks=None, timeout=10).value
    held, released, clock, tables, before = {}, {}, 0, {}, {}
    for line, entry in zip(script, log, strict=True):
        (op, name, tokens), where = line, f"BlockManager({num_blocks}, {block_size}): {spoken(*line)}"
        for place, block in enumerate(entry.get("matched", ())):
            prefix = tuple(tokens[: (place + 1) * block_size])
            gone = f"{where} found block {block}, which was handed out again since: what it held is overwritten"
            assert held.get(block) == prefix, f"{gone}. `allocate` must make blocks unfindable."
        if op in ("start", "match"):  # a free block keeps what it holds
            known = {prefix for prefix in held.values() if prefix}
            full = (len(tokens) - 1) // block_size
            ends = [end * block_size for end in range(1, full + 1)]
            run = next((place for place, end in enumerate(ends) if tuple(tokens[:end]) not in known), full)
            kept = "free blocks keep what they hold until they are handed out, and the longest-free ones go first"
            assert len(entry["matched"]) == run, f"{where} found {len(entry['matched'])} of {run} known blocks; {kept}."
        for block in entry.get("fresh") or ():
            if not held.get(block):
                continue  # nothing that can be found is lost with it
            taken = {*entry["fresh"], *entry["matched"]}
            older = [b for b in released if released[b] < released.get(block, -1) and held[b] and b not in taken]
            one_table = all(tables.get(b) == tables.get(block) for b in older)
            why = "the last block of a table is the first to go" if one_table else "the longest-free block goes first"
            assert not older, f"{where}: block {block} was handed out, and block {older[0]} before it in line: {why}."
        for block in entry.get("fresh") or ():
            held[block] = None
        for block in [*(entry.get("fresh") or ()), *entry.get("matched", ())]:
            if op == "start":
                released.pop(block, None)
        if op == "register":
            for place, block in enumerate(entry["tables"][name][: len(tokens) // block_size]):
                held[block] = tuple(tokens[: (place + 1) * block_size])
        if op == "release":
            for block in reversed(before[name]):
                if entry["ref"][block] == 0:
                    clock += 1
                    released[block], tables[block] = clock, name
        before = entry["tables"]


def text_of(name, count):
    return [10 * name + i for i in range(count)]


def served(name, count):
    """Lines that start, register and release a text of its own."""
    return [("start", name, text_of(name, count)), ("register", name, text_of(name, count)), ("release", name, None)]


verdict_evicted(4, 2, [
    *served(1, 4), *served(2, 4), ("match", "", [*text_of(1, 4), 0]), ("start", 3, text_of(3, 2)),
    ("match", "", [*text_of(1, 4), 0]), ("match", "", [*text_of(2, 4), 0]),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_evicted(6, 2, [
    *served(1, 4), *served(2, 4), ("start", 3, [*text_of(1, 4), 7]), ("start", 4, text_of(4, 6)),
    ("match", "", [*text_of(2, 4), 0]), ("release", 3, None), ("match", "", [*text_of(1, 4), 0]),
    ("start", 5, text_of(5, 4)), ("match", "", [*text_of(1, 4), 0]), ("release", 4, None), ("release", 5, None),
    ("match", "", [*text_of(1, 4), 0]), ("start", 6, text_of(6, 12)), ("match", "", [*text_of(1, 4), 0]),
])  # fmt: skip
verdict_evicted(5, 1, [
    *served(1, 2), *served(2, 3), ("start", 3, [*text_of(2, 2), 7]), ("start", 4, text_of(4, 2)),
    ("match", "", [*text_of(2, 3), 0]), ("release", 3, None), ("release", 4, None), *served(5, 3),
    ("match", "", [*text_of(2, 2), 0]),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 3. Attention through a block table
#
# ## paged_attention
#
# A step computes some tokens of several requests in one pass: 5 tokens of one prompt, 1 of a text in
# progress, 3 of another prompt. They are put side by side, T tokens in one row, no padding. The decoder's
# `attention=` argument lets you say how they attend. `paged_attention(cache, rows, layer, q, k, v, positions)`
# does it for one layer:
#
# - `cache`: a `KVBlocks`; `cache.k[layer]` and `cache.v[layer]` are `[num_blocks, block_size, kv_heads,
#   head_dim]`.
# - `rows`: a list of `(table, start, count)`, one for each request in the pass, in the order in which their
#   tokens lie along T: its block table, the position of its first token in this pass, how many there are.
# - `q` `[1, heads, T, head_dim]`; `k`, `v` `[1, kv_heads, T, head_dim]`; positions are turned into q and k already
#   (you do not need `positions`). Returns `[1, heads, T, head_dim]`.
#
# First **write** k and v of all T tokens into their slots. Then each request's tokens **attend** to its own
# slots 0 to start + count - 1, read through the table: position i sees positions 0 to i and nothing else.
# Query head h reads KV head `h * kv_heads // heads`. Write nothing but these slots. Where the counts do
# not add up to T, raise a `ValueError` that says both numbers.
#
# *Example*, blocks of 4: `([7, 2], 5, 2)`: positions 5 and 6 go to slots 1 and 2 of block 2; position 5 sees
# 4 slots of block 7 and 2 of block 2.
#
# *Careful:* slots of other requests and slots that nobody has written hold anything. `is_causal=True` of
# `scaled_dot_product_attention` lines up the **first** query with the first key; what do you need where 5
# positions are in the cache already? *Size:* about 20 lines.

# %% solution="paged_attention"
def paged_attention(
    cache: KVBlocks,
    rows: list[tuple[list[int], int, int]],
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    ### BEGIN SOLUTION
    total = sum(count for _, _, count in rows)
    if total != q.shape[2]:
        raise ValueError(f"rows stand for {total} tokens, and q has {q.shape[2]}")
    keys, values = (kept[layer].flatten(0, 1) for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
    size = cache.block_size
    places = [
        torch.tensor([table[i // size] * size + i % size for i in range(start + count)]) for table, start, count in rows
    ]
    new = torch.cat([place[start:] for place, (_, start, _) in zip(places, rows)])
    keys[new], values[new] = k[0].transpose(0, 1), v[0].transpose(0, 1)
    outputs, begin = [], 0
    for place, (_, start, count) in zip(places, rows):
        seen = torch.arange(start + count) <= torch.arange(start, start + count)[:, None]
        own_k, own_v = (kept[place].transpose(0, 1)[None] for kept in (keys, values))
        own_q = q[:, :, begin : begin + count]
        outputs.append(F.scaled_dot_product_attention(own_q, own_k, own_v, attn_mask=seen, enable_gqa=True))
        begin += count
    return torch.cat(outputs, dim=2)
    ### END SOLUTION


# %% [markdown]
# The next cell makes the tests' inputs. `SENTINEL` stands in every slot that has not been written.

# %% shared="paged_cases"
SENTINEL = 1000.0


def paged_case(blocks, size, rows, heads=4, kv_heads=2, dim=4, layers=2, seed=0):
    """A cache in which the history of each row lies in its blocks, and new q, k, v for each layer."""
    config = DecoderConfig(vocab_size=8, hidden=heads * dim, layers=layers, heads=heads, kv_heads=kv_heads, ffn=8)
    cache, generator = KVBlocks(config, blocks, size, fill=SENTINEL), torch.Generator().manual_seed(seed)
    total = sum(count for _, _, count in rows)
    for kept in (cache.k, cache.v):
        for table, start, _ in rows:
            for i in range(start):
                slot = kept[:, table[i // size], i % size]
                written = torch.randn(slot.shape, generator=generator)
                slot.copy_(torch.where(slot == SENTINEL, written, slot))  # shared beginnings are written once
    shape = (layers, 1, heads + 2 * kv_heads, total, dim)
    q, k, v = torch.randn(shape, generator=generator).split([heads, kv_heads, kv_heads], dim=2)
    return cache, q, k, v


ROWS = {
    "one prompt, one block": (3, 4, [([1], 0, 3)]),
    "a prompt over three blocks": (5, 2, [([4, 0, 2], 0, 5)]),
    "one token after five": (4, 4, [([2, 0], 5, 1)]),
    "a chunk of a prompt": (4, 4, [([3, 1], 3, 4)]),
    "two that decode": (6, 3, [([5, 1], 4, 1), ([0, 2, 3], 6, 1)]),
    "all at once": (9, 2, [([8, 3], 3, 1), ([0, 7, 1], 2, 3), ([6, 2], 0, 3), ([5], 1, 1)]),
    "a shared beginning": (7, 2, [([1, 4, 3], 4, 2), ([1, 4, 0], 4, 1), ([1, 6], 2, 2)]),
    "blocks of one slot": (9, 1, [([8, 0, 3, 5], 2, 2), ([7, 1], 1, 1)]),
    "a step that ends at a block's edge": (6, 4, [([5, 2], 6, 2), ([0], 0, 4)]),
}


# %% test="paged_values" points=1
def probe_paged(names, heads, kv_heads):
    results = []
    for name in names:
        cache, q, k, v = paged_case(*ROWS[name], heads=heads, kv_heads=kv_heads)
        rows = [(list(table), start, count) for table, start, count in ROWS[name][2]]
        positions = torch.cat([torch.arange(start, start + count) for _, start, count in rows])[None]
        layers = zip((0, 1), q, k, v)
        results.append([paged_attention(cache, rows, layer, *qkv, positions) for layer, *qkv in layers])
    return results


def contiguous(kept, new, table, start, count, begin, size):
    """History and new tokens of one row in one piece: [1, kv_heads, start + count, head_dim]."""
    history = [kept[table[i // size], i % size] for i in range(start)]
    return torch.stack([*history, *new[0, :, begin : begin + count].unbind(1)]).transpose(0, 1)[None]


def attended(case, heads, kv_heads, layer, mistake=""):
    """The oracle: torch's attention over each row by itself, its keys and values in one piece."""
    blocks, size, rows = case
    cache, q, k, v = paged_case(blocks, size, rows, heads=heads, kv_heads=kv_heads)
    outputs, begin = [], 0
    for table, start, count in rows:
        keys, values = (
            contiguous(kept[layer], new[layer], table, start, count, begin, size)
            for kept, new in ((cache.k, k), (cache.v, v))
        )
        mask = torch.ones(count, start + count, dtype=torch.bool).tril(start)
        if mistake == "top left":
            mask = torch.ones(count, start + count, dtype=torch.bool).tril(0)
        elif mistake == "future":
            mask = torch.ones(count, start + count, dtype=torch.bool)
        if mistake == "tiled":
            keys, values = (t.repeat(1, heads // kv_heads, 1, 1) for t in (keys, values))
        own = q[layer][:, :, begin : begin + count]
        outputs.append(F.scaled_dot_product_attention(own, keys, values, attn_mask=mask, enable_gqa=True))
        begin += count
    return torch.cat(outputs, dim=2)


MISTAKES = {
    "the mask lines up the first query with the first key (is_causal=True does); earlier positions are in the cache "
    "already": "top left",
    "a position sees later ones of the same pass": "future",
    "query heads read KV heads in turn (0 1 0 1); neighbours share one (0 0 1 1)": "tiled",
}


def looks_like(name, heads, kv_heads, layer, want):
    """What some misunderstandings give, where that is something else."""
    likes = {text: attended(ROWS[name], heads, kv_heads, layer, mistake) for text, mistake in MISTAKES.items()}
    likes["this is layer 0's result"] = attended(ROWS[name], heads, kv_heads, 0)
    return {text: other for text, other in likes.items() if not torch.allclose(other, want, atol=1e-4)}


def verdict_paged(names, heads=4, kv_heads=2):
    run = launch(probe_paged, names, heads, kv_heads, ranks=None, timeout=10)
    for name, layers in zip(names, run.value, strict=True):
        for layer, got in enumerate(layers):
            want = attended(ROWS[name], heads, kv_heads, layer)
            what = f"paged_attention ({name}, layer {layer}, {heads} heads, {kv_heads} KV heads)"
            try:
                check.agree(got, want, what)
            except check.CheckFailed:  # wrong: only now is it worth the time to find out what it looks like
                check.agree(got, want, what, resembles=looks_like(name, heads, kv_heads, layer, want))


verdict_paged(["one prompt, one block", "one token after five", "two that decode"])
### BEGIN HIDDEN TESTS
verdict_paged(["a prompt over three blocks", "a chunk of a prompt", "all at once"])
verdict_paged(["a shared beginning", "blocks of one slot", "a step that ends at a block's edge"], heads=6, kv_heads=3)
verdict_paged(["all at once"], heads=4, kv_heads=4)
verdict_paged(["all at once"], heads=4, kv_heads=1)
### END HIDDEN TESTS

# %% test="paged_writes" points=1
def probe_writes(names):
    results = []
    for name in names:
        cache, q, k, v = paged_case(*ROWS[name])
        rows = [(list(table), start, count) for table, start, count in ROWS[name][2]]
        positions = torch.cat([torch.arange(start, start + count) for _, start, count in rows])[None]
        paged_attention(cache, rows, 1, q[1], k[1], v[1], positions)
        results.append({"k": cache.k, "v": cache.v, "rows": rows})
    return results


def probe_refused():
    cache, q, k, v = paged_case(3, 4, [([1], 0, 3)])
    try:
        paged_attention(cache, [([1], 0, 2)], 0, q[0], k[0], v[0], torch.arange(3)[None])
    except ValueError as error:
        return str(error)


def verdict_writes(names):
    run = launch(probe_writes, names, ranks=None, timeout=10)
    for name, got in zip(names, run.value, strict=True):
        (cache, _, k, v), (_, size, rows) = paged_case(*ROWS[name]), ROWS[name]
        before = {"k": cache.k.clone(), "v": cache.v.clone()}
        begin = 0
        for table, start, count in rows:
            for i in range(start, start + count):
                for kept, new in ((cache.k, k), (cache.v, v)):
                    kept[1, table[i // size], i % size] = new[1, 0, :, begin + i - start]
            begin += count
        for which, want in (("k", cache.k), ("v", cache.v)):
            what, now = f"paged_attention ({name}): cache.{which} after layer 1", got[which]
            for layer in (0, 1):
                slots = [divmod(i, size) for i in range(len(want[layer].flatten(0, 1)))]
                off = [place for place in slots if not torch.equal(now[layer][place], want[layer][place])]
                if off:
                    still = torch.equal(now[layer][off[0]], before[which][layer][off[0]])
                    why = "was not written" if still else "holds something else"
                    if torch.equal(want[layer][off[0]], before[which][layer][off[0]]):
                        why = "must stay as it was"
                    raise check.CheckFailed(f"{what}: layer {layer}, block {off[0][0]}, slot {off[0][1]} {why}.")
        assert got["rows"] == rows, f"paged_attention ({name}): rows are the caller's, and were changed."


verdict_writes(["one prompt, one block", "one token after five", "two that decode"])
### BEGIN HIDDEN TESTS
verdict_writes(["a prompt over three blocks", "a chunk of a prompt", "all at once", "blocks of one slot"])
verdict_writes(["a shared beginning", "a step that ends at a block's edge"])
said = launch(probe_refused, ranks=None, timeout=10).value
assert said is not None, "rows for 2 tokens and a q of 3: a ValueError is asked for, and none came."
assert "2" in said and "3" in said, f"rows for 2 tokens, q for 3: the ValueError should say both numbers, not {said!r}."
### END HIDDEN TESTS

# %% [markdown]
# # Part 4. The scheduler
#
# ## Scheduler
#
# It decides in every step, anew, who computes how many tokens. `Scheduler(blocks, max_tokens, max_running)`
# gets a block manager (use only what part 2 specifies: the tests hand it one of their own), the most tokens
# in a step, and the most requests that run at once (at most `max_tokens`). It has two lists of `Request`s,
# both in order of arrival: `waiting` and `running`.
#
# **`add(request)`**: it waits, last. If prompt and `max_new` tokens together need more blocks than there
# are in the whole cache, it can never be finished: raise a `ValueError`.
#
# **`schedule()`** returns a list of pairs `(request, count)`: whose next `count` tokens are computed in this
# step. In this order:
#
# 1. *Decode first*: each running request that is decoding gets 1 token, in order of arrival. So a long prompt
#    stalls nobody. If it needs a new block and none is free, **the latest arrival of all that run** is
#    preempted, again and again until there is one (it may be the request itself). Preempted: all blocks are
#    released, `blocks` is empty and `computed` 0; it goes back to `waiting`, to its place by arrival.
# 2. *Prompts in chunks* (分块预填充): what is left of `max_tokens` goes to running requests that are not decoding, in
#    order of arrival, each as much as it can use.
# 3. *Admission*: then, **unless this step preempted someone**, the first that waits is admitted, and the next,
#    while fewer than `max_running` run, something is left of `max_tokens`, and there is room: blocks for **all its
#    tokens so far** (prompt, and output if it was preempted). A prefix that `match` finds is acquired and not
#    computed: `computed` begins at its end. The others are allocated. **Nobody is admitted before one who came
#    earlier**, even if it would fit. The request gets as much as is left of `max_tokens`.
#
# **`update(batch, predicted)`** is called after the pass, with the batch and, for each pair, the token that the
# model predicts after the last token it computed for that request. `computed` grows by `count`; full blocks are
# registered. Has a request *all* its tokens computed, its prediction is appended to `output`; in the
# middle of a prompt the prediction means nothing. Who is finished then leaves `running` and releases its blocks
# (`blocks` is empty afterwards).
#
# **`cancel(id)`**: the user has gone. The request, waiting or running, leaves, and its blocks are released.
# Returns True; False if there is no such request (any more). It is called between steps.
#
# *Example*, blocks of 4, `max_tokens` 6, `max_running` 2; A has 8 prompt tokens, B has 3:
#
#     step 0: A 6            A's table has 2 blocks
#     step 1: A 2, B 3       A gets its first token, B too
#     step 2: A 1, B 1       A's 9th token needs a third block
#
# *Careful:* acquire what was matched **before** you allocate the rest. Matched blocks may be free ones, and
# `allocate` would hand them out. *Size:* about 60 lines.

# %% solution="scheduler"
class Scheduler:
    def __init__(self, blocks, max_tokens: int, max_running: int) -> None:
        self.blocks, self.max_tokens, self.max_running = blocks, max_tokens, max_running
        self.waiting, self.running = [], []

    def add(self, request: Request) -> None:
        ### BEGIN SOLUTION
        needed = -(-(len(request.prompt) + request.max_new) // self.blocks.block_size)
        if needed > self.blocks.num_blocks:
            raise ValueError(f"request {request.id} needs {needed} blocks, and there are {self.blocks.num_blocks}")
        self.waiting.append(request)
        ### END SOLUTION

    def cancel(self, request_id: int) -> bool:
        ### BEGIN SOLUTION
        for queue in (self.waiting, self.running):
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    self.blocks.release(request.blocks)
                    request.blocks = []
                    return True
        return False
        ### END SOLUTION

    def schedule(self) -> list[tuple[Request, int]]:
        ### BEGIN SOLUTION
        size, batch, left = self.blocks.block_size, [], self.max_tokens
        before = list(self.running)

        def preempt(request):
            self.running.remove(request)
            self.blocks.release(request.blocks)
            request.blocks, request.computed = [], 0
            self.waiting.insert(0, request)  # it came before all that wait

        def grow(request):
            """One more slot; False if the request itself had to go."""
            while request.computed + 1 > size * len(request.blocks):
                fresh = self.blocks.allocate(1)
                if fresh is not None:
                    request.blocks += fresh
                    continue
                victim = self.running[-1]
                preempt(victim)
                if victim is request:
                    return False
            return True

        def admit(request):
            tokens = request.tokens
            matched = self.blocks.match(tokens)
            self.blocks.acquire(matched)
            fresh = self.blocks.allocate(-(-len(tokens) // size) - len(matched))
            if fresh is None:
                self.blocks.release(matched)
                return False
            request.blocks, request.computed = [*matched, *fresh], len(matched) * size
            self.running.append(self.waiting.pop(0))
            return True

        def give(request, most):
            nonlocal left
            count = min(left, most)
            left -= count
            if count:
                batch.append((request, count))

        decoding = [request for request in before if request.output and request.computed == len(request.tokens) - 1]
        for request in decoding:
            if request in self.running and grow(request):
                give(request, 1)
        for request in list(self.running):
            if request not in decoding:
                give(request, len(request.tokens) - request.computed)
        if len(self.running) == len(before):  # nobody was preempted
            while self.waiting and left and len(self.running) < self.max_running and admit(self.waiting[0]):
                give(self.running[-1], len(self.running[-1].tokens) - self.running[-1].computed)
        return batch
        ### END SOLUTION

    def update(self, batch: list[tuple[Request, int]], predicted: list[int]) -> None:
        ### BEGIN SOLUTION
        for (request, count), token in zip(batch, predicted, strict=True):
            request.computed += count
            tokens = request.tokens
            self.blocks.register(tokens[: request.computed], request.blocks)
            if request.computed == len(tokens):
                request.output.append(token)
            if request.finished:
                self.running.remove(request)
                self.blocks.release(request.blocks)
                request.blocks = []
        ### END SOLUTION


# %% [markdown]
# The next cell is the tests' own: it drives your scheduler without any model. In place of a model's token,
# `guess` gives one that depends on the request and the position. `PlainBlocks` is a block manager that shares
# nothing.

# %% shared="driving"
def guess(name, position):
    """What "the model" predicts for request `name` after `position` tokens."""
    return 10 + (7 * name + 3 * position) % 40


def ends(case, name, output):
    """Whether a request of a case is finished with this output."""
    spec = next(spec for specs in case["adds"].values() for spec in specs if spec["id"] == name)
    return len(output) >= spec["max_new"] or (bool(output) and output[-1] == spec.get("stop"))


def case_of(requests, *, blocks=40, size=4, max_tokens=8, max_running=4, steps=60, cancels=None):
    """A case: requests as (step of arrival, prompt length or prompt, max_new[, stop]), numbered in this order."""
    adds = {}
    for name, (step, prompt, max_new, *stop) in enumerate(requests):
        prompt = [100 * (name + 1) + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
        spec = {"id": name, "prompt": prompt, "max_new": max_new, "stop": (stop or [None])[0]}
        adds.setdefault(step, []).append(spec)
    sizes = {"blocks": blocks, "size": size, "max_tokens": max_tokens, "max_running": max_running}
    return {"adds": adds, "cancels": cancels or {}, "steps": steps, **sizes}


def picture(scheduler, blocks, requests):
    """What can be seen of a scheduler between two steps, as one line of JSON."""
    seen = {
        "running": [request.id for request in scheduler.running],
        "waiting": [request.id for request in scheduler.waiting],
        "ref": [blocks.ref_count[block] for block in range(blocks.num_blocks)],
        "free": list(blocks.free),
        "requests": {
            name: {"tokens": len(request.prompt) + len(request.output), "computed": request.computed,
                   "output": list(request.output), "blocks": list(request.blocks)}
            for name, request in requests.items()
        },
    }  # fmt: skip
    return json.dumps(seen, default=int)


def drive(case, make):
    """Some steps of a scheduler; one entry a step."""
    blocks = PlainBlocks(case["blocks"], case["size"])
    scheduler = make(blocks, case["max_tokens"], case["max_running"])
    requests, log, gone = {}, [], []
    for step in range(case["steps"]):
        for spec in case["adds"].get(step, ()):
            requests[spec["id"]] = Request(**{**spec, "prompt": list(spec["prompt"])})
            scheduler.add(requests[spec["id"]])
        answers = [scheduler.cancel(name) for name in case["cancels"].get(step, ())]
        gone = [*gone, *case["cancels"].get(step, ())]
        before = picture(scheduler, blocks, requests)
        batch = list(scheduler.schedule())
        planned = picture(scheduler, blocks, requests)
        counts = [(request.id, count) for request, count in batch]
        scheduler.update(batch, [guess(request.id, request.computed + count) for request, count in batch])
        after = picture(scheduler, blocks, requests)
        log.append({"before": before, "planned": planned, "batch": counts, "after": after, "cancelled": gone,
                    "answers": answers})  # fmt: skip
    return log


def crowd(seed, *, tight=False):
    """A random case; in a tight one blocks run out."""
    random = Random(seed)
    size = random.choice([1, 2, 3, 4])
    requests = [
        (random.randint(0, 9), random.randint(1, 14), random.choice([1, 2, 3, 5, 8]), random.randrange(10, 50))
        for _ in range(8)
    ]
    requests.sort(key=lambda request: request[0])
    longest = max(prompt + max_new for _, prompt, max_new, _ in requests)
    blocks = -(-longest // size) + random.randint(0, 3) if tight else 5 * -(-longest // size)
    max_running = random.randint(2, 5)
    max_tokens = random.randint(max_running, 12)
    return case_of(requests, blocks=blocks, size=size, max_tokens=max_tokens, max_running=max_running, steps=70)


def driven(probe, cases):
    """Each case with its log, from one launch."""
    run = launch(probe, cases, ranks=None, timeout=20)
    return [(case, serving.read_log(log)) for case, log in zip(cases, run.value, strict=True)]


def named(case):
    sizes = f"blocks of {case['size']}, max_tokens {case['max_tokens']}, max_running {case['max_running']}"
    return f"Scheduler ({case['blocks']} {sizes})"


# %% test="schedule_budget" points=1
def probe_budget(cases):
    return [drive(case, Scheduler) for case in cases]


def verdict_budget(cases):
    for case, log in driven(probe_budget, cases):
        what = named(case)
        serving.within_budget(log, case["max_tokens"], case["max_running"], what)
        serving.no_stall(log, what)
        serving.chunks_in_order(log, case["max_tokens"], what)
        serving.all_served(log, what)


verdict_budget([
    case_of([(0, 8, 3), (0, 3, 2)], max_tokens=6, max_running=2, steps=8),
    case_of([(0, 2, 9), (2, 30, 2), (3, 2, 2)], max_tokens=8, steps=16),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_budget([
    case_of([(0, 1, 6), (1, 20, 3), (1, 20, 3), (2, 1, 3)], max_tokens=5, steps=30),
    case_of([(0, 3, 5), (0, 3, 5), (0, 3, 5)], max_tokens=3, max_running=3, steps=16),
    case_of([(0, 50, 2), (1, 50, 2)], max_tokens=1000, max_running=2, steps=8),
    crowd(1), crowd(2), crowd(3),
])  # fmt: skip
### END HIDDEN TESTS

# %% test="schedule_admission" points=1
def probe_admission(cases):
    return [drive(case, Scheduler) for case in cases]


def probe_too_large(blocks, size, prompt, max_new):
    scheduler = Scheduler(PlainBlocks(blocks, size), 8, 4)
    try:
        scheduler.add(Request(id=0, prompt=list(range(prompt)), max_new=max_new))
    except ValueError as error:
        return str(error)


def verdict_admission(cases):
    for case, log in driven(probe_admission, cases):
        what = named(case)
        serving.first_come_first_served(log, what)
        serving.admits_what_fits(log, case["max_tokens"], case["max_running"], case["size"], what)
        for step, entry in enumerate(log):
            serving.picture_conserved(entry["planned"], f"{what}, step {step}, after schedule()")


verdict_admission([
    case_of([(0, 8, 3), (0, 12, 2), (0, 2, 2)], blocks=5, max_tokens=20, steps=12),
    case_of([(0, 2, 4), (0, 2, 2), (0, 2, 3), (0, 2, 1)], max_running=2, steps=12),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_admission([
    case_of([(0, 9, 9), (1, 16, 2), (1, 1, 2), (2, 1, 2)], blocks=6, max_tokens=30, steps=24),
    case_of([(0, 6, 2), (0, 6, 2), (0, 6, 2), (0, 1, 1)], max_tokens=7, steps=12),
    crowd(4), crowd(5), crowd(6, tight=True), crowd(7, tight=True),
])  # fmt: skip
TOO_LARGE = [(False, 4, 4, 14, 9), (True, 4, 4, 8, 8), (True, 1, 4, 1, 1), (False, 2, 1, 2, 3)]
for fits, blocks, size, prompt, max_new in TOO_LARGE:
    said = launch(probe_too_large, blocks, size, prompt, max_new, ranks=None, timeout=10).value
    asked = f"Scheduler.add: {prompt} prompt tokens and max_new = {max_new}, {blocks} blocks of {size}"
    if fits:
        assert said is None, f"{asked}: this fits, and a ValueError came: {said}"
    else:
        assert said is not None, f"{asked}: it can never be finished, and no ValueError came; it would block the queue."
### END HIDDEN TESTS

# %% test="schedule_preemption" points=1
def probe_preemption(cases):
    return [drive(case, Scheduler) for case in cases]


def verdict_preemption(cases, *, happens=True):
    for case, log in driven(probe_preemption, cases):
        what = named(case)
        serving.preempts_the_latest(log, case["size"], what)
        serving.chunks_in_order(log, case["max_tokens"], what)
        serving.computed_once(log, what)
        serving.all_served(log, what)
        had = any(set(entry["before"]["running"]) - set(entry["planned"]["running"]) for entry in log)
        assert had or not happens, f"{what}: blocks run out here, and nobody was ever preempted."


verdict_preemption([
    case_of([(0, 4, 8), (0, 4, 6)], blocks=4, max_tokens=8, steps=24),
    case_of([(0, 3, 7), (1, 3, 5), (2, 3, 3)], blocks=5, size=2, steps=30),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_preemption([
    case_of([(0, 4, 12), (0, 4, 12), (0, 4, 12)], blocks=5, steps=60),
    case_of([(0, 1, 9), (1, 9, 2)], blocks=11, size=1, max_tokens=3, max_running=3, steps=40),
    case_of([(0, 5, 9), (0, 5, 9), (3, 5, 9), (4, 5, 9)], blocks=9, size=2, max_tokens=5, steps=90),
])  # fmt: skip
verdict_preemption([crowd(seed, tight=True) for seed in (8, 9, 10, 11)], happens=False)
### END HIDDEN TESTS

# %% test="schedule_update" points=1
def probe_update(cases):
    return [drive(case, Scheduler) for case in cases]


def verdict_update(cases):
    for case, log in driven(probe_update, cases):
        what = named(case)
        serving.updated(log, guess, what)
        serving.leave_when_finished(log, partial(ends, case), what)
        for step, entry in enumerate(log):
            serving.picture_conserved(entry["after"], f"{what}, step {step}, after update()")


verdict_update([
    case_of([(0, 8, 3), (0, 3, 2)], max_tokens=6, max_running=2, steps=8),
    case_of([(0, 2, 9, guess(0, 4)), (0, 20, 1)], max_tokens=6, steps=12),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_update([
    case_of([(0, 4, 8), (0, 4, 6)], blocks=4, max_tokens=8, steps=24),
    case_of([(0, [guess(0, 5), 8, guess(0, 5)], 9, guess(0, 5)), (0, 1, 1, guess(1, 1))], steps=12),
    crowd(12), crowd(13), crowd(14, tight=True), crowd(15, tight=True),
])  # fmt: skip
### END HIDDEN TESTS

# %% test="schedule_cancel" points=1
def probe_cancel(cases):
    return [drive(case, Scheduler) for case in cases]


def verdict_cancel(cases):
    """cases: a case and, by step, what `cancel` must have returned."""
    logs = driven(probe_cancel, [case for case, _ in cases])
    for (_, wanted), (case, log) in zip(cases, logs, strict=True):
        what = named(case)
        for step, answers in wanted.items():
            got, names = log[step]["answers"], case["cancels"][step]
            assert got == answers, f"{what}, step {step}: cancel of {names} returned {got}; {answers} is right."
        for step, entry in enumerate(log):
            where = f"{what}, step {step}, requests {entry['cancelled']} cancelled"
            for name in entry["cancelled"]:
                there = name in entry["before"]["running"] or name in entry["before"]["waiting"]
                assert not there, f"{where}: request {name} is still there."
                batch = dict(entry["batch"])
                assert name not in batch, f"{where}: request {name} still gets {batch.get(name)} tokens."
                kept = entry["before"]["requests"].get(name, {"blocks": []})["blocks"]
                assert not kept, f"{where}: request {name} still holds {len(kept)} blocks; nobody will release them."
            serving.picture_conserved(entry["before"], where)
        serving.all_served(log, what)


CANCELS = {1: [0], 3: [2, 0, 7]}
THREE = [(0, 20, 9), (0, 5, 4), (0, 5, 9)]
verdict_cancel([(case_of(THREE, cancels=CANCELS, steps=16), {1: [True], 3: [True, False, False]})])
### BEGIN HIDDEN TESTS
late = {2: [1], 4: [1], 6: [0], 9: [2]}
verdict_cancel([
    (case_of([(0, 4, 3), (0, 4, 5), (0, 9, 9)], blocks=5, cancels=late, steps=20),
     {2: [True], 4: [False], 6: [False], 9: [True]}),
    (case_of([(0, 4, 12), (0, 4, 12), (0, 4, 12)], blocks=4, cancels={4: [2], 5: [0]}, steps=30),
     {4: [True], 5: [True]}),
    (case_of([(0, 30, 2), (0, 3, 2)], max_tokens=5, cancels={3: [0]}, steps=12), {3: [True]}),
    (case_of([(0, 3, 2)], cancels={0: [0], 1: [0]}, steps=4), {0: [True], 1: [False]}),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 5. The engine
#
# ## Engine
#
# `Engine(model, cache, scheduler)` puts them together. `engine.step()` does one step and returns a dictionary:
# the new token of each request that got one, by id; that is what is streamed (流式输出) to the users.
#
# - ask the scheduler for a batch; where it is empty, return `{}`;
# - **one** pass through the model, over exactly the scheduled tokens, side by side: tokens `[1, T]`, positions
#   `[1, T]`, `attention=` your `paged_attention` with the rows of this batch
#   (`functools.partial(paged_attention, cache, rows)`);
# - for each request, the prediction after its last token is the argmax of the logits there;
# - give the predictions to `scheduler.update`.
#
# Run the model under `torch.no_grad()`. The new tokens of a request are `request.tokens[computed : computed +
# count]`, whether they come from its prompt, from its output, or, after a preemption, from both.
# *Size:* about 20 lines.

# %% solution="engine"
class Engine:
    def __init__(self, model: Decoder, cache: KVBlocks, scheduler) -> None:
        self.model, self.cache, self.scheduler = model, cache, scheduler

    @torch.no_grad()
    def step(self) -> dict[int, int]:
        ### BEGIN SOLUTION
        batch = self.scheduler.schedule()
        if not batch:
            return {}
        tokens, positions, rows = [], [], []
        for request, count in batch:
            start = request.computed
            tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
            rows.append((request.blocks, start, count))
        attention = partial(paged_attention, self.cache, rows)
        logits = self.model(torch.tensor([tokens]), torch.tensor([positions]), attention=attention)
        last = torch.tensor([count for _, count in batch]).cumsum(0) - 1
        predicted = logits[0, last].argmax(-1).tolist()
        had = [len(request.output) for request, _ in batch]
        self.scheduler.update(batch, predicted)
        return {
            request.id: request.output[-1] for (request, _), length in zip(batch, had) if len(request.output) > length
        }
    ### END SOLUTION


# %% [markdown]
# The next cell is the tests' own: a small model with random weights, whose next token depends on everything
# before it, and the oracle: one request alone, the whole text through the model for every token, no cache.

# %% shared="serving_cases"
VOCAB = 61


def small_model():
    """The same wherever it is built."""
    config = DecoderConfig(
        vocab_size=VOCAB, hidden=16, layers=2, heads=4, kv_heads=2, ffn=24, max_len=96, rope_theta=100.0, tied=False
    )
    model, generator = Decoder(config), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator))
    return model


def serve(case, make_blocks, make_scheduler, make_engine):
    """Some steps of an engine; one entry a step."""
    model = small_model()
    cache = KVBlocks(model.config, case["blocks"], case["size"], fill=SENTINEL)
    blocks = make_blocks(case["blocks"], case["size"])
    scheduler = make_scheduler(blocks, case["max_tokens"], case["max_running"])
    engine, passes, requests, log = make_engine(model, cache, scheduler), [], {}, []
    model.model.embed_tokens.register_forward_hook(lambda module, inputs, output: passes.append(inputs[0].numel()))
    for step in range(case["steps"]):
        for spec in case["adds"].get(step, ()):
            requests[spec["id"]] = Request(**{**spec, "prompt": list(spec["prompt"])})
            scheduler.add(requests[spec["id"]])
        for name in case["cancels"].get(step, ()):
            scheduler.cancel(name)
        passes.clear()
        new = dict(engine.step())
        log.append({"new": new, "passes": list(passes), "after": picture(scheduler, blocks, requests)})
    return log


def texts(seed, count, shared=12, longest=14):
    """Prompts of which many begin alike, and alike for different lengths."""
    random = Random(seed)
    beginning = [random.randrange(VOCAB) for _ in range(shared)]
    return [
        [*beginning[: random.choice([0, shared // 2, shared])], *(random.randrange(VOCAB) for _ in range(length))]
        for length in (random.randint(1, longest) for _ in range(count))
    ]


SHARED = [17, 4, 31, 8, 8, 50, 2, 23]


def rush(seed, *, spare=2, cancel=False, count=7):
    """A random case for the engine: shared beginnings, few blocks."""
    random = Random(seed)
    size, prompts = random.choice([1, 2, 3, 4, 5]), texts(seed, count)
    requests = [(random.randint(0, 9), prompt, random.choice([1, 2, 4, 7, 11])) for prompt in prompts]
    requests.sort(key=lambda request: request[0])
    longest = max(len(prompt) + max_new for _, prompt, max_new in requests)
    max_running = random.randint(2, 4)
    cancels = {random.randint(2, 12): [random.randrange(count)] for _ in range(2)} if cancel else {}
    return case_of(requests, blocks=-(-longest // size) + spare, size=size, max_tokens=random.randint(max_running, 20),
                   max_running=max_running, steps=90, cancels=cancels)  # fmt: skip


def with_stop(case):
    """The same, each request with a stop token that the text really has, where it has three tokens."""
    adds = {}
    for step, specs in case["adds"].items():
        adds[step] = [{**spec, "stop": alone(tuple(spec["prompt"]), 3)[-1]} for spec in specs]
    return {**case, "adds": adds}


@cache
def alone(prompt, max_new, stop=None):
    """The oracle: greedy tokens of one request, the whole text through the model each time."""
    model, tokens, threads = whole_model(), list(prompt), torch.get_num_threads()
    torch.set_num_threads(1)  # for numbers this small a second thread only gets in the way
    while len(tokens) < len(prompt) + max_new and (len(tokens) == len(prompt) or tokens[-1] != stop):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]))[0, -1]
        first, second = logits.topk(2).values
        assert first - second > 1e-3, "two tokens are nearly as likely: this case would hang on rounding"
        tokens.append(int(logits.argmax()))
    torch.set_num_threads(threads)
    return tokens[len(prompt) :]


@cache
def whole_model():
    return small_model()


def specs_of(case):
    return {spec["id"]: spec for specs in case["adds"].values() for spec in specs}


def engine_named(case):
    return named(case).replace("Scheduler", "Engine")


# %% test="engine_outputs" points=1
def probe_outputs(cases):
    return [serve(case, BlockManager, Scheduler, Engine) for case in cases]


def verdict_outputs(cases):
    for case, log in driven(probe_outputs, cases):
        cancelled = {name: step for step, names in case["cancels"].items() for name in names}
        streams = {name: [] for name in specs_of(case)}
        for step, entry in enumerate(log):
            for name, token in entry["new"].items():
                assert name in streams, f"{engine_named(case)}: step {step} gave a token to {name!r}; ids are wanted."
                streams[name].append(token)
        for name, spec in specs_of(case).items():
            want = alone(tuple(spec["prompt"]), spec["max_new"], spec["stop"])
            got, kept = streams[name], log[-1]["after"]["requests"][name]["output"]
            if name in cancelled:
                want = want[: len(got)]
            same = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            where = f"{engine_named(case)}: request {name}, {len(spec['prompt'])} prompt tokens"
            last = log[-1]["after"]
            if got == want[: len(got)] and name in (*last["running"], *last["waiting"]):
                one, doing = last["requests"][name], "waits" if name in last["waiting"] else "runs"
                raise check.CheckFailed(
                    f"{where}: after {len(log)} steps it still {doing}, with {len(got)} of {len(want)} tokens and "
                    f"{one['computed']} of its {one['tokens']} tokens computed."
                )
            assert got == want, (
                f"{where}: step() gave it {got}; alone it gets {want}. "
                f"The first {same} agree.{blame(log, name, same)}"
            )
            assert kept == got, f"{where}: step() gave it {got}, and its output is {kept}."


def blame(log, name, same):
    """What happened to a request before its text went wrong."""
    given, shared, preempted, was = 0, 0, False, None
    for entry in log:
        now = entry["after"]
        one = now["requests"].get(name)
        if one and was:
            preempted |= name in was["running"] and name in now["waiting"]
        if one and name in now["running"]:
            others = {block for other, o in now["requests"].items() if other != name for block in o["blocks"]}
            shared = max(shared, len(others & set(one["blocks"])))
        given, was = given + (name in entry["new"]), now
        if given > same:
            break
    facts = ["it was preempted before that"] * preempted + [f"it shared {shared} blocks with others"] * (shared > 0)
    return f" Request {name}: {' and '.join(facts)}." if facts else ""


verdict_outputs([
    case_of([(0, SHARED, 5), (0, [4, 5], 3), (2, [*SHARED, 9], 4)], max_tokens=6, steps=24),
    case_of([(0, SHARED, 8), (0, [7, 3, 3], 8)], blocks=5, steps=40),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_outputs([rush(seed) for seed in (1, 2, 3, 4, 5, 6)])
verdict_outputs([rush(seed, spare=0) for seed in (7, 8, 9)])
verdict_outputs([rush(seed, cancel=True) for seed in (10, 11)])
verdict_outputs([with_stop(rush(12)), with_stop(rush(13, spare=8))])
verdict_outputs([case_of([(0, SHARED, 3), (4, SHARED, 3), (4, SHARED[:4], 3)], steps=14)])
LONG = [*SHARED, *reversed(SHARED), 9]
gone = {3: [1]}  # in the middle of its prompt; what was not computed must not be found by the next
verdict_outputs([case_of([(0, [3, 1], 9), (1, LONG, 4), (3, LONG, 4)], max_tokens=4, cancels=gone, steps=24)])
### END HIDDEN TESTS

# %% test="engine_blocks" points=1
def probe_engine_blocks(cases):
    return [serve(case, BlockManager, Scheduler, Engine) for case in cases]


def verdict_engine_blocks(cases):
    for case, log in driven(probe_engine_blocks, cases):
        for step, entry in enumerate(log):
            where, now = f"{engine_named(case)}, after step {step}", entry["after"]
            serving.picture_conserved(now, where)
            for name, one in now["requests"].items():
                there = name in now["running"] or name in now["waiting"]
                gone = f"{where}: request {name} has gone and its table still has {len(one['blocks'])} blocks."
                assert there or not one["blocks"], gone
        free = len(log[-1]["after"]["free"])
        assert free == case["blocks"], f"{engine_named(case)}: in the end {free} of {case['blocks']} blocks are free."


verdict_engine_blocks([
    case_of([(0, SHARED, 5), (0, SHARED, 3), (2, [*SHARED, 9], 4)], max_tokens=6, steps=24),
    case_of([(0, SHARED, 8), (0, [7, 3, 3], 8)], blocks=5, steps=40, cancels={6: [1]}),
])  # fmt: skip
### BEGIN HIDDEN TESTS
verdict_engine_blocks([rush(seed) for seed in (21, 22, 23)])
verdict_engine_blocks([rush(seed, spare=0, cancel=True) for seed in (24, 25)])
### END HIDDEN TESTS

# %% test="engine_work" points=1
def probe_work(cases):
    return [serve(case, BlockManager, Scheduler, Engine) for case in cases]


def verdict_work(cases):
    """cases: a case without preemption, how many tokens a cached prefix saves, and how many steps it takes."""
    logs = driven(probe_work, [case for case, _, _ in cases])
    for (_, saved, steps), (case, log) in zip(cases, logs, strict=True):
        what, specs = engine_named(case), specs_of(case).values()
        if case is CONTINUED and log[-1]["after"]["requests"][0]["output"] != CONTINUATION:
            continue  # a wrong text, for another test to say, makes another prefix
        passes = [count for entry in log for count in entry["passes"]]
        most = max(len(entry["passes"]) for entry in log)
        assert most <= 1, f"{what}: a step took {most} passes through the model; one is asked for, for all requests."
        every = sum(len(spec["prompt"]) + spec["max_new"] - 1 for spec in specs)
        total = sum(passes)
        why = ""
        if saved and total == every:
            why = f" Nothing was reused: {saved} tokens at the beginning of later prompts are in the cache already."
        elif total > every:
            why = " That is more than there are: are tokens padded, or computed again?"
        elif total < every - saved:
            why = " Were prompts that are found completely left without a token to compute?"
        went = f"{what}: {total} tokens went through the model, and {every - saved} are needed.{why}"
        assert total == every - saved, went
        took = max(step for step, entry in enumerate(log) if entry["passes"]) + 1
        assert took <= steps, (
            f"{what}: it took {took} steps, and {steps} are enough. Is a place filled as soon as a request ends?"
        )


def list_scheduling(lengths, places):
    """Steps of requests that all wait at first, each a token a step, a freed place filled in the next step."""
    ends_at = [0] * places
    for length in lengths:
        ends_at[ends_at.index(min(ends_at))] += length
    return max(ends_at)


CONTINUATION = alone(tuple(SHARED), 4)
CONTINUED = case_of([(0, SHARED, 4), (5, [*SHARED, *CONTINUATION], 2)], size=2, max_tokens=20)
ONES = [2, 9, 3, 2, 8, 1]
verdict_work([
    (case_of([(0, [i], n) for i, n in enumerate(ONES)], max_running=2), 0, list_scheduling(ONES, 2)),
    (case_of([(0, SHARED, 2), (3, [*SHARED, 1, 2], 2)], max_tokens=20), 8, 5),
])  # fmt: skip
### BEGIN HIDDEN TESTS
MORE = [1, 12, 4, 4, 2, 9, 1, 1, 6, 3]
BLOCK_OF_8 = case_of([(0, SHARED, 2), (3, SHARED, 2), (6, [*SHARED[:7], 60], 2)], max_tokens=20)
verdict_work([
    (case_of([(0, [i], n) for i, n in enumerate(MORE)], max_running=3), 0, list_scheduling(MORE, 3)),
    (BLOCK_OF_8, 4 + 4, 8),
    (case_of([(0, SHARED, 2), (3, [*SHARED, 1, 2], 2)], size=3, max_tokens=20), 6, 5),
    (CONTINUED, 10, 7),
    (case_of([(0, SHARED, 1), (2, [*reversed(SHARED), 3], 1), (4, [*SHARED, 3], 1)], size=4, max_tokens=20), 8, 5),
])  # fmt: skip
### END HIDDEN TESTS

# %% [markdown]
# # Part 6. Prefill here, decode there
#
# Some systems run prefill and decode on different cards, so that neither disturbs the other (预填充与解码分离). The
# cache of a request then moves, once, from the card that computed it to the card that goes on.
#
# ## send_cache and receive_cache
#
# `send_cache(cache, table, count, to)` sends keys and values of positions 0 to count - 1, in all layers, to
# rank `to`; `receive_cache(cache, table, count, source)` puts them into this rank's own cache, into the blocks of
# its own `table`. Both ranks know `count`. **Block numbers and the block size of the two ranks differ**; positions
# are what they have in common. Nothing else in the receiver's cache changes, nor anything in the sender's.
#
# *Target:* exactly 2 x layers x count x kv_heads x head_dim x 4 bytes in float32: not a slot that holds
# nothing. Any number of messages. *Example*, blocks of 4 here and 3 there, count 5: 4 slots of one block
# and 1 of the next become 3 and 2. *Size:* about 8 lines each.

# %% solution="move_cache"
def send_cache(cache: KVBlocks, table: list[int], count: int, to: int) -> None:
    ### BEGIN SOLUTION
    size = cache.block_size
    places = torch.tensor([table[i // size] * size + i % size for i in range(count)])
    dist.send(torch.stack([cache.k.flatten(1, 2)[:, places], cache.v.flatten(1, 2)[:, places]]), to)
    ### END SOLUTION


def receive_cache(cache: KVBlocks, table: list[int], count: int, source: int) -> None:
    ### BEGIN SOLUTION
    size = cache.block_size
    places = torch.tensor([table[i // size] * size + i % size for i in range(count)])
    k, v = cache.k.flatten(1, 2), cache.v.flatten(1, 2)
    both = torch.empty(2, *k[:, places].shape, dtype=k.dtype)
    dist.recv(both, source)
    k[:, places], v[:, places] = both
    ### END SOLUTION


# %% shared="moving_cases"
MOVES = [  # blocks and block size of either side, both tables, count
    (4, 4, [2, 0], 6, 4, [5, 1], 6),
    (5, 4, [4, 1], 7, 3, [0, 6], 5),
    (4, 2, [1, 3, 0], 3, 5, [2], 5),
    (3, 4, [1], 3, 4, [2], 4),
    (9, 1, [8, 2, 4], 2, 4, [1], 3),
    (3, 8, [2], 3, 2, [1, 2], 1),
]


def numbered(blocks, size, first):
    """A cache in which every number is different."""
    config = DecoderConfig(vocab_size=8, hidden=16, layers=3, heads=4, kv_heads=2, ffn=8)
    cache = KVBlocks(config, blocks, size)
    for index, kept in enumerate((cache.k, cache.v)):
        kept.copy_(first + index * 50_000 + torch.arange(float(kept.numel())).reshape(kept.shape))
    return cache


# %% test="move_cache_values" points=1
def probe_move(cases, sender):
    results, rank = [], dist.get_rank()
    for blocks, size, table, other_blocks, other_size, other_table, count in cases:
        if rank == sender:
            cache = numbered(blocks, size, 1.0)
            send_cache(cache, list(table), count, 1 - sender)
        else:
            cache = numbered(other_blocks, other_size, 200_000.0)
            receive_cache(cache, list(other_table), count, sender)
        results.append({"k": cache.k, "v": cache.v})
    return results


def moved(case):
    """The oracle: position by position, from one cache to the other."""
    blocks, size, table, other_blocks, other_size, other_table, count = case
    there, here = numbered(blocks, size, 1.0), numbered(other_blocks, other_size, 200_000.0)
    for i in range(count):
        for kept, new in ((here.k, there.k), (here.v, there.v)):
            kept[:, other_table[i // other_size], i % other_size] = new[:, table[i // size], i % size]
    return there, here


def verdict_move(cases, sender):
    run = launch(probe_move, cases, sender, ranks=2, timeout=10)
    for number, case in enumerate(cases):
        there, here = moved(case)
        blocks, size, table, other_blocks, other_size, other_table, count = case
        where = f"{count} positions from table {table} (blocks of {size}) to {other_table} (blocks of {other_size})"
        for which in ("k", "v"):
            kept = run.values[sender][number][which]
            assert torch.equal(kept, getattr(there, which)), f"{where}: the sender's cache.{which} changed."
            got, want = run.values[1 - sender][number][which], getattr(here, which)
            off = (got != want).any(-1).any(-1).nonzero()
            if len(off):
                layer, block, slot = off[0].tolist()
                untouched = numbered(other_blocks, other_size, 200_000.0)
                why = "is wrong"
                if torch.equal(got[layer, block, slot], getattr(untouched, which)[layer, block, slot]):
                    why = "was not written"
                elif block not in other_table:
                    why = "is in none of this request's blocks, and was overwritten"
                    if block in table:
                        why += " (block numbers of the sender mean nothing here)"
                place = f"cache.{which} of the receiver, layer {layer}, block {block}, slot {slot}"
                raise check.CheckFailed(f"{where}: {place} {why}.")


verdict_move(MOVES[:2], sender=0)
### BEGIN HIDDEN TESTS
verdict_move(MOVES, sender=1)
### END HIDDEN TESTS

# %% test="move_cache_bytes" points=1
def probe_move_bytes(cases):
    rank = dist.get_rank()
    for blocks, size, table, other_blocks, other_size, other_table, count in cases:
        if rank == 0:
            send_cache(numbered(blocks, size, 1.0), list(table), count, 1)
        else:
            receive_cache(numbered(other_blocks, other_size, 1.0), list(other_table), count, 0)


def verdict_bytes(cases):
    run = launch(probe_move_bytes, cases, ranks=2, timeout=10)
    check.no_collectives(run.trace)
    slot = 2 * 3 * 2 * 4 * 4  # bytes of one position: K and V, layers, KV heads, head_dim, float32
    due = slot * sum(case[-1] for case in cases)
    blocks = slot * sum(-(-case[-1] // case[1]) * case[1] for case in cases)
    caches = slot * sum(case[0] * case[1] for case in cases)
    sent = run.trace.bytes_sent(0)
    why = "whole caches were sent" if sent >= caches else "whole blocks were sent, slots that hold nothing among them"
    cause = f": {why}" if sent >= blocks > due else ""
    assert sent == due, f"send_cache: rank 0 sent {sent} bytes for {len(cases)} requests, and {due} are right{cause}."
    back = run.trace.bytes_sent(1)
    assert back == 0, f"receive_cache: rank 1 sent {back} bytes; it has only to receive."


verdict_bytes(MOVES[:2])
### BEGIN HIDDEN TESTS
verdict_bytes(MOVES[2:])
### END HIDDEN TESTS

# %% [markdown]
# # Part 7. Measure it
#
# The next cell is not graded. Your engine serves the first 32 requests of the recorded trace (Poisson arrivals,
# log-normal output lengths), twice: with `max_tokens` so large that every prompt is computed in one step, and in
# chunks. The clock counts computing only; a *tick* of the trace is what one decode step takes here.
#
# *Before you run it, predict:* which of the two has the better throughput? Which has the larger gaps between
# a user's tokens? In which does the first token come sooner?

# %%
import matplotlib.pyplot as plt

from utils.serving import recorded_trace, replay, summary, to_requests
from utils.serving.pictures import draw_gaps, draw_timeline, draw_use


def served_by_mine(max_tokens, tick, prompt_factor=3):
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(hidden=128, layers=4, heads=8, kv_heads=2, ffn=352, max_len=512))
    requests = to_requests(recorded_trace()[:32])
    for request in requests:  # longer prompts, so that prefill weighs something
        request.prompt = request.prompt * prompt_factor
    manager = BlockManager(num_blocks=96, block_size=8)
    scheduler = Scheduler(manager, max_tokens, max_running=8)
    engine = Engine(model, KVBlocks(model.config, 96, 8), scheduler)
    return replay(requests, scheduler.add, engine.step, tick=tick, used=lambda: 96 - len(manager.free))


def decode_step():
    """Seconds of a step in which 8 requests decode."""
    run = launch(served_by_mine, 16, 0.0, 1, ranks=None, timeout=120).value
    took = sorted(step.end - step.start for step in run.steps if len(step.counts) == 8 and not step.prefill)
    return took[len(took) // 2]


def measure_and_plot():
    tick = decode_step()
    print(f"one decode step of 8 requests: {1e3 * tick:.2f} ms")
    figure, axes = plt.subplots(4, 1, figsize=(8, 11), layout="constrained", height_ratios=[3, 3, 1.4, 1.6])
    gaps = {}
    for ax, (name, max_tokens) in zip(axes, (("whole prompts", 1000), ("chunks, max_tokens = 32", 32))):
        run = launch(served_by_mine, max_tokens, tick, ranks=None, timeout=120).value
        got = summary(run.arrivals, run.times)
        computed = sum(sum(step.counts.values()) for step in run.steps)
        print(f"{name}: {got.throughput:.0f} tokens/s, TTFT p50 {1e3 * got.ttft_p50:.0f} ms, TPOT p50 "
              f"{1e3 * got.tpot_p50:.2f} ms, gaps p95 {1e3 * got.gap_p95:.2f} ms, worst {1e3 * got.gap_max:.2f} ms; "
              f"{len(run.steps)} steps, {computed} tokens computed")  # fmt: skip
        draw_timeline(run, ax, title=name, until=60 * tick)
        draw_use({name: run}, axes[2], limit=96)
        gaps[name] = run
    draw_gaps(gaps, axes[3])
    plt.show()


measure_and_plot()

# %% [markdown]
# ## measured
#
# Write down what you read off. Keys: `"tokens_per_s_whole"`, `"tokens_per_s_chunks"`; `"worst_gap_whole"` and
# `"worst_gap_chunks"` in ms; and `"ratio"`, the first worst gap over the second, from your numbers. Only the form is
# graded, and that the ratio follows: machines differ.

# %% solution="measured"
def measured() -> dict:
    ### BEGIN SOLUTION
    return {
        "tokens_per_s_whole": 1200, "tokens_per_s_chunks": 1000, "worst_gap_whole": 24.0, "worst_gap_chunks": 12.0,
        "ratio": 2.0,
    }  # fmt: skip
    ### END SOLUTION


# %% test="measured_form" points=1
answer = check.answer(launch(lambda: measured(), ranks=None, timeout=10).value, "measured")
KEYS = ("tokens_per_s_whole", "tokens_per_s_chunks", "worst_gap_whole", "worst_gap_chunks", "ratio")
for key in KEYS:
    check.has_number(answer, key, "measured")
### BEGIN HIDDEN TESTS
for key in KEYS[:2]:
    check.between(answer[key], 1, 1e6, key, "tokens/s")
for key in KEYS[2:4]:
    check.between(answer[key], 0.05, 60_000, key, "ms")
follows = answer["worst_gap_whole"] / answer["worst_gap_chunks"]
check.number(answer["ratio"], follows, "ratio for your worst gaps", "", rel=0.03)
### END HIDDEN TESTS

# %% [markdown]
# # Part 8. Questions
#
# The visible tests show only whether your answer has the right form.
#
# ## question_numbers
#
# Return a dictionary of lists of whole numbers.
#
# 1. A timeline of two requests. A (4 prompt tokens) arrives at 5 ms, B (10 prompt tokens) at 25 ms. Each step
#    computes these tokens and ends at this time:
#
#    | step | ends at | A | B |
#    |---|---|---|---|
#    | 0 | 20 ms | 4 | |
#    | 1 | 30 ms | 1 | |
#    | 2 | 80 ms | 1 | 7 |
#    | 3 | 110 ms | 1 | 3 |
#    | 4 | 120 ms | 1 | 1 |
#    | 5 | 130 ms | | 1 |
#
#    `"ttft"`: time to first token of A and of B, ms. `"tpot"`: time per output token after the first of A and
#    of B, ms. `"rate"`: [throughput of both together, tokens per second, from the first arrival to the last
#    token].
# 2. Requests with 2, 9, 3, 2, 8 and 1 tokens to generate, all there at first, two places, one token a step.
#    `"steps"`: [static batches of two in this order, places filled again in the next step].
# 3. Blocks of 16. `"blocks"`: how many the lecture's request D has after its prefill (800 prompt tokens),
#    and E after the step that gives it its 31st token (40 prompt tokens): [D, E].
# 4. Blocks of 16; the first 800 tokens of a prompt are in the cache. `"computed"`: tokens that must still go
#    through the model for a prompt of 805 tokens that begins with them, and for one that is exactly these 800:
#    two numbers.

# %% solution="question_numbers"
def question_numbers() -> dict[str, list[int]]:
    ### BEGIN SOLUTION
    return {"ttft": [15, 85], "tpot": [25, 10], "rate": [64], "steps": [20, 15], "blocks": [50, 5], "computed": [5, 16]}
    ### END SOLUTION


# %% test="question_numbers_values" points=1
answer = check.answer(launch(lambda: question_numbers(), ranks=None, timeout=10).value, "question_numbers")
for key in ("ttft", "tpot", "rate", "steps", "blocks", "computed"):
    check.has_list_of_ints(answer, key, "question_numbers")
### BEGIN HIDDEN TESTS
a, b = latency(5, [20, 30, 80, 110, 120]), latency(25, [110, 120, 130])
wanted = {"ttft": [int(a.ttft), int(b.ttft)], "tpot": [int(a.tpot), int(b.tpot)], "rate": [8 * 1000 // (130 - 5)]}
lengths = [2, 9, 3, 2, 8, 1]
wanted["steps"] = [sum(max(pair) for pair in zip(lengths[::2], lengths[1::2])), 0]
places = [0, 0]
for length in lengths:
    places = sorted([places[0] + length, places[1]])
wanted["steps"][1] = max(places)
wanted["blocks"] = [serving.blocks_needed(800, 16), serving.blocks_needed(40 + 30, 16)]
wanted["computed"] = [805 - 800, 800 - 16 * ((800 - 1) // 16)]
check.answers_agree(answer, wanted, "question_numbers")
### END HIDDEN TESTS

# %% [markdown]
# ## question_causes
#
# Return a dictionary with one letter, as a string, for each key.
#
# `"phases"`: what makes prefill and decode different?
#
# - A: Prefill computes many tokens of one request at once, large products that keep the arithmetic units busy;
#   decode computes one token a request and reads all weights and the whole cache for it.
# - B: Prefill uses the training weights and decode the quantised ones.
# - C: Prefill needs no attention, because no token has been generated yet.
# - D: Decode computes more floating-point operations for each token than prefill does.
#
# `"chunks"`: prompts are computed in chunks beside the decoding requests. What changes?
#
# - A: Everything gets faster, because smaller products are cheaper.
# - B: Others' gaps between tokens become shorter; the first token of the chunked prompt itself comes later or
#   not sooner.
# - C: The text changes slightly, since a chunk cannot see the ones before it.
# - D: Less cache is used, because a prompt's chunks share their blocks.
#
# `"batch"`: the engine may run 64 requests at once in place of 8, and always has enough to do. What do you expect?
#
# - A: More throughput and a lower TPOT.
# - B: The same throughput; only memory changes.
# - C: More throughput, and a higher TPOT: each step computes more and takes longer.
# - D: Less throughput, because requests wait for each other.
#
# `"latest"`: why is the latest arrival preempted, and put back at its place in the queue?
#
# - A: It always has the fewest blocks.
# - B: The oldest then always goes on, so somebody finishes, blocks come free, and nobody waits for ever.
# - C: Its user has not seen any token yet.
# - D: Its blocks are never shared.
#
# `"compare"`: a prefix is found by a 64-bit hash. Why compare the tokens as well?
#
# - A: The comparison is faster than the hash.
# - B: Hashes of equal tokens may differ.
# - C: So that blocks that are only half full can be reused.
# - D: Two prefixes may have one hash, by chance or on purpose, and then a user reads an answer to somebody
#   else's text.

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    ### BEGIN SOLUTION
    return {"phases": "A", "chunks": "B", "batch": "C", "latest": "B", "compare": "D"}
    ### END SOLUTION


# %% test="question_causes_letters" points=1
answer = check.answer(launch(lambda: question_causes(), ranks=None, timeout=10).value, "question_causes")
for key in ("phases", "chunks", "batch", "latest", "compare"):
    check.has_letter(answer, key, "ABCD", "question_causes")
### BEGIN HIDDEN TESTS
wanted = {"phases": "A", "chunks": "B", "batch": "C", "latest": "B", "compare": "D"}
check.answers_agree(answer, wanted, "question_causes")
### END HIDDEN TESTS

# %% [markdown]
# ## What to take away
#
# - Scheduling once a step, not once a batch: who ends leaves at once, who waits comes in.
# - One rule covers prefill, chunks, decode and recomputation: compute what is in `tokens` and not in the cache.
# - Pages make memory usable to the last block, and let requests share what they have in common; reference counts say
#   when a block is free, and a block is known by everything up to its end.
# - When memory runs out, the latest gives way and is computed again. The text does not change.
# - TTFT, TPOT and throughput pull in different directions: report all three.
