# kind: wrong
# about: Hands over between stages of one rank by sending to itself.
# loses: run_interleaved, run_messages

# %% edit="run_schedule"
# replace
        if stage % p == rank:
# by
        if stage % p == rank and False:

# replace
        if source % p == rank:
# by
        if source % p == rank and False:
