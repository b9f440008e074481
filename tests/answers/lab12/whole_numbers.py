# kind: right
# about: Answers given as whole numbers where they are whole.

# %% edit="questions"
# replace
        "q4_1_bits": 20 * 8 / 32,
# by
        "q4_1_bits": 5,
# replace
        "decode_gain": 16 / (4 + 16 / 128),
# by
        "decode_gain": 3.88,
