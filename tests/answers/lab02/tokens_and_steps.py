# kind: wrong
# about: D11: divides by the tokens and again by the number of micro-batches.
# loses: accumulate_values
# says: "accumulate_values": "1/3 of what is wanted: divided by the 3 micro-batches as well as by the tokens"

# %% edit="accumulate"
# replace
            p.grad /= total
# by
            p.grad /= total * len(micro_batches)
