# kind: wrong
# about: What stays is not brought back to sum 1.
# loses: sampling_top_k, sampling_top_p
# says: "sampling_top_k": "not renormalised to sum 1"

# %% solution="next_token_probabilities"
def next_token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> torch.Tensor:
    logits = logits.float()
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    values, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    if top_k is not None:
        values[:, top_k:] = 0
    if top_p < 1:
        before = values.cumsum(-1) - values
        values[:, 1:].masked_fill_(before[:, 1:] >= top_p, 0)
    return torch.zeros_like(values).scatter(-1, order, values)
