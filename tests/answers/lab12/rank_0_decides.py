# kind: right
# about: Rank 0 tells the others which tokens came out.

# %% edit="serve"
# replace
        scheduler.update(batch, logits.argmax(-1).tolist())
# by
        told = logits.argmax(-1)
        dist.broadcast(told, group_src=0, group=group)
        scheduler.update(batch, told.tolist())
