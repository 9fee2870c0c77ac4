# SPDX-License-Identifier: Apache-2.0
"""Steps with a planted bug: errors that a faulty compiler or runtime could make in a right module, in its text after phase precision.

Each bug takes the lines of one function and changes the first place where it can; None where there is none. As a program, prints
the table of `docs/results/certificates.md`: MPT_BUILD=build/release python test/python/planted_steps.py
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from mpt_run import tool, write_tensors
from onnx import load, numpy_helper, parser, save

MATMUL = re.compile(r"^( *)(%\w+) = mpt\.matmul (%\w+), (%\w+) \{(.*)\} : \(tensor<(\w+)>, tensor<(\w+)>\) -> tensor<(\w+)>$")


def element(tensor: str) -> str:
    return tensor.rsplit("x", 1)[-1]


def shape(tensor: str) -> list:
    return [int(extent) for extent in tensor.split("x")[:-1]]


def first(lines, edit):
    """The lines with the first one changed for which `edit` gives others."""
    for i, line in enumerate(lines):
        if (found := edit(line)) is not None:
            return lines[:i] + found + lines[i + 1:]
    return None


def rounding_dropped(lines):
    """A GEMM reads its operands before they are rounded."""
    casts = {m[1]: m for line in lines
             if (m := re.match(r" *(%\w+) = mpt\.cast (%\w+)[^:]*(?: key .*)?: tensor<(\w+)> to tensor<(\w+)>$", line))}

    def edit(line):
        m = MATMUL.match(line)
        source = m and casts.get(m[3])
        if not source or "stochastic" in source[0] or element(source[3]) != "f32":
            return None
        indent, result, _, b, attributes, a_type, b_type, out = m.groups()
        wide = a_type.rsplit("x", 1)[0] + "xf32", b_type.rsplit("x", 1)[0] + "xf32"
        attributes = re.sub(r"in = \w+", "in = f32", attributes)
        return [f"{indent}%planted = mpt.cast {b} : tensor<{b_type}> to tensor<{wide[1]}>",
                f"{indent}{result} = mpt.matmul {source[2]}, %planted {{{attributes}}} : (tensor<{wide[0]}>, tensor<{wide[1]}>) -> tensor<{out}>"]
    return first(lines, edit)


def split(m, keep_second, partial):
    """The GEMM of match `m` over halves of the contracted axis, whose sums have type `partial`."""
    indent, result, a, b, attributes, a_type, b_type, out = m.groups()
    axes = int("transpose_a = true" not in attributes), int("transpose_b = true" in attributes)
    extents = shape(a_type), shape(b_type)
    if any(len(extent) != 2 for extent in extents) or extents[0][axes[0]] < 8:
        return None
    half = extents[0][axes[0]] // 2
    sums = out.rsplit("x", 1)[0] + "x" + partial
    attributes = re.sub(r"out = \w+", f"out = {partial}", attributes)
    lines = []
    for part in range(2 if keep_second else 1):
        types = []
        for name, type_, extent, axis in (("a", a_type, extents[0], axes[0]), ("b", b_type, extents[1], axes[1])):
            starts, sizes = [0, 0], list(extent)
            starts[axis], sizes[axis] = part * half, half if part == 0 else extent[axis] - half
            types.append("x".join(map(str, sizes)) + "x" + element(type_))
            lines.append(f"{indent}%planted_{name}{part} = mpt.slice {a if name == 'a' else b} {{starts = array<i64: {starts[0]}, {starts[1]}>, "
                         f"sizes = array<i64: {sizes[0]}, {sizes[1]}>, strides = array<i64: 1, 1>}} : (tensor<{type_}>) -> tensor<{types[-1]}>")
        lines.append(f"{indent}%planted_s{part} = mpt.matmul %planted_a{part}, %planted_b{part} {{{attributes}}} : (tensor<{types[0]}>, "
                     f"tensor<{types[1]}>) -> tensor<{sums}>")
    total = "%planted_s0"
    if keep_second:
        total = "%planted_sum"
        lines.append(f"{indent}{total} = mpt.add %planted_s0, %planted_s1 : tensor<{sums}>")
    if sums == out:
        return [*lines[:-1], lines[-1].replace(total + " =", result + " =")]
    return [*lines, f"{indent}{result} = mpt.cast {total} : tensor<{sums}> to tensor<{out}>"]


def backward(m):
    return m and "transpose_a = true" in m[5]


def partial_sums(lines):
    """Partial sums of a weight's gradient are added in BF16, as split-K would."""
    return first(lines, lambda line: split(m, True, "bf16") if backward(m := MATMUL.match(line)) else None)


def tile_dropped(lines):
    """A GEMM leaves out half of its contracted axis."""
    return first(lines, lambda line: split(m, False, element(m[8])) if backward(m := MATMUL.match(line)) else None)


def half_scale(lines):
    """A gradient is divided by half its scale."""
    return first(lines, lambda line: [f"{m[1]}%planted = mpt.add {m[4]}, {m[4]} : {m[6]}", f"{m[1]}{m[2]} = train.gradient {m[3]}, %planted{m[5]} : {m[6]}"]
                 if (m := re.match(r"^( *)(%\w+) = train\.gradient (@[\w.]+), (%\w+)(.*) : (tensor<\w+>)$", line)) else None)


def not_unscaled(lines):
    """A gradient keeps its scale: the last one, since layer-wise scales start from 1."""
    for i, line in reversed(list(enumerate(lines))):
        if m := re.match(r"^ *(%\w+) = train\.unscale (%\w+), (%\w+) : \((tensor<\w+>), .*-> (tensor<\w+>)", line):
            if m[4] == m[5]:
                return lines[:i] + [re.sub(rf"{m[1]}\b", m[2], later) for later in lines[i + 1:]]
    return None


def write_of(lines, pattern):
    return next((i for i, line in enumerate(lines) if re.match(rf" *train\.write @{pattern}[ ,]", line)), None)


def without_write(lines, pattern):
    i = write_of(lines, pattern)
    return None if i is None else lines[:i] + lines[i + 1:]


def master_stale(lines):
    """A parameter that is trained is not written: its master where it has one."""
    return without_write(lines, r"\w+\.master") or without_write(lines, r"[wb]\d")


def copy_stale(lines):
    """The master is written, the narrow copy is not."""
    i = write_of(lines, r"\w+\.master")
    return None if i is None else without_write(lines, re.search(r"@(\w+)\.master", lines[i])[1])


def overflow_committed(lines):
    """Writes of a step that overflows are not left out."""
    if not any("train.scale_loss" in line for line in lines):
        return None
    changed = [re.sub(r"^( *train\.write @[wb]\d\S*, %\w+) if %\w+ : tensor<i1>", r"\1", line) for line in lines]
    return None if changed == lines else changed


def scale_stays(lines):
    """The loss scale does not move."""
    return without_write(lines, r"mpt\.loss_scale")


def state_rounded(lines):
    """An optimizer state loses bits before it is written."""
    narrow = "f8E5M2"

    def edit(line):
        m = re.match(r"^( *)train\.write (@\w+\.momentum), (%\w+)(.*) : (tensor<(\w+)>)$", line)
        if not m:
            return None
        less = f"tensor<{m[6].rsplit('x', 1)[0]}x{narrow}>"
        return [f"{m[1]}%planted_less = mpt.cast {m[3]} : {m[5]} to {less}", f"{m[1]}%planted = mpt.cast %planted_less : {less} to {m[5]}",
                f"{m[1]}train.write {m[2]}, %planted{m[4]} : {m[5]}"]
    return first(lines, edit)


def mask_dropped(lines):
    """ReLU's gradient passes where ReLU did not."""
    for i, line in enumerate(lines):
        if m := re.match(r"^ *(%\w+) = mpt\.relu_backward (%\w+), ", line):
            return lines[:i] + [re.sub(rf"{m[1]}\b", m[2], later) for later in lines[i + 1:]]
    return None


def updates_narrow(lines):
    """The optimizer starts from the narrow copy in place of the master."""
    reads = {m[2]: (m[1], m[3]) for line in lines if (m := re.match(r"^ *(%\w+) = train\.read @([\w.]+).* : (tensor<\w+>)$", line))}

    def edit(line):
        m = re.match(r"^( *)(%.*) = mpt\.sgd (%\w+), (.*)$", line)
        name = m and next((n for n, (value, _) in reads.items() if value == m[3] and n.endswith(".master")), None)
        if not name:
            return None
        copy, narrow = reads[name.removesuffix(".master")]
        return [f"{m[1]}%planted = mpt.cast {copy} : {narrow} to {reads[name][1]}", f"{m[1]}{m[2]} = mpt.sgd %planted, {m[4]}"]
    return first(lines, edit)


BUGS = {f.__name__: f for f in (rounding_dropped, partial_sums, tile_dropped, half_scale, not_unscaled, master_stale, copy_stale,
                                overflow_committed, scale_stays, state_rounded, mask_dropped, updates_narrow)}
OVERFLOWS = {"overflow_committed", "scale_stays"}


def plant(text: str, bug) -> str | None:
    """The module with the bug in every function that has a place for it."""
    parts = re.split(r"(?m)^(?=  func\.func )", text)
    changed = [("\n".join(lines) if (lines := bug(part.split("\n"))) else part) for part in parts]
    return None if changed == parts else "".join(changed)


def words_for(bug: str) -> list:
    scale = ["--loss-scale=dynamic,init=16777216,hysteresis=1"] if bug in OVERFLOWS else []
    # So small that layer-wise scales have something to do.
    weight = ",weight=1e-6" if bug == "not_unscaled" else ""
    return ["--loss=softmax-cross-entropy" + weight, "--optimizer=sgd,lr=0.5,momentum=0.9", "--quiet", *scale]


def write_model(folder) -> None:
    """Four layers, so that recipes with other rules for the first and the last have both; one batch."""
    rng = np.random.default_rng(0)
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
m (float[32, 64] x) => (float[32, 10] y) {
a = Gemm(x, w1, b1) b = Relu(a) c = Gemm(b, w2, b2) d = Relu(c) e = MatMul(d, w3) f = Tanh(e) y = MatMul(f, w4) }""".replace(") ", ")\n"))
    for name, extents in {"w1": (64, 48), "b1": (48,), "w2": (48, 48), "b2": (48,), "w3": (48, 32), "w4": (32, 10)}.items():
        value = rng.standard_normal(extents) / np.sqrt(extents[0])
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    for node in model.graph.node:
        node.name = node.output[0]
    save(model, folder / "m.onnx")
    write_tensors(folder / "batch.st", {"x": rng.standard_normal((32, 64)).astype(np.float32), "labels": rng.integers(0, 10, 32)})


def with_weights(folder, path) -> pathlib.Path:
    """The module at `path` with the model's weights in its text, where it refers to the model for them."""
    values = {t.name: numpy_helper.to_array(t) for t in load(folder / "m.onnx").graph.initializer}
    path.write_text(re.sub(r"dense_resource<(\w+)>", lambda m: f'dense<"0x{values[m[1]].tobytes().hex()}">', path.read_text()))
    return path


def certify(folder, policy: str, bug: str | None, *words):
    """mpt-run's result for the library with that bug; None where the recipe has no place for it, REFUSED where it is not compiled."""
    opt = pathlib.Path(tool()).with_name("mpt-opt")
    flags = words_for(bug)
    scaled = flags if policy in SCALED else [word for word in flags if "loss-scale" not in word]
    subprocess.run([opt, folder / "m.onnx", f"--policy={policy}", *scaled, "--to=precision", "-o", folder / "right.mlir"], check=True)
    subprocess.run([opt, folder / "m.onnx", "--policy=fp32", *[word for word in flags if "loss-scale" not in word], "--to=precision", "-o",
                    folder / "wide.mlir"], check=True)
    with_weights(folder, folder / "wide.mlir")
    text = with_weights(folder, folder / "right.mlir").read_text()
    if bug:
        text = plant(text, BUGS[bug])
    if text is None or (bug in OVERFLOWS and policy not in SCALED):
        return None
    (folder / "wrong.mlir").write_text(text)
    library = tempfile.mkdtemp(dir=folder)
    compiled = subprocess.run([opt, folder / "wrong.mlir", "--from=fusion", "--quiet", "-o", library], capture_output=True, text=True)
    if compiled.returncode == 1 and bug and "without a scale" in compiled.stderr:
        return REFUSED
    compiled.check_returncode()
    return subprocess.run([tool(), folder / "right.mlir", "--certify", f"--reference={folder / 'wide.mlir'}", f"--library={library}",
                           f"--batch={folder / 'batch.st'}", "--steps=3", "--max-skipped=1", *words], capture_output=True, text=True)


# fusion-verify-scales saw the bug, so that there is no library to validate.
REFUSED = object()
# Policies whose loss scale is dynamic.
SCALED = {"amp-f16", "pure-f16-static", "fp8-e5m2", "fp8-e5m2-saved", "autocast-cuda-f16"}


def main() -> None:
    policies = sys.argv[1:] or sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "lib/Precision/policies").glob("*.mlir"))
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder)
        print("| policy | right | " + " | ".join(bug.replace("_", " ") for bug in BUGS) + " |\n|---|---|" + "---|" * len(BUGS), flush=True)
        for policy in policies:
            cells = []
            for bug in [None, *BUGS]:
                result = certify(folder, policy, bug)
                if result is REFUSED:
                    cells.append("not compiled")
                    continue
                if result is not None and result.returncode not in (0, 1):
                    raise SystemExit(f"{policy}, {bug}: {result.stderr}")
                caught = result is not None and result.returncode == 1
                missed += result is not None and caught != bool(bug)
                cells.append("" if result is None else "refused" if caught else "passes")
                if "-v" in sys.argv or (result is not None and caught != bool(bug)):
                    print(f"{policy}, {bug}: {result.stderr[:2000]}", file=sys.stderr)
            print(f"| `{policy}` | " + " | ".join(cells) + " |", flush=True)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
