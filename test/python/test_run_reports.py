# SPDX-License-Identifier: Apache-2.0
"""mpt-run's reports of a training step: ranges, the node that overflowed, the validation of drift against error bounds."""
import json
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from mpt_run import tool, write_tensors
from onnx import numpy_helper, parser

TRAIN = ["--loss=mse", "--optimizer=sgd,lr=0.01"]
def write_model(path: pathlib.Path, body: str) -> pathlib.Path:
    """The body as a graph; every node is named after its output."""
    lines = body.replace(") ", ")\n")
    model = parser.parse_model(f"""
<ir_version: 9, opset_import: ["" : 18]>
planted (float[4, 6] x) => (float[4, 6] y) {{
{lines}
}}
""")
    for node in model.graph.node:
        node.name = node.output[0]
    rng = np.random.default_rng(0)
    model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal((6, 6)).astype(np.float32), "w"))
    path.write_bytes(model.SerializeToString())
    return path


def write_batch(path: pathlib.Path, scale=1.0, **poison) -> pathlib.Path:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 6)).astype(np.float32) * np.float32(scale)
    for index, value in poison.items():
        x.flat[int(index[1:])] = value
    write_tensors(path, {"x": x, "target": rng.standard_normal((4, 6)).astype(np.float32)})
    return path


def mpt_run(*words):
    return subprocess.run([tool(), *map(str, words)], capture_output=True, text=True, timeout=120)


def test_blame_knows_bad_data_and_bad_weights(tmp_path):
    model = write_model(tmp_path / "m.onnx", "y = MatMul(x, w)")
    good, bad = write_batch(tmp_path / "good.st"), write_batch(tmp_path / "bad.st", _3=np.nan)
    result = mpt_run(model, *TRAIN, "--policy=amp-f16", "--blame", f"--batch={good}", f"--batch={bad}", f"--batch={good}")
    first, = json.loads(result.stdout)
    assert (first["step"], first["name"], first["nans"]) == (1, "x", 1)
    assert "mend the data" in result.stderr


def test_blame_finds_nothing_in_a_good_run(tmp_path):
    model, batch = write_model(tmp_path / "m.onnx", "y = MatMul(x, w)"), write_batch(tmp_path / "b.st")
    result = mpt_run(model, *TRAIN, "--policy=amp-f16", "--blame", f"--batch={batch}", "--steps=3")
    assert (result.returncode, result.stdout.strip()) == (0, "[]"), result.stderr


def test_certificate(tmp_path):
    model, batch = write_model(tmp_path / "m.onnx", "a = MatMul(x, w) b = Tanh(a) y = MatMul(b, w)"), write_batch(tmp_path / "b.st")
    words = [model, *TRAIN, "--certify", f"--batch={batch}", "--steps=4"]
    for policy in ["fp32", "amp-f16", "amp-bf16"]:
        good = mpt_run(*words, f"--policy={policy}", "-o", tmp_path / "c.json")
        certificate = json.loads((tmp_path / "c.json").read_text())
        assert good.returncode == 0 and certificate["pass"], good.stderr
        assert len(certificate["steps"]) == 4 and len(certificate["gradients"]) == 4
        assert all(row["cosine"] > 0.999 for row in certificate["gradients"])
        assert any(row["relative_error"] > 0 for row in certificate["tensors"])
    # Planted: a loss scale so small that the gradients vanish, and one so large that every step overflows.
    for scale, said in [("1e-9", "cosine"), ("1e19", "steps were skipped")]:
        bad = mpt_run(*words, "--policy=amp-f16", f"--loss-scale={scale}")
        assert bad.returncode == 1 and not json.loads(bad.stdout)["pass"]
        assert said in bad.stderr
    # Planted: everything narrow, sums of squares and exponentials too, on values that only just fit.
    model = write_model(tmp_path / "p.onnx", "a = MatMul(x, w) b = Mul(a, a) c = Log(b) y = MatMul(c, w)")
    narrow = mpt_run(model, *TRAIN, "--certify", f"--batch={write_batch(tmp_path / 's.st', 1e-4)}", "--policy=amp-f16",
                     "--keep-narrow=.*")
    assert narrow.returncode == 1 and "became zero" in narrow.stderr


def write_long_product(folder) -> list:
    """y = Tanh(x w1) w2 with sums of 1000 small terms, which a BF16 accumulator stops adding to; module texts and a batch."""
    rng = np.random.default_rng(0)
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
long (float[4, 1000] x) => (float[4, 6] y) { a = MatMul(x, w1) b = Tanh(a) y = MatMul(b, w2) }""".replace(") ", ")\n"))
    for node in model.graph.node:
        node.name = node.output[0]
    for name, value in {"w1": rng.uniform(0, 2 / 1000, (1000, 1)), "w2": rng.standard_normal((1, 6))}.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    (folder / "long.onnx").write_bytes(model.SerializeToString())
    write_tensors(folder / "long.st", {"x": rng.uniform(0, 2, (4, 1000)).astype(np.float32), "target": np.zeros((4, 6), np.float32)})
    opt = pathlib.Path(tool()).with_name("mpt-opt")
    for name, policy, scale in (("good", "amp-f16", "1024"), ("wide", "fp32", "none")):
        subprocess.run([opt, folder / "long.onnx", "--loss=mse", "--optimizer=sgd,lr=1e-5", f"--policy={policy}", f"--loss-scale={scale}", "--to=precision", "--quiet",
                        "-o", folder / f"{name}.mlir"], check=True)
    return ["--certify", f"--reference={folder / 'wide.mlir'}", f"--batch={folder / 'long.st'}", "--steps=2"]


def test_certificate_catches_planted_bugs(tmp_path):
    """Errors that a faulty pass could make in a good step, in the text of the module."""
    words, good = write_long_product(tmp_path), (tmp_path / "good.mlir")
    result = mpt_run(good, *words)
    certificate = json.loads(result.stdout)
    assert result.returncode == 0 and certificate["pass"] and not certificate["failures"], result.stderr
    assert set(certificate["limits"]) == {"loss_difference", "gradient_cosine", "gradient_error", "update_error", "ulp", "overflow_share",
                                          "underflow_share", "skipped_share"}
    text = good.read_text()
    bugs = {
        "narrow": (text.replace("acc = f32", "acc = bf16"), "the loss is|differs from its FP64 gradient"),
        # The gradient leaves without its division by the scale.
        "unscaled": (re.sub(r"train\.unscale (%\w+), %\w+ : \((tensor<\w+>), .*", r"mpt.add \1, \1 : \2", text),
                     "differs from its FP64 gradient"),
    }
    for name, (bug, said) in bugs.items():
        assert bug != text, name
        (tmp_path / "bug.mlir").write_text(bug)
        result = mpt_run(tmp_path / "bug.mlir", *words)
        assert result.returncode == 1 and not json.loads(result.stdout)["pass"], (name, result.stderr)
        assert re.search(said, result.stderr), (name, result.stderr)
    # Limits are the user's: the same bug passes where they allow it.
    (tmp_path / "bug.mlir").write_text(bugs["unscaled"][0])
    assert mpt_run(tmp_path / "bug.mlir", *words, "--max-gradient-error=1e9", "--max-update-error=1e9", "--max-ulp=1e9",
                   "--max-loss-difference=1e9", "--max-underflow=1").returncode == 0
    assert mpt_run(good, "--certify", f"--batch={tmp_path / 'long.st'}").returncode == 2


def test_calibration_counts_every_value(tmp_path):
    model, batch = write_model(tmp_path / "m.onnx", "a = MatMul(x, w) y = Relu(a)"), write_batch(tmp_path / "b.st", 1e5)
    ranges, report = tmp_path / "r.json", tmp_path / "r.html"
    result = mpt_run(model, *TRAIN, "--policy=amp-f16", "--calibrate", f"--batch={batch}", f"--batch={batch}", "-o", ranges)
    assert result.returncode == 0, result.stderr
    measured = json.loads(ranges.read_text())
    assert measured["steps"] == 2
    a = measured["values"]["step|a|mpt.matmul|0|0"]
    assert a["kind"] == "activation" and sum(a["exponents"].values()) + a["zeros"] == 2 * 24 and a["largest"] > 65504
    y = measured["values"]["step|y|mpt.relu|0|0"]
    assert 0 < y["zeros"] < 48
    assert measured["values"]["state|w"]["kind"] == "weight"
    assert "gradient" in {value["kind"] for value in measured["values"].values()}, measured["values"].keys()
    # The page shows them beside the decisions, and loads nothing.
    opt = pathlib.Path(tool()).with_name("mpt-opt")
    subprocess.run([opt, model, *TRAIN, "--policy=amp-f16", f"--ranges={ranges}", f"--report=precision={report}", "--dry-run", "--quiet",
                    "-o", tmp_path / "none"], check=True)
    page = report.read_text()
    assert "overflow" in page and "<svg" in page and "http" not in page and not (tmp_path / "none").exists()
    refused = subprocess.run([opt, model, *TRAIN, f"--ranges={batch}", "--report=precision", "--dry-run"], capture_output=True, text=True,
                             errors="replace")
    assert refused.returncode != 0 and "is not JSON" in refused.stderr


@pytest.mark.parametrize("words, said", [
    ([], "--batch=FILE"), (["--batch=/none"], "none"), (["--steps=0"], "expected N for --steps"), (["--polcy=x", "--batch={b}"], "--polcy"),
    (["--batch={b}", "--max-underflow=x"], "expected X for --max-underflow")])
def test_bad_use_is_explained(tmp_path, words, said):
    model, batch = write_model(tmp_path / "m.onnx", "y = MatMul(x, w)"), write_batch(tmp_path / "b.st")
    result = mpt_run(model, *TRAIN, "--blame", *(word.format(b=batch) for word in words))
    assert result.returncode == 2 and said in result.stderr, result.stderr
    assert os.path.getsize(batch)
