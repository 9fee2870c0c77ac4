"""What mpt-run tells of a training step: ranges, the node that overflowed, the drift certificate."""
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
# A body between x (float[4, 6]) and y, with weight w (float[6, 6]); the node to blame under a policy; a multiple for x.
PLANTED = {
    "product": ("a = MatMul(x, w) y = MatMul(a, w)", "amp-f16", 3e4),
    "sum": ("a = MatMul(x, w) b = Add(a, a) y = MatMul(b, w)", "amp-f16", 1.5e4),
    "square": ("a = MatMul(x, w) b = Mul(a, a) y = MatMul(b, w)", "amp-f16", 300.0),
    "logarithm": ("a = Neg(x) b = Mul(a, a) c = Neg(b) d = Log(c) y = MatMul(d, w)", "fp32", 1.0),
    "root": ("a = Mul(x, x) b = Neg(a) c = Sqrt(b) y = MatMul(c, w)", "fp32", 1.0),
    "division": ("a = Sub(x, x) b = Div(x, a) y = MatMul(b, w)", "fp32", 1.0),
    "exponential": ("a = Mul(x, big) b = Exp(a) y = MatMul(b, w)", "fp32", 1.0),
    "power": ("a = Mul(x, x) b = Pow(a, big) y = MatMul(b, w)", "fp32", 10.0),
    "reciprocal": ("a = Sub(x, x) b = Reciprocal(a) y = MatMul(b, w)", "amp-bf16", 1.0),
    "difference": ("a = Mul(x, huge) b = Mul(a, huge) y = MatMul(b, w)", "fp32", 1.0),
}
BLAMED = {"product": "a", "sum": "b", "square": "b", "logarithm": "d", "root": "c", "division": "b", "exponential": "b",
          "power": "b", "reciprocal": "b", "difference": "b"}


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
    for name, value in {"w": rng.standard_normal((6, 6)), "big": np.full((4, 6), 7e4), "huge": np.full((4, 6), 1e30)}.items():
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
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


@pytest.mark.parametrize("name", PLANTED)
def test_blame_names_the_node(tmp_path, name):
    body, policy, scale = PLANTED[name]
    model, batch = write_model(tmp_path / "m.onnx", body), write_batch(tmp_path / "b.st", scale)
    result = mpt_run(model, *TRAIN, f"--policy={policy}", "--train=w", "--blame", f"--batch={batch}", "-o", tmp_path / "b.json")
    assert result.returncode == 1, result.stderr
    first, = json.loads((tmp_path / "b.json").read_text())
    assert (first["step"], first["node"]) == (0, BLAMED[name]), result.stderr
    assert f"node '{BLAMED[name]}'" in result.stderr
    if policy == "amp-f16":
        # The override line works: kept in FP32, the step is finite.
        assert first["limit"] == 65504 < first["largest"]
        keep = re.search(r"--keep-f32='([^']*)'", result.stderr).group(0).replace("'", "")
        again = mpt_run(model, *TRAIN, f"--policy={policy}", "--train=w", keep, "--blame", f"--batch={batch}")
        assert BLAMED[name] not in [b["node"] for b in json.loads(again.stdout) if b["op"] != "mpt.cast"], again.stderr


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
    for scale, said in [("1e-9", "cosine"), ("1e30", "steps were skipped")]:
        bad = mpt_run(*words, "--policy=amp-f16", f"--loss-scale={scale}")
        assert bad.returncode == 1 and not json.loads(bad.stdout)["pass"]
        assert said in bad.stderr
    # Planted: everything narrow, sums of squares and exponentials too, on values that only just fit.
    model = write_model(tmp_path / "p.onnx", "a = MatMul(x, w) b = Mul(a, a) c = Log(b) y = MatMul(c, w)")
    narrow = mpt_run(model, *TRAIN, "--certify", f"--batch={write_batch(tmp_path / 's.st', 1e-4)}", "--policy=amp-f16",
                     "--keep-narrow=.*")
    assert narrow.returncode == 1 and "became zero" in narrow.stderr


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
