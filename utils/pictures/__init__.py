"""Pictures for notebooks: who holds what, who sends to whom, and how long it takes.

Every function takes an `ax` (or makes one) and returns it. matplotlib is imported when the first picture is
drawn, so that ranks which draw nothing do not wait for it.
"""

from .attention import draw_ring_rounds, draw_score_owners
from .curves import draw_times, size_label, time_label
from .experts import draw_dispatch, draw_load, draw_matrix_of_rows
from .held import draw_before_after, draw_held, draw_steps
from .marking import marks, origins
from .palette import RANK_COLORS, rank_color
from .products import draw_split_product
from .roofline import draw_roofline
from .rounds import draw_rounds
from .visibility import draw_visibility

__all__ = [
    "RANK_COLORS",
    "draw_before_after",
    "draw_dispatch",
    "draw_held",
    "draw_load",
    "draw_matrix_of_rows",
    "draw_ring_rounds",
    "draw_roofline",
    "draw_rounds",
    "draw_score_owners",
    "draw_split_product",
    "draw_steps",
    "draw_times",
    "draw_visibility",
    "marks",
    "origins",
    "rank_color",
    "size_label",
    "time_label",
]
