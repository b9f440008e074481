# kind: right
# about: One long function: the last output stays in a local variable until the next one comes.
# loses:

# %% solution="run_schedule"
def run_schedule(schedule, stages, tokens, targets, hidden):
    rank, p = dist.get_rank(), len(schedule)
    every = [action for actions in schedule for action in actions]
    last, m = max(s for _, s, _ in every), max(k for _, _, k in every) + 1
    count = int((targets != -100).sum())
    saved, mail, sent, loss = {}, {}, {}, 0.0
    for op, s, k in schedule[rank]:
        source, target = (s - 1, s + 1) if op == "F" else (s + 1, s - 1)
        arrived = None
        if 0 <= source <= last:
            if source % p == rank:
                arrived = mail.pop((op, s, k))
            else:
                arrived = torch.empty(*tokens.tensor_split(m)[k].shape, hidden)
                dist.recv(arrived, source % p, tag=((op == "B") * (last + 1) + s) * m + k)
        if op == "F":
            x = tokens.tensor_split(m)[k] if s == 0 else arrived.requires_grad_()
            y = stages[s](x)
            if s == last:
                flat = targets.tensor_split(m)[k].reshape(-1)
                y = F.cross_entropy(y.reshape(len(flat), -1), flat, reduction="sum") / count
                loss += float(y)
            saved[s, k] = x, y
            outgoing = y.detach()
        else:
            x, y = saved.pop((s, k))
            torch.autograd.backward(y, arrived)
            if (s, k) in sent:
                sent.pop((s, k)).wait()
            outgoing = x.grad
        if 0 <= target <= last:
            if target % p == rank:
                mail[op, target, k] = outgoing
            else:
                request = dist.isend(outgoing, target % p, tag=((op == "B") * (last + 1) + target) * m + k)
                sent[(s, k) if op == "F" else ("B", s, k)] = request
    for request in sent.values():
        request.wait()
    return loss if last % p == rank else None
