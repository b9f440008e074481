# kind: right
# about: generate pads on the right and picks each row's own last logits; the cache does not mind.

# %% solution="generate"
def left_pad(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(prompt) for prompt in prompts)
    tokens, positions = torch.zeros(len(prompts), longest).long(), torch.full((len(prompts), longest), -1)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        positions[row, longest - len(prompt) :] = torch.arange(len(prompt))
    return tokens, positions


def generate(model, prompts, max_new_tokens, eos=None):
    longest = max(map(len, prompts))
    ends = torch.tensor([len(prompt) for prompt in prompts])
    tokens = torch.tensor([list(prompt) + [1] * (longest - len(prompt)) for prompt in prompts])
    columns = torch.arange(longest).expand(len(prompts), -1)
    positions = torch.where(columns < ends[:, None], columns, -1)
    cache, made = KVCache(model.config, len(prompts), longest + max_new_tokens), []
    with torch.inference_mode():
        logits = model(tokens, positions, cache.attention)[torch.arange(len(prompts)), ends - 1]
        open_rows = torch.ones(len(prompts), dtype=torch.bool)
        for step in range(max_new_tokens):
            made.append(logits.argmax(-1))
            open_rows &= made[-1] != (-1 if eos is None else eos)
            if step + 1 == max_new_tokens or not open_rows.any():
                break
            logits = model(made[-1][:, None], (ends + step)[:, None], cache.attention)[:, 0]
    rows = torch.stack(made, 1).tolist()
    return [row[: row.index(eos) + 1] if eos in row else row for row in rows]
