# kind: wrong
# about: Gradients travel after every micro-batch: right values, k times the bytes.
# loses: accumulate_traffic
# says: "accumulate_traffic": "times the"

# %% solution="accumulate"
def accumulate(model, micro_batches):
    numbers = torch.zeros(2)
    sums = [torch.zeros_like(p) for p in model.parameters()]
    for tokens, targets in micro_batches:
        model.zero_grad()
        loss = cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
        loss.backward()
        numbers += torch.tensor([loss.item(), float((targets != -100).sum())])
        for p, total in zip(model.parameters(), sums):
            if p.requires_grad:
                dist.all_reduce(p.grad)
                total += p.grad
    dist.all_reduce(numbers)
    for p, total in zip(model.parameters(), sums):
        if p.requires_grad:
            p.grad = total / numbers[1].clamp(min=1)
    return float(numbers[0] / numbers[1].clamp(min=1))
