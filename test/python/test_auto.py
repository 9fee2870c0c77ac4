# SPDX-License-Identifier: Apache-2.0
"""Measured ranges: types from them under --policy=auto, within an error budget, and limits under any other policy."""
import json
import subprocess

import numpy as np
import onnx
import onnx.reference
import pytest

from mpt_run import tool, write_tensors

# big reaches beyond 65504 and is brought back; small lies below FP16's range, by an input, and is brought back. FP16 holds each factor.
TINY = np.array(2.0**-24, np.float32)
BODY = """
  big = MatMul(x, w1)
  back = Mul(big, down)
  small = Mul(back, tiny)
  again = Mul(small, up)
  hidden = MatMul(again, w2)
  active = Tanh(hidden)
  y = MatMul(active, w3)"""
WORDS = ["--loss=mse", "--optimizer=sgd,lr=0.01", "--train=w.*"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("auto"), np.random.default_rng(0)
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\nauto (float[8, 6] x, float tiny) => (float[8, 6] y) {{{BODY}\n}}')
    for node in model.graph.node:
        node.name = node.output[0]
    values = {"w1": rng.standard_normal((6, 6)) * 10, "w2": rng.standard_normal((6, 6)) * 2, "w3": rng.standard_normal((6, 6)) * 0.5,
              "down": np.array(2.0**-6), "up": np.array(2.0**15)}
    for name, value in values.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "m.onnx")
    batches = []
    for i, scale in enumerate([0.25, 8.0]):  # only the second batch overflows
        batches.append(folder / f"b{i}.st")
        x = np.clip(rng.standard_normal((8, 6)), -2, 2) * scale * 250
        write_tensors(batches[-1], {"x": x.astype(np.float32), "tiny": TINY, "target": rng.standard_normal((8, 6)).astype(np.float32)})
    for name, used in (("first", batches[:1]), ("both", batches)):
        run(folder / "m.onnx", "--policy=auto", "--calibrate", *(f"--batch={b}" for b in used), "-o", folder / f"{name}.json", program="mpt-run")
    return folder


def run(model, *words, program="mpt-opt", status=0):
    done = subprocess.run([tool().with_name(program), model, *WORDS, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done


def given(folder, ranges):
    return [f"--ranges={folder / (ranges + '.json')}"] if ranges else []


def test_measured_in_one_command(planted, tmp_path):
    """--data is calibration and compilation in one: the same ranges, the same types."""
    data = tmp_path / "data"
    data.mkdir()
    for i in range(2):
        (data / f"b{i}.safetensors").write_bytes((planted / f"b{i}.st").read_bytes())
    for how, word in (("one", f"--data={data}"), ("two", f"--ranges={planted / 'both.json'}")):
        run(planted / "m.onnx", "--policy=auto", word, "-o", tmp_path / how)
    assert json.loads((tmp_path / "one/m.ranges.json").read_text()) == json.loads((planted / "both.json").read_text())
    assert (tmp_path / "one/m.json").read_bytes() == (tmp_path / "two/m.json").read_bytes()
    words = [f"--data={data}", "--policy=auto"]
    assert run(planted / "m.onnx", *words, "--to=precision").stdout == run(planted / "m.onnx", "--policy=auto", f"--ranges={planted / 'both.json'}",
                                                                          "--to=precision").stdout
    assert "expected a folder with .safetensors files" in run(planted / "m.onnx", f"--data={tmp_path}", "--policy=auto", status=1).stderr
    assert "without --ranges for --data" in run(planted / "m.onnx", *words, f"--ranges={planted / 'both.json'}", status=1).stderr


def decide(folder, policy, ranges="both", *words):
    run(folder / "m.onnx", f"--policy={policy}", *given(folder, ranges), "--to=precision", "--dry-run", "--quiet",
        f"--report=precision={folder / 'report.json'}", *words)
    report = json.loads((folder / "report.json").read_text())
    values = {}
    for value in report["values"]:
        if value["function"] == "step":
            values.setdefault((value["node"], value["op"]), (value["type"].rsplit("x", 1)[-1].rstrip(">"), value["rule"]))
    return values, report


def test_both_ends_of_the_range_decide(planted):
    plain, _ = decide(planted, "amp-f16", None)
    assert plain["big", "mpt.matmul"][0] == "f16"  # the static rules do not know its range
    values, report = decide(planted, "auto")
    kind, rule = values["big", "mpt.matmul"]
    assert kind == "bf16" and "overflow f16" in rule and "measured" in rule, rule
    kind, rule = values["small", "mpt.mul"]
    assert kind == "bf16" and ("become zero in f16" in rule or "below the normal values of f16" in rule), rule
    kind, rule = values["y", "mpt.matmul"]
    assert "measured" in rule and "error" in rule and "in f16" in rule
    assert values["active", "mpt.tanh"][0] == "f16"
    # Gradients too: small's is 2^15 times again's.
    gradients = [value for value in report["values"] if value["node"] == "small" and value["function"] == "step" and "overflow f16" in value["rule"]]
    assert gradients, [v for v in report["values"] if v["node"] == "small"]
    assert report["policy"] == "auto" and "budget 5.0e-01" in report["note"] and "loss scale 2^" in report["note"]


def test_other_policies_keep_wide_what_was_measured_beyond_their_type(planted):
    values, report = decide(planted, "amp-f16")
    kind, rule = values["big", "mpt.matmul"]
    assert kind == "f32" and "overflow f16" in rule, rule
    # All else is as without ranges, but for small, which saves a cast: too small is no reason, and gradients have a scale that falls.
    plain, _ = decide(planted, "amp-f16", None)
    assert {node for node, op in plain if plain[node, op][0] != values[node, op][0]} == {"big", "back", "small"}
    assert report["policy"] == "amp-f16" and decide(planted, "amp-f16", "first")[0]["big", "mpt.matmul"][0] == "f16"


def test_what_leaves_fp16_may_be_bf16(planted):
    values, _ = decide(planted, "auto")
    kind, rule = values["big", "mpt.matmul"]
    assert kind == "bf16" and "fits bf16" in rule, rule
    assert values["active", "mpt.tanh"][0] == "f16"


def test_a_budget_of_nothing_narrows_nothing(planted):
    _, report = decide(planted, "auto,budget=0")
    kinds = {value["type"].rsplit("x", 1)[-1] for value in report["values"] if value["function"] == "step" and "f" in value["type"]}
    assert not any(kind.startswith(("f16", "bf16")) for kind in kinds)
    assert any("the budget is 0" in value["rule"] for value in report["values"])


# ---- the budget holds for the step as a whole

def smooth(folder, seed):
    """A random residual network without kinks, its batch, and its flags: (file, batch)."""
    rng, width = np.random.default_rng(seed), 8
    body, weights, last = [], {}, "x"
    for i in range(rng.integers(2, 6)):
        weights[f"w{i}"] = rng.standard_normal((width, width)) / np.sqrt(width) * 2.0 ** rng.integers(-2, 3)
        body += [f"m{i} = MatMul ({last}, w{i})", f"a{i} = {rng.choice(['Tanh', 'Sigmoid', 'Identity'])} (m{i})"]
        body.append(f"h{i} = Add (a{i}, {last})" if rng.random() < 0.5 else f"h{i} = Identity (a{i})")
        last = f"h{i}"
    text = "\n".join([*body, f"y = Identity ({last})"])
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\nsmooth (float[16, {width}] x) => (float[16, {width}] y) {{{text}\n}}')
    for node in model.graph.node:
        node.name = node.output[0]
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "m.onnx")
    write_tensors(folder / "b.st", {name: rng.standard_normal((16, width)).astype(np.float32) for name in ("x", "target")})
    run(folder / "m.onnx", "--policy=auto", "--calibrate", f"--batch={folder / 'b.st'}", "-o", folder / "r.json", program="mpt-run")


def measured_errors(folder, policy):
    """{parameter: relative error of its gradient}, against FP64."""
    run(folder / "m.onnx", f"--policy={policy}", f"--ranges={folder / 'r.json'}", "--certify", f"--batch={folder / 'b.st'}", "--min-gradient-cosine=0",
        "--max-gradient-error=9", "--max-loss-difference=9", "--max-underflow=1", "-o", folder / "c.json", program="mpt-run")
    return {entry["parameter"]: entry["relative_error"] for entry in json.loads((folder / "c.json").read_text())["gradients"]}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("base", ["amp-f16", "amp-bf16"])
def test_errors_of_gradients_are_within_bound_and_budget(tmp_path, seed, base):
    smooth(tmp_path, seed)
    narrow = []
    for budget in (1.0, 0.02, 0.004, 0.0005):
        policy = f"auto,base={base},budget={budget}"
        _, report = decide(tmp_path, policy, "r")
        bounds = {entry["output"]: entry["bound"] for entry in report["errors"]}
        measured = measured_errors(tmp_path, policy)
        assert bounds.keys() >= measured.keys() and max(bounds.values()) <= budget, bounds
        for name, error in measured.items():
            assert error <= 1.5 * bounds[name], f"{name}: {error:.2g} measured, {bounds[name]:.2g} by the model"
        narrow.append(sum(row["narrow_values"] for row in report["totals"]))
    assert narrow[0] > 0 and narrow == sorted(narrow, reverse=True), narrow


def test_the_model_is_no_excuse_for_width(tmp_path):
    """Bounds are no more than an order of magnitude above the measured errors, in the median."""
    ratios = []
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        smooth(folder, seed)
        _, report = decide(folder, "auto,budget=1", "r")
        measured = measured_errors(folder, "auto,budget=1")
        ratios += [entry["bound"] / measured[entry["output"]] for entry in report["errors"] if measured.get(entry["output"])]
    assert np.median(ratios) < 10, ratios


def test_there_is_headroom_below_overflow(planted, tmp_path):
    """A measured 65,000 does not fit FP16, whose largest value is 65,504."""
    ranges = json.loads((planted / "both.json").read_text())
    key, profile = next((key, value) for key, value in ranges["values"].items() if key.startswith("step|hidden|mpt.matmul"))
    profile["exponents"] = {"15": profile["exponents"].pop(max(profile["exponents"], key=int)), **profile["exponents"]}
    profile["largest"] = 65000.0
    (planted / "close.json").write_text(json.dumps(ranges))
    assert "below the largest value of f16" in decide(planted, "auto", "close")[0]["hidden", "mpt.matmul"][1]
    assert "below the largest value" not in decide(planted, "auto,headroom=1", "close")[0]["hidden", "mpt.matmul"][1]


def test_every_batch_counts(planted):
    first, both = (decide(planted, "auto", ranges)[0]["big", "mpt.matmul"][1] for ranges in ("first", "both"))
    assert "overflow" not in first and "in f16" in first and "overflow f16" in both, (first, both)


def test_eight_bits_where_the_base_has_them(planted):
    def eight_bit(policy):
        return run(planted / "m.onnx", f"--policy={policy}", f"--ranges={planted / 'both.json'}", "--to=precision", "--quiet").stdout.count("f8E4M3FN>")
    assert eight_bit("auto,base=fp8-current,budget=1") > 0 == eight_bit("auto,base=fp8-current,budget=0.005")
    values, _ = decide(planted, "auto,base=fp8-current,budget=0.005")
    assert "error budget 5.0e-03: its rounding makes" in values["hidden", "mpt.matmul"][1]


def test_what_auto_decides_trains(planted):
    """amp-f16 skips the second batch; auto does neither that nor drift."""
    batches = [f"--batch={planted / f'b{i}.st'}" for i in (0, 1)]
    run(planted / "m.onnx", "--policy=amp-f16", "--certify", *batches, "--max-skipped=0", "-o", planted / "c.json", program="mpt-run", status=1)
    run(planted / "m.onnx", "--policy=auto", f"--ranges={planted / 'both.json'}", "--certify", *batches, "--max-skipped=0",
        "-o", planted / "c.json", program="mpt-run")
    # The same line makes a library: BF16 and FP16 in one step.
    run(planted / "m.onnx", "--policy=auto", f"--ranges={planted / 'both.json'}", "--quiet", "-o", planted / "out")
    assert (planted / "out").is_dir()


@pytest.mark.parametrize("policy, ranges, said", [
    ("auto", None, "expected measured ranges for policy auto"),
    ("auto,bugdet=1", "both", "expected base, budget, underflow, subnormal or headroom of policy auto, got 'bugdet=1'"),
    ("auto,budget=two", "both", "expected a number from 0 to 1 for budget"),
    ("auto,base=half", "both", "expected policy"),
    ("auto", "m.onnx", "is not JSON")])
def test_bad_use(planted, policy, ranges, said):
    words = [f"--policy={policy}", "--dry-run"]
    if ranges:
        words.append(f"--ranges={planted / (ranges if '.' in ranges else ranges + '.json')}")
    assert said in run(planted / "m.onnx", *words, status=1).stderr


@pytest.fixture(scope="module")
def forward(planted):
    """Ranges of the graph itself, without a loss."""
    for name, used in (("first", [0]), ("both", [0, 1])):
        call("mpt-run", planted / "m.onnx", "--emit=onnx", "--calibrate", *(f"--batch={planted / f'b{i}.st'}" for i in used),
             "-o", planted / f"graph-{name}.json")
    return planted


def call(program, *words, status=0):
    done = subprocess.run([tool().with_name(program), *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    return done


def rewrite(folder, policy, ranges="graph-both", *words):
    call("mpt-opt", folder / "m.onnx", f"--policy={policy}", *given(folder, ranges), "--emit=onnx", "--quiet", "-o", folder / "f.onnx",
         f"--report=precision={folder / 'f.json'}", *words)
    onnx.checker.check_model(str(folder / "f.onnx"), full_check=True)
    report = json.loads((folder / "f.json").read_text())
    return {value["node"]: (value["type"].replace("<", "x").rstrip(">").rsplit("x", 1)[-1], value["rule"]) for value in report["values"]}


def test_a_graph_is_rewritten_by_what_was_measured_of_its_nodes(forward):
    x = np.clip(np.random.default_rng(3).standard_normal((8, 6)), -2, 2).astype(np.float32) * 2000
    def outcome(path):
        with np.errstate(all="ignore"):
            return onnx.reference.ReferenceEvaluator(str(path)).run(None, {"x": x, "tiny": TINY})[0]
    wanted = outcome(forward / "m.onnx")
    error = lambda: np.abs(outcome(forward / "f.onnx") - wanted).max() / np.abs(wanted).max()
    assert rewrite(forward, "amp-f16", None)["big"][0] == "f16" and not error() < 0.05  # infinities, or tanh of them
    assert "overflow f16" in rewrite(forward, "amp-f16")["big"][1] and error() < 5e-3
    values = rewrite(forward, "auto")
    assert values["big"][0] == "f32" and "overflow f16" in values["big"][1], values
    assert values["small"][0] == "f32" and ("become zero in f16" in values["small"][1] or "below the normal" in values["small"][1]), values
    assert values["hidden"][0] == values["active"][0] == "f16" and "in f16" in values["active"][1], values
    assert error() < 5e-3


def test_every_batch_and_the_budget_count_for_graphs(forward):
    assert rewrite(forward, "auto", "graph-first")["big"][0] == "f16"
    assert {kind for kind, _ in rewrite(forward, "auto,budget=0").values()} == {"f32"}
    # A rule on names beats measurements.
    assert rewrite(forward, "auto", "graph-both", "--keep-narrow=big")["big"][0] == "f16"


def test_ranges_of_a_step_are_not_those_of_a_graph(forward):
    for ranges, said in (("both", "mpt-run --emit=onnx --calibrate"), (None, "expected measured ranges for policy auto")):
        words = [f"--ranges={forward / (ranges + '.json')}"] if ranges else []
        assert said in call("mpt-opt", forward / "m.onnx", "--policy=auto", "--emit=onnx", *words, "-o", forward / "n.onnx", status=1).stderr
