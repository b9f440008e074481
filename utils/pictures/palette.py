"""One colour for each rank, the same in every picture of the course.

The colours are those of Okabe and Ito (2008), which stay apart for readers with any common form of colour
blindness, with a dark grey for their black, which is the colour of text. The module imports nothing.
"""

RANK_COLORS = (
    "#0072B2",  # 0 blue
    "#E69F00",  # 1 orange
    "#009E73",  # 2 green
    "#CC79A7",  # 3 pink
    "#56B4E9",  # 4 sky blue
    "#D55E00",  # 5 vermilion
    "#F0E442",  # 6 yellow
    "#5A5A5A",  # 7 dark grey
)
INK = "#222222"
FAINT = "#BBBBBB"


def rank_color(rank: int) -> str:
    """Colour of a rank as "#RRGGBB"; rank 8 has the colour of rank 0 again.

    >>> rank_color(0)
    '#0072B2'
    """
    return RANK_COLORS[rank % len(RANK_COLORS)]


def ink_on(color: str) -> str:
    """White or near-black, whichever is easier to read on `color` (higher WCAG contrast).

    >>> ink_on("#000000"), ink_on("#F0E442")
    ('#FFFFFF', '#222222')
    """
    light = _luminance(color)
    on_white, on_ink = 1.05 / (light + 0.05), (light + 0.05) / (_luminance(INK) + 0.05)
    return "#FFFFFF" if on_white >= on_ink else INK


def _luminance(color: str) -> float:
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
