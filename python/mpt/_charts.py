# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG text. Lines differ in dashes and are named where they end, so that they are read without colour."""
import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 220, 58, 84, 12, 26
POINTS = 400  # of a line; more are averaged
DASHES = ("", "6 3", "2 2", "8 3 2 3", "1 3", "10 4")
# Exponents of the smallest subnormal, smallest normal and largest value.
FORMATS = {"FP16": (-24, -14, 15), "BF16": (-133, -126, 127), "E5M2": (-16, -14, 15), "E4M3": (-9, -6, 8)}


def number(value: float) -> str:
    """Short enough for an axis."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")


def thinned(points: list) -> list:
    """At most POINTS points: means of neighbours."""
    size = -(-len(points) // POINTS)
    groups = [points[i:i + size] for i in range(0, len(points), max(size, 1))]
    return [tuple(sum(values) / len(group) for values in zip(*group)) for group in groups]


class Axes:
    """Where values lie on the picture."""

    def __init__(self, xs, ys, logarithmic: bool):
        self.log = logarithmic and min(ys) > 0
        self.x0, self.x1 = min(xs), max(xs)
        self.y0, self.y1 = (self.scale(y) for y in (min(ys), max(ys)))
        if self.y0 == self.y1:
            pad = 0.5 if self.log else abs(self.y0) / 2 or 0.5
            self.y0, self.y1 = self.y0 - pad, self.y1 + pad

    def scale(self, y: float) -> float:
        return math.log10(y) if self.log else y

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / ((self.x1 - self.x0) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (self.scale(value) - self.y0) / (self.y1 - self.y0) * (HEIGHT - TOP - BOTTOM)

    def frame(self, title: str = "step") -> str:
        parts = []
        for i in range(5):
            scaled = self.y0 + (self.y1 - self.y0) * i / 4
            value = 10 ** scaled if self.log else scaled
            y = HEIGHT - BOTTOM - i / 4 * (HEIGHT - TOP - BOTTOM)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/><text x="{LEFT - 5}" y="{y + 4:.1f}" class="end">{number(value)}</text>')
        for value, anchor in ((self.x0, ""), (self.x1, "end")):
            parts.append(f'<text x="{self.x(value):.1f}" y="{HEIGHT - 8}" class="{anchor}">{value:.0f}</text>')
        return "".join(parts) + f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" class="middle">{title}</text>'


def figure(title: str, body: str, height: int = HEIGHT, note: str = "") -> str:
    caption = html.escape(title)
    return (f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{caption}">{body}</svg>'
            + (f"<p>{html.escape(note)}</p>" if note else "") + "</figure>")


def lines(title: str, series: dict, logarithmic: bool = False, marks=(), note: str = "") -> str:
    """`series` is {name: [(step, value)]}; `marks` are steps that get a cross at the top."""
    series = {name: thinned([(x, y) for x, y in points if y is not None and math.isfinite(y)]) for name, points in series.items()}
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    everything = [point for points in series.values() for point in points]
    axes = Axes([x for x, _ in everything], [y for _, y in everything], logarithmic)
    body, taken = [axes.frame()], []
    dashes = dict(zip(series, DASHES * len(series)))
    for name, points in sorted(series.items(), key=lambda item: axes.y(item[1][-1][1])):
        path = "M" + "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in points)
        body.append(f'<path class="line" stroke-dasharray="{dashes[name]}" d="{path}"/>')
        at = max(axes.y(points[-1][1]) + 4, taken[-1] + 12 if taken else TOP)
        taken.append(at)
        label = name if len(name) < 14 else name[:6] + "…" + name[-6:]
        body.append(f'<text x="{WIDTH - RIGHT + 5}" y="{at:.1f}">{html.escape(label)}<title>{html.escape(name)}</title></text>')
    for x in marks:
        body.append(f'<path class="mark" d="M{axes.x(x) - 3:.1f} {TOP - 5}l6 6m0 -6l-6 6"><title>step {x}</title></path>')
    return figure(title, "".join(body), note=note)


def stack(title: str, points: list, names: list, note: str = "") -> str:
    """Areas on top of one another, the first name lowest. `points` are dicts with "at", "node" and a number a name; each holds until
    the next. Areas differ in shade and are named at their widest place."""
    if len(points) < 2:
        return ""
    totals = [sum(point[name] for name in names) for point in points]
    axes = Axes([point["at"] for point in points], [0, max(totals)], False)
    body, base = [axes.frame("call of the step")], [0] * len(points)
    for i, name in enumerate(names):
        top = [low + point[name] for low, point in zip(base, points)]
        if top == base:
            continue
        # Steps: a point's height holds up to the place of the next.
        edge = lambda heights: [(axes.x(points[k + d]["at"]), axes.y(heights[k])) for k in range(len(points) - 1) for d in (0, 1)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in edge(top) + edge(base)[::-1])
        body.append(f'<path class="cell area" opacity="{0.85 - 0.2 * i:.2f}" d="M{path}Z"><title>{html.escape(name)}</title></path>')
        widest = max(range(len(points) - 1), key=lambda k: points[k][name])
        middle = axes.y((top[widest] + base[widest]) / 2) + 4
        anchor = "end" if axes.x(points[widest]["at"]) > WIDTH / 2 else ""
        body.append(f'<text class="on {anchor}" x="{axes.x(points[widest]["at"]):.1f}" y="{middle:.1f}">{html.escape(name)}</text>')
        base = top
    most = totals.index(max(totals))
    body.append(f'<path class="mark" d="M{axes.x(points[most]["at"]):.1f} {TOP}V{HEIGHT - BOTTOM}"><title>{html.escape(points[most].get("node", ""))}'
                '</title></path>')
    return figure(title, "".join(body), note=note)


def exponents(title: str, looks: list, note: str = "", axis: str = "step") -> str:
    """Histograms of exponents over time, one column a look, darker where more values are; beside them the ranges of formats. With
    another axis the columns are what it says."""
    looks = [(step, found) for step, found in looks if found["counts"]]
    if not looks:
        return ""
    looks = looks[::-(-len(looks) // 60)]
    low = min(-26, min(found["first"] for _, found in looks))
    high = max(16, max(found["first"] + len(found["counts"]) for _, found in looks))
    cell, width = 5, (WIDTH - LEFT - RIGHT) / len(looks)
    height = (high - low + 1) * cell + TOP + BOTTOM
    y = lambda exponent: TOP + (high - exponent) * cell
    body = []
    for i, (step, found) in enumerate(looks):
        most = max(found["counts"])
        for j, count in enumerate(found["counts"]):
            if count:
                exponent = found["first"] + j
                body.append(f'<rect class="cell" x="{LEFT + i * width:.1f}" y="{y(exponent)}" width="{max(width - 0.5, 0.5):.1f}" height="{cell - 0.5}" '
                            f'opacity="{max(0.08, (count / most) ** 0.5):.2f}"><title>{axis} {html.escape(str(step))}, 2^{exponent}: {count}</title></rect>')
    for exponent in range(low + -low % 8, high + 1, 8):
        body.append(f'<path class="grid" d="M{LEFT} {y(exponent)}H{WIDTH - RIGHT}"/><text class="end" x="{LEFT - 5}" y="{y(exponent) + 4}">2^{exponent}</text>')
    for i, (name, (smallest, normal, largest)) in enumerate(FORMATS.items()):
        x = WIDTH - RIGHT + 10 + i * 19
        top, bottom = y(min(largest, high)), y(max(normal, low)) + cell
        body.append(f'<path class="range" d="M{x} {top}V{bottom}"/><path class="range" stroke-dasharray="2 2" d="M{x} {bottom}V{y(max(smallest, low)) + cell}"/>'
                    f'<text transform="translate({x + 4} {y(-4)}) rotate(90)">{name}<title>{name}: dashed below the smallest normal value</title></text>')
    ends = [html.escape(str(step)[:24]) for step in (looks[0][0], looks[-1][0])]
    body.append(f'<text x="{LEFT}" y="{height - 8}">{ends[0]}</text><text x="{WIDTH - RIGHT}" y="{height - 8}" class="end">{ends[1]}</text>'
                f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 8}" class="middle">{axis}</text>')
    return figure(title, "".join(body), height, note)


def bars(title: str, values: dict, unit: str, note: str = "") -> str:
    """Horizontal bars with their numbers."""
    most = max(values.values(), default=0) or 1
    body = []
    for i, (name, value) in enumerate(values.items()):
        y = 8 + i * 22
        label = name if len(name) < 20 else name[:9] + "…" + name[-9:]
        body.append(f'<text class="end" x="140" y="{y + 12}">{html.escape(label)}<title>{html.escape(name)}</title></text>'
                    f'<rect class="cell" x="146" y="{y}" width="{value / most * (WIDTH - 240):.1f}" height="16"/>'
                    f'<text x="{150 + value / most * (WIDTH - 240):.1f}" y="{y + 12}">{number(value)} {unit}</text>')
    return figure(title, "".join(body), 16 + 22 * len(values), note) if values else ""
