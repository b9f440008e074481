# kind: wrong
# about: Leaves eos out of the row.
# loses: generate_ragged, generate_work
# says: "generate_ragged": "eos itself is missing"

# %% edit="generate"
# replace
                    rows[row].append(token)
                    finished[row] = token == eos
# by
                    finished[row] = token == eos
                    if not finished[row]:
                        rows[row].append(token)
