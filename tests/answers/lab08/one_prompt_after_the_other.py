# kind: wrong
# about: Each prompt by itself: nothing is shared.
# loses: generate_work
# says: "generate_work": "run all rows as one batch"

# %% solution="generate"
def left_pad(prompts):
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    positions = torch.tensor([[-1] * (longest - len(prompt)) + [*range(len(prompt))] for prompt in prompts])
    return tokens, positions


def generate(model, prompts, max_new_tokens, eos=None):
    rows = []
    for prompt in prompts:
        cache, row = KVCache(model.config, 1, len(prompt) + max_new_tokens), []
        tokens, at = torch.tensor([prompt]), torch.arange(len(prompt))
        with torch.no_grad():
            while len(row) < max_new_tokens and (eos is None or eos not in row):
                token = int(model(tokens, at, cache.attention)[0, -1].argmax())
                row.append(token)
                tokens, at = torch.tensor([[token]]), at[-1:] + 1
        rows.append(row)
    return rows
