# kind: wrong
# about: Ignores eos.
# loses: generate_ragged
# says: "generate_ragged": "rows go on behind eos"

# %% edit="generate"
# replace
                    finished[row] = token == eos
# by
                    finished[row] = False
