# kind: wrong
# about: Prompts stand at their columns, new tokens at their own positions (K01).
# loses: generate_ragged
# says: "generate_ragged": "prompts stand at their columns"

# %% edit="generate"
# replace
    cache = KVCache(model.config, len(prompts), tokens.shape[1] + max_new_tokens)
# by
    cache = KVCache(model.config, len(prompts), tokens.shape[1] + max_new_tokens)
    own = positions
    positions = torch.where(own < 0, -1, torch.arange(tokens.shape[1]))
# replace
            tokens, positions = logits.argmax(-1, keepdim=True), positions[:, -1:] + 1
# by
            tokens, positions = logits.argmax(-1, keepdim=True), own[:, -1:] + 1
            own = positions
