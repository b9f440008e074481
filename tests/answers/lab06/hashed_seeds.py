# kind: right
# about: Seeds from a hash of a text.

# %% solution="dropout_generators"
def dropout_generators(seed, dp_rank, tp_rank):
    import hashlib

    def stream(text):
        digest = hashlib.sha256(text.encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    return stream(f"copy {seed} {dp_rank}"), stream(f"own {seed} {dp_rank} {tp_rank}")
