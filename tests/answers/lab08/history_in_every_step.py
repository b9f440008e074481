# kind: wrong
# about: The whole history goes through the model for every token; the right tokens.
# loses: generate_work
# says: "generate_work": "the whole history goes through in every step"

# %% edit="generate"
# replace
    cache = KVCache(model.config, len(prompts), tokens.shape[1] + max_new_tokens)
# by
# replace
            logits = model(tokens, positions, cache.attention)[:, -1]
            tokens, positions = logits.argmax(-1, keepdim=True), positions[:, -1:] + 1
            for row, token in enumerate(tokens[:, 0].tolist()):
# by
            cache = KVCache(model.config, len(prompts), tokens.shape[1])
            new = model(tokens, positions, cache.attention)[:, -1].argmax(-1, keepdim=True)
            tokens, positions = torch.cat([tokens, new], 1), torch.cat([positions, positions[:, -1:] + 1], 1)
            for row, token in enumerate(new[:, 0].tolist()):
