# kind: right
# about: Sums of log-probabilities and counts in one all-reduce; the value goes past autograd.

# %% solution="sequence_loss"
def sequence_loss(logits, labels):
    counts = labels != -100
    losses = -logits.log_softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    own = (losses * counts).sum()
    both = torch.tensor([own.item(), float(counts.sum())])
    dist.all_reduce(both)
    share = own / both[1]
    return share - share.detach() + both[0] / both[1]
