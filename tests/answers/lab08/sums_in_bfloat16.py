# kind: wrong
# about: Computes in the type of the logits: bfloat16 sums stall.
# loses: sampling_temperature, sampling_top_p

# %% solution="next_token_probabilities"
def next_token_probabilities(
    logits: torch.Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> torch.Tensor:
    kind = logits.dtype
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    values, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
    values = values.to(kind)
    if top_k is not None:
        values[:, top_k:] = 0
        values /= values.sum(-1, keepdim=True)
    if top_p < 1:
        before = values.cumsum(-1) - values
        values[:, 1:].masked_fill_(before[:, 1:] >= top_p, 0)
        values /= values.sum(-1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, order, values).float()
