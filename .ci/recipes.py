#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the built-in policies: which type a parameter, an activation and a gradient has on its way through a step.

The types come from the policy's own attributes. A border says the width of a type without colour: thick for 32 bits, thin for
16, dashed for 8.
"""
import re

TYPES = {"f32": "FP32", "f16": "FP16", "bf16": "BF16", "f8E4M3FN": "E4M3", "f8E5M2": "E5M2", "i8": "8-bit codes"}
BITS = {"f32": 32, "f16": 16, "bf16": 16}
WIDTH, HEIGHT, GAP, MARGIN = 146, 86, 26, 12
STYLE = """text { font: 13px sans-serif; fill: #1f2328; text-anchor: middle } .name { font-weight: bold } .key { text-anchor: start }
  rect { stroke: #1f2328 } .b32 { fill: #ffffff; stroke-width: 3.5 } .b16 { fill: #ddf4ff; stroke-width: 1.2 }
  .b8 { fill: #fff8c5; stroke-width: 1.6; stroke-dasharray: 6 4 } path { fill: none; stroke: #57606a } .tip { fill: #57606a }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } rect { stroke: #e6edf3 } .b32 { fill: #161b22 } .b16 { fill: #0c2d6b }
    .b8 { fill: #4b2900 } path { stroke: #9ea7b3 } .tip { fill: #9ea7b3 } }"""
ROUNDING = {"nearest_even": "round to nearest", "stochastic": "round stochastically", "compensated": "compensated sum"}


class Recipe:
    """The attributes of a policy's file that a picture shows."""

    def __init__(self, text):
        head = re.search(r"^policy\.policy @\w+ (.*) \{$", text, re.M)[1]
        types = dict(re.findall(r"(\w+) = (\w+)", head))
        self.storage, self.compute, self.master = types["storage"], types["compute"], types["master"]
        self.accumulate, self.slots = types["accumulate"], types.get("slots", "f32")
        gradients = types["gradients"]
        narrow = gradients not in BITS
        self.backward = gradients if narrow else self.compute
        self.gradient = types.get("parameter_gradients", "f32" if narrow else gradients)
        self.saved = types.get("saved", self.storage)
        self.mode = self.found(r"policy\.loss_scaling (\w+)", text) or "none"
        self.scale = float(self.found(r"policy\.loss_scaling \w+ \{init = ([\d.e+-]+)", text) or 1)
        self.tensors = self.found(r"policy\.tensor_scaling (\w+)", text)
        self.masters = self.found(r'policy\.rounding "(\w+)" of masters', text) or "nearest_even"

    @staticmethod
    def found(pattern, text):
        match = re.search(pattern, text)
        return match and match[1]

    def loss(self):
        """The words of the box behind the loss."""
        if self.mode == "adaptive":
            return ["scale a layer", "chosen by spread"]
        if self.scale == 1 and self.mode != "dynamic":
            return ["no loss scale"]
        return [f"loss × {self.scale:g}", "then dynamic" if self.mode == "dynamic" else "always"]

    def unscaled(self):
        """The words of the box before the update; none where a gradient arrives there as it is."""
        if self.mode == "none" and self.gradient == "f32":
            return []
        scaled = self.mode in ("dynamic", "adaptive") or self.scale != 1
        action = "÷ scale" if scaled else "check" if self.gradient == "f32" else "widen"
        return [action, "FP32", *(["skip if not finite"] if self.mode != "none" else [])]

    def places(self):
        """(column, row, type that the border shows, lines) of each box: the way forward above, the way back below."""
        same = self.master == self.storage
        gemm = lambda kind, of: (kind, [of, f"{TYPES[kind]} operands", f"{TYPES[self.accumulate]} sums",
                                        *(["scale a tensor"] if self.tensors else [])])
        forward, back = gemm(self.compute, "GEMM"), gemm(self.backward, "backward GEMM")
        kept = ["activation", TYPES[self.storage], *([f"kept as {TYPES[self.saved]}"] if self.saved != self.storage else [])]
        written = [ROUNDING[self.masters]] if self.master != "f32" else []
        yield 0, 0, self.master, ["parameter", TYPES[self.master], *([] if same else ["master"])]
        if not same:
            yield 1, 0, self.storage, ["narrow copy", TYPES[self.storage], ROUNDING["nearest_even"]]
        yield 2, 0, *forward
        yield 3, 0, self.saved, kept
        yield 4, 0, "f32", ["loss", "FP32"]
        yield 4, 1, "f32", self.loss()
        yield 3, 1, *back
        yield 2, 1, self.gradient, ["gradient", TYPES[self.gradient]]
        if self.unscaled():
            yield 1, 1, "f32", self.unscaled()
        yield 0, 1, "f32", ["update", "in FP32", f"slots {TYPES[self.slots]}", *written]


def box(column, row, kind, lines):
    x, y = MARGIN + column * (WIDTH + GAP), MARGIN + row * (HEIGHT + 2 * GAP)
    first = y + HEIGHT // 2 - 9 * (len(lines) - 1) + 5
    words = "".join(f'<text x="{x + WIDTH // 2}" y="{first + 18 * i}"{" class=" + chr(34) + "name" + chr(34) if i == 0 else ""}>{line}</text>'
                    for i, line in enumerate(lines))
    return f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" class="b{BITS.get(kind, 8)}"/>{words}'


def arrow(start, end):
    """Between two boxes of a row, or of a column."""
    x, y = [MARGIN + at[0] * (WIDTH + GAP) for at in (start, end)], [MARGIN + at[1] * (HEIGHT + 2 * GAP) for at in (start, end)]
    if y[0] == y[1]:
        ends = (x[0] + WIDTH, x[1] - 3) if x[0] < x[1] else (x[0], x[1] + WIDTH + 3)
        way = f"M{ends[0]} {y[0] + HEIGHT // 2} L{ends[1]} {y[0] + HEIGHT // 2}"
    else:
        ends = (y[0] + HEIGHT, y[1] - 3) if y[0] < y[1] else (y[0], y[1] + HEIGHT + 3)
        way = f"M{x[0] + WIDTH // 2} {ends[0]} L{x[0] + WIDTH // 2} {ends[1]}"
    return f'<path d="{way}" marker-end="url(#tip)"/>'


def picture(name, text):
    """The SVG of the policy in a file's text."""
    boxes = list(Recipe(text).places())
    way = [(column, row) for column, row, *_ in boxes]
    arrows = [arrow(a, b) for a, b in zip(way, [*way[1:], way[0]])] + [arrow((3, 0), (3, 1))]
    width, end = 2 * MARGIN + 5 * WIDTH + 4 * GAP, 2 * MARGIN + 2 * HEIGHT + 2 * GAP
    key = "Border: thick 32 bits, thin 16 bits, dashed 8 bits. Above: forward. Below, to the left: backward and update."
    told = "; ".join(", ".join(lines) for *_, lines in boxes)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {end + 22}" width="{width}" height="{end + 22}" role="img">\n'
            f"<title>{name}: {told}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
            + "\n".join([*arrows, *(box(*place) for place in boxes)]) + f'\n<text class="key" x="{MARGIN}" y="{end + 10}">{key}</text>\n</svg>\n')
