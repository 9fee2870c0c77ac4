# SPDX-License-Identifier: Apache-2.0
"""The picture of docs/design.md: the compiler's phases in their order, as an SVG that light and dark pages can show.

The phases are read from passes/Pipelines.cpp. A phase without words here still gets its box.
"""
import os
import re

import repo

SOURCE = "passes/Pipelines.cpp"
# Phase -> the form of the module behind it, and the file that leaves there.
FORMS = {
    "import": ("core graph", "dialects mpt, train"), "training": ("training step", "loss, backward, update"),
    "precision": ("typed step", "casts, masters, scales"), "distribution": ("replica's step", "collectives"),
    "fusion": ("grouped step", "one kernel a group"), "library": ("library calls", "on tensors"),
    "buffers": ("calls and launches", "on buffers"), "kernels": ("kernels as loops", "or grids of threads"),
    "memory": ("one arena", "with offsets"), "target": ("machine code", "CPU or PTX"),
}
LEAVES = {"precision": "rewritten .onnx", "target": "library, weights"}
WIDTH, HEIGHT, GAP, ACROSS = 166, 76, 36, 4
STYLE = """text { font: 13px sans-serif; fill: #1f2328; text-anchor: middle } .name { font-weight: bold }
  rect { fill: #ddf4ff; stroke: #0969da } .file { fill: #fff8c5; stroke: #9a6700 } path { fill: none; stroke: #57606a } .tip { fill: #57606a }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } rect { fill: #0c2d6b; stroke: #58a6ff }
    .file { fill: #4b2900; stroke: #d29922 } path { stroke: #9ea7b3 } .tip { fill: #9ea7b3 } }"""


def phases():
    """The names of the compiler's phases, in order; the target emits behind the last one."""
    table = re.search(r"constexpr Phase phases\[\] = \{(.*?)\n\};", repo.text(SOURCE), re.S)
    return [*re.findall(r'\{\s*"(\w+)"', table[1]), "target"] if table else []


def box(x, y, lines, kind=""):
    words = "".join(f'<text x="{x + WIDTH // 2}" y="{y + 22 + 20 * i}"{" class=" + chr(34) + "name" + chr(34) if i == 0 else ""}>{line}</text>'
                    for i, line in enumerate(lines))
    return f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"{kind}/>{words}'


def arrow(*points):
    return f'<path d="M{" L".join(f"{x} {y}" for x, y in points)}" marker-end="url(#tip)"/>'


def picture():
    """The SVG, or None where the source has no table of phases: rows of boxes, read from left to right."""
    names = phases() if os.path.exists(os.path.join(repo.ROOT, SOURCE)) else []
    if not names:
        return None
    step, drop = WIDTH + GAP, HEIGHT + 2 * GAP
    places = {name: (GAP // 2 + step * (i % ACROSS + 1), GAP // 2 + drop * (i // ACROSS)) for i, name in enumerate(names)}
    parts = [box(GAP // 2, GAP // 2, ["model.onnx", "joint graph,", "artifacts"], ' class="file"')]
    before = (GAP // 2, GAP // 2)
    for name, (x, y) in places.items():
        middle = y + HEIGHT // 2
        if y == before[1]:
            parts.append(arrow((before[0] + WIDTH, middle), (x - 4, middle)))
        else:
            lane = y - GAP // 2
            parts.append(arrow((before[0] + WIDTH // 2, before[1] + HEIGHT), (before[0] + WIDTH // 2, lane), (x + WIDTH // 2, lane), (x + WIDTH // 2, y - 4)))
        parts.append(box(x, y, [name, *FORMS.get(name, ())]))
        before = (x, y)
    rows = -(-len(names) // ACROSS)
    for name, file in LEAVES.items():
        if name in places:
            x, y = places[name]
            last = y // drop == rows - 1
            below = y + HEIGHT + (GAP // 2 + 4 if last else 22)
            parts += [arrow((x + WIDTH // 2 - 40, y + HEIGHT), (x + WIDTH // 2 - 40, below - 14)),
                      f'<text x="{x + WIDTH // 2 - 40}" y="{below}">{file}</text>']
    width, height = step * (ACROSS + 1), drop * rows - GAP // 2 // 2
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f"<title>The phases of a compilation: {', '.join(names)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
            + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    print(picture(), end="")
