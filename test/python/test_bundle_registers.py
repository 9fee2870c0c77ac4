# SPDX-License-Identifier: Apache-2.0
"""Kernels over as many tensors as a large model has: finite checks and updates of a launch stay in the registers."""
import pathlib
import subprocess
import sys

import pytest
from conftest import build_folder

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cts"))
from run_cts import ASSEMBLER, assemble  # noqa: E402


def fusion(inputs, outputs, body):
    """A function that is one fusion of inputs {name: type} and outputs [(value, type)]."""
    types, results = ", ".join(inputs.values()), ", ".join(type_ for _, type_ in outputs)
    arguments = ", ".join(f"%{name}: {type_}" for name, type_ in inputs.items())
    names = ", ".join(f"%{name}" for name in inputs)
    returned = ", ".join(f"%r#{i}" for i in range(len(outputs))) if len(outputs) > 1 else "%r"
    count = f":{len(outputs)}" if len(outputs) > 1 else ""
    block = ", ".join(f"%b_{name}: {type_}" for name, type_ in inputs.items())
    return f"""func.func @f({arguments}) -> ({results}) {{
  %r{count} = mpt.fusion({names}) : ({types}) -> ({results}) {{
  ^bb0({block}):
    {body}
    mpt.yield {", ".join(value for value, _ in outputs)} : {results}
  }}
  return {returned} : {results}
}}
"""


def finite_scalars(count):
    """Largest elements of all tensors, each with its own check: as layer-wise and 8-bit scales leave them."""
    lines, last = [], None
    for i in range(count):
        lines.append(f"%c{i} = mpt.is_finite %b_x{i} : tensor<{'f32' if i % 2 else 'bf16'}>")
        if i:
            lines.append(f"%a{i} = mpt.and {last}, %c{i} : tensor<i1>")
        last = f"%a{i}" if i else "%c0"
    return fusion({f"x{i}": f"tensor<{'f32' if i % 2 else 'bf16'}>" for i in range(count)}, [(last, "tensor<i1>")], "\n    ".join(lines))


def finite_tensors(count):
    """A check of every gradient, of different sizes."""
    shapes = [f"{1 + 37 * (i % 11)}x{8 * (1 + i % 7)}" for i in range(count)]
    lines = []
    for i, shape in enumerate(shapes):
        lines += [f"%c{i} = mpt.is_finite %b_x{i} : tensor<{shape}xbf16>",
                  f"%d{i} = mpt.reduce min %c{i} {{axes = array<i64: 0, 1>}} : (tensor<{shape}xi1>) -> tensor<i1>"]
    return fusion({f"x{i}": f"tensor<{shape}xbf16>" for i, shape in enumerate(shapes)}, [(f"%d{i}", "tensor<i1>") for i in range(count)],
                  "\n    ".join(lines))


@pytest.mark.parametrize("make, count", [(finite_scalars, 125), (finite_scalars, 199), (finite_tensors, 125)])
def test_nothing_spills(tmp_path, make, count):
    opt = build_folder() / "bin" / "mpt-opt"
    if not opt.exists():
        pytest.skip("the compiler is not built")
    (tmp_path / "m.mlir").write_text(make(count))
    for arch in ("sm_80", "sm_90", "sm_100"):
        ptx = tmp_path / f"{arch}.ptx"
        done = subprocess.run([opt, tmp_path / "m.mlir", "--memory-bufferize=target=cuda", "--lowering-emit-kernels=target=cuda",
                               f"--lowering-emit-ptx=arch={arch} file={ptx}", "-o", tmp_path / "out.mlir"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if ASSEMBLER:
            assemble(ptx, arch)
    text = (tmp_path / "out.mlir").read_text()
    assert text.count("mpt.grid") <= 2, "one set of launches for all of them"
    assert ('mpt.schedule = "bundle"' in text) == (make is finite_tensors)
