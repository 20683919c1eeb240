"""Curves of what grows, on two logarithmic axes, as a picture that stands beside a page."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 380, 60, 30, 190, 45
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d31")
"""Told apart by those who see few colours (Okabe and Ito 2008)."""

Curve = Sequence[tuple[float, float]]


def growth(curve: Curve) -> float:
    """With which power of x a curve grows from its first to its last point."""
    (x, y), (far, high) = curve[0], curve[-1]
    return math.log(high / y) / math.log(far / x)


def picture(title: str, across: str, upwards: str, curves: Mapping[str, Curve]) -> str:
    """An SVG of curves whose values are above zero.

    Args:
        title: What grows.
        across: What is along the first axis.
        upwards: What is along the second.
        curves: Points by name.
    """
    xs, ys = ([point[at] for curve in curves.values() for point in curve] for at in (0, 1))
    low, high = (math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))))
    near, far = math.log10(min(xs)), math.log10(max(xs))

    def place(x: float, y: float) -> tuple[float, float]:
        right = (math.log10(x) - near) / ((far - near) or 1) * (WIDTH - LEFT - RIGHT)
        up = (math.log10(y) - low) / ((high - low) or 1) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + right, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" style="font:12px sans-serif">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{escape(across)}; up: {escape(upwards)}</text>',
    ]
    for power in range(low, high + 1):
        _, y = place(min(xs), 10.0**power)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    for x in sorted(set(xs)):
        at, bottom = place(x, 10.0**low)
        parts.append(f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{x:,.0f}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        color, places = COLORS[number % len(COLORS)], [place(*point) for point in curve]
        line = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>' for x, y in places]
        y = TOP + 18 * number + 10
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{y}" fill="{color}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
