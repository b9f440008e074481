# kind: wrong
# about: sbh(34 + 5as/h), the table for dropout with one-byte masks.
# loses: activation_plain, activation_variants
# says: "activation_plain": "34sbh + 5as^2b counts dropout"
# says: "activation_variants": "34sbh + 5as^2b counts dropout"

# %% solution="activation_bytes"
def activation_bytes(sizes, batch, seq, itemsize):
    s, b, h, a = seq, batch, sizes.hidden, sizes.heads
    return s * b * h * (34 + 5 * a * s / h) * itemsize / 2
