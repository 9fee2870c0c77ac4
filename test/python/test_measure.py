# SPDX-License-Identifier: Apache-2.0
"""--policy=...,measure: 8-bit operands where measured times ask for them."""
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import cuda_models
import numpy as np
import pytest

import mpt
from mpt import measure

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MPT_BUILD", ROOT / "build" / "release"))
OPT = BUILD / "bin" / "mpt-opt"
pytestmark = pytest.mark.skipif(not OPT.exists(), reason="mpt-opt is not built")
FLAGS = ["--loss=softmax-cross-entropy", "--optimizer=adamw,lr=1e-2", "--quiet"]
KEY = re.compile(r"^(\S+) \((.*?)\)")


def opt(model, *flags, check=True):
    done = subprocess.run([OPT, model, *FLAGS, *map(str, flags)], capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A chain of five layers, of which three have 8-bit operands, with the table that was measured here."""
    folder = tmp_path_factory.mktemp("measure")
    x = cuda_models.chain(folder / "m.onnx", widths=(16, 32, 48, 64, 80, 16), rows=24)
    np.savez(folder / "batch.npz", x=x, labels=np.arange(len(x)) % 16)
    opt(folder / "m.onnx", "--policy=fp8-hybrid,measure", "--emit=products", "-o", folder / "products")
    assert not list((folder / "products").glob("*.template")), "nothing is trained that could be saved"
    assert measure.main([str(folder / "products"), "-o", str(folder / "own.json"), "--rounds=3", "--seconds=1e-4"]) == 0
    return folder


def table_of(folder, change=None):
    table = json.loads((folder / "own.json").read_text())
    for row in table["products"]:
        row["us_16"], row["us_8"] = 10.0, 5.0
    for row in table["conversions"]:
        row["us"] = 0.0
    if change:
        change(table)
    (folder / "t.json").write_text(measure.text_of(table))
    return table


def decided(folder, policy):
    """(report, {product: in 8 bits}) of the training step."""
    opt(folder / "m.onnx", f"--policy={policy}", "--dry-run", f"--report=precision={folder / 'report.json'}")
    report = json.loads((folder / "report.json").read_text())
    return report, {row["product"]: row["ops_8"] > 0 for row in report.get("products", [])}


def conversions_of(product: str) -> list:
    """The conversions that a product reads: each operand of this model has another shape or another type."""
    pieces = [operand.rsplit("x", 1) for operand in KEY.match(product)[2].split(", ")]
    return [f"{shape}xbf16 -> {kind}" for shape, kind in pieces]


def step_text(folder, policy):
    """The module at the end of phase precision without its explanations."""
    text = opt(folder / "m.onnx", f"--policy={policy}", "--to=precision").stdout
    text = re.sub(r"mpt\.policy = \{.*\}(?=[,}] *(attributes|mpt|\{|$))", "", text)
    text = re.sub(r'rule = "[^"]*"', "", text)
    return re.sub(r"^module attributes.*$", "module", text, flags=re.M)


def states(folder, policy, name, steps=3):
    opt(folder / "m.onnx", f"--policy={policy}", "-o", folder / name)
    batch = dict(np.load(folder / "batch.npz"))
    with mpt.Trainer(folder / name, threads=1) as trainer:
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        losses = [trainer.step({"x": batch["x"], target: batch["labels"]}).loss for _ in range(steps)]
        return losses, {key: value.tobytes() for key, value in trainer.state().items()}


def test_the_table_has_every_product_and_conversion(folder):
    table = json.loads((folder / "own.json").read_text())
    assert (table["format"], table["version"], table["target"]) == ("mpt-products", 1, "cpu")
    assert table["recipe"] == "bf16, f8E4M3FN, f8E5M2, delayed scales" and table["device"]
    products = {row["product"] for row in table["products"]}
    assert len(products) == 9  # three layers, each with a product forward and two backward
    assert all(row["us_16"] > 0 and row["us_8"] > 0 and row["operations"] > 0 for row in table["products"])
    assert {row["conversion"] for row in table["conversions"]} == {c for p in products for c in conversions_of(p)}
    assert sum("f8E5M2" in row["conversion"] for row in table["conversions"]) == 3


def test_what_was_measured_here_compiles_and_trains(folder):
    report, kept = decided(folder, f"fp8-hybrid,measure={folder / 'own.json'}")
    assert len(kept) == 9 and report["measured_on"].startswith(json.loads((folder / "own.json").read_text())["device"])
    losses, _ = states(folder, f"fp8-hybrid,measure={folder / 'own.json'}", "own", steps=30)
    assert losses[-1] < 0.8 * losses[0]
    with mpt.Trainer(folder / "own") as trainer:
        manifest = trainer.manifest
    assert manifest["policy"] == "fp8-hybrid,measure" and str(folder) not in json.dumps(manifest["measured"])
    assert {row["product"] for row in manifest["measured"]["products"]} == set(kept)


def test_8_bits_everywhere_is_the_policy_itself(folder):
    table_of(folder)
    policy = f"fp8-hybrid,measure={folder / 't.json'}"
    assert all(decided(folder, policy)[1].values())
    assert step_text(folder, policy) == step_text(folder, "fp8-hybrid")
    assert states(folder, policy, "all") == states(folder, "fp8-hybrid", "plain")


def test_8_bits_nowhere_is_16_bits_for_gemms(folder):
    def slow(table):
        for row in table["products"]:
            row["us_8"] = 20.0

    table_of(folder, slow)
    wide = (ROOT / "lib" / "Precision" / "policies" / "fp8-hybrid.mlir").read_text().replace('"contraction" -> narrow', '"contraction" -> storage')
    (folder / "wide.mlir").write_text(wide)
    policy = f"fp8-hybrid,measure={folder / 't.json'}"
    assert not any(decided(folder, policy)[1].values())
    assert "f8E" not in step_text(folder, policy)
    assert step_text(folder, policy) == step_text(folder, folder / "wide.mlir")
    assert states(folder, policy, "none") == states(folder, folder / "wide.mlir", "wide")


def test_a_row_decides_about_its_product_alone(folder):
    """Where conversions cost nothing, a product has 8 bits where its own row says so."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        wanted = {}

        def draw(table):
            for row in table["products"]:
                wanted[row["product"]] = bool(rng.integers(2))
                row["us_16"], row["us_8"] = (9.0, 8.0) if wanted[row["product"]] else (8.0, 8.0)

        table_of(folder, draw)
        report, kept = decided(folder, f"fp8-hybrid,measure={folder / 't.json'}")
        assert kept == wanted
        # The ops themselves have these operands, and say why.
        text = opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 't.json'}", "--to=precision").stdout
        step = text[text.index("func.func @step"):].split("func.func")[1]
        assert len(re.findall(r"mpt\.matmul .*f8E", step)) == sum(wanted.values())
        rules = [v["rule"] for v in report["values"] if v["function"] == "step" and v["op"] == "mpt.matmul"]
        assert sum("8 bits: 8 bits measured 1.12 times faster (8.0 us with conversions, 9.0 us in bf16)" in r for r in rules) == sum(wanted.values())
        assert sum("16 bits: 8 bits measured 1.00 times slower" in r for r in rules) == 9 - sum(wanted.values())


def test_shared_conversions_are_paid_once(folder):
    """The products that keep 8 bits are the set of least time over all sets, by brute force."""
    rng, partly, against = np.random.default_rng(6), 0, 0
    for _ in range(15):
        def draw(table):
            for row in table["conversions"]:
                row["us"] = float(rng.uniform(0, 4))
            cost = {row["conversion"]: row["us"] for row in table["conversions"]}
            for row in table["products"]:
                own = sum(cost[c] for c in conversions_of(row["product"]))
                row["us_16"], row["us_8"] = float(rng.uniform(4, 10)), own + float(rng.uniform(1, 7))

        table = table_of(folder, draw)
        cost = {row["conversion"]: row["us"] for row in table["conversions"]}
        rows = [(row["product"], row["us_16"], row["us_8"], conversions_of(row["product"])) for row in table["products"]]

        def total(chosen):
            paid = {c for (_, _, _, reads), narrow in zip(rows, chosen) if narrow for c in reads}
            alone = sum(narrow - sum(map(cost.get, reads)) if is_narrow else wide for (_, wide, narrow, reads), is_narrow in zip(rows, chosen))
            return alone + sum(map(cost.get, paid))

        best = min(itertools.product((False, True), repeat=len(rows)), key=total)
        _, kept = decided(folder, f"fp8-hybrid,measure={folder / 't.json'}")
        assert kept == {row[0]: narrow for row, narrow in zip(rows, best)}
        partly += 0 < sum(best) < len(best)
        against += any(narrow and eight > wide for (_, wide, eight, _), narrow in zip(rows, best))
    assert partly > 5 and against > 0  # neither all nor none, and products that are slower alone


def test_a_rule_on_names_beats_the_table(folder):
    table_of(folder, lambda table: [row.update(us_8=20.0) for row in table["products"]])
    _, kept = decided(folder, f"fp8-hybrid,measure={folder / 't.json'}")
    assert not any(kept.values())
    opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 't.json'}", "--keep-narrow=fc2", "--dry-run",
        f"--report=precision={folder / 'report.json'}")
    rows = json.loads((folder / "report.json").read_text())["products"]
    assert sum(row["ops_8"] for row in rows) == 3


def test_every_function_and_size_computes_the_same(folder):
    """Evaluation and gradients have the types of the step; sizes of one library share the decision."""
    rng = np.random.default_rng(7)
    table_of(folder, lambda table: [row.update(us_8=float(rng.choice([5.0, 20.0]))) for row in table["products"]])
    report, _ = decided(folder, f"fp8-hybrid,measure={folder / 't.json'}")
    rules = {}
    for value in report["values"]:
        if value["op"] == "mpt.matmul" and "us with conversions" in value["rule"]:
            rules.setdefault(value["function"], []).append((value["node"], value["rule"]))
    assert {"step", "gradients", "evaluate"} <= rules.keys()
    assert rules["gradients"] == rules["step"] and rules["evaluate"] == rules["step"][:3]


def test_it_goes_with_other_options(folder):
    table_of(folder, lambda table: [row.update(us_8=20.0) for row in table["products"][:4]])
    policy = f"fp8-hybrid,measure={folder / 't.json'}"
    mpt.compile(folder / "m.onnx", loss="softmax-cross-entropy", policy=policy, replicas=2, out=folder / "replicas")
    with mpt.Trainer(folder / "replicas") as trainer:
        x = np.concatenate([np.load(folder / "batch.npz")["x"]] * 2)
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        assert np.isfinite(trainer.step({"x": x, target: np.arange(len(x)) % 16}).loss)
        assert trainer.manifest["measured"]["products"]
    opt(folder / "m.onnx", f"--policy={policy}", "--emit=onnx", "-o", folder / "step.onnx")
    import onnx
    casts = [node for node in onnx.load(folder / "step.onnx").graph.node if node.op_type == "Cast"]
    eight = {onnx.TensorProto.FLOAT8E4M3FN, onnx.TensorProto.FLOAT8E5M2}
    assert any(a.i in eight for node in casts for a in node.attribute if a.name == "to")
    page = folder / "report.html"
    opt(folder / "m.onnx", f"--policy={policy}", "--dry-run", f"--report=precision={page}")
    assert "Products, measured on" in page.read_text()
    assert "products, measured on" in opt(folder / "m.onnx", f"--policy={policy}", "--dry-run", "--report=precision").stdout


def test_current_scales_and_no_scales(folder):
    """Other recipes have tables of their own, and a table of one is refused for another."""
    for policy, recipe in (("fp8-current", "bf16, f8E4M3FN, f8E5M2, current scales"),
                           ("fp8-e5m2", "f16, f8E5M2, f8E5M2, no scales, stochastic gradients")):
        out = folder / policy
        opt(folder / "m.onnx", f"--policy={policy}", "--emit=products", "-o", out)
        assert measure.main([str(out), "-o", str(out / "t.json"), "--rounds=1", "--seconds=1e-5"]) == 0
        assert json.loads((out / "t.json").read_text())["recipe"] == recipe
        decided(folder, f"{policy},measure={out / 't.json'}")
        done = opt(folder / "m.onnx", f"--policy={policy},measure={folder / 'own.json'}", "--dry-run", check=False)
        assert done.returncode == 1 and f"expected times of products with {recipe} in" in done.stderr


def test_convolutions_are_products(folder):
    """Convolutions of a ResNet, with strides and gradients, one by one."""
    import small_models
    path = small_models.write_model("resnet", folder)
    opt(path, "--policy=fp8-hybrid", "--emit=products", "-o", folder / "convolutions")
    table = measure.measure(folder / "convolutions", rounds=1, seconds=1e-6)
    assert sum("mpt.conv" in row["product"] for row in table["products"]) == len(table["products"]) > 5
    for i, row in enumerate(table["products"]):
        row["us_16"], row["us_8"] = (9.0, 8.0) if i % 2 else (8.0, 9.0)
    for row in table["conversions"]:
        row["us"] = 0.0
    measure.write(table, folder / "convolutions.json")
    opt(path, f"--policy=fp8-hybrid,measure={folder / 'convolutions.json'}", f"--report=precision={folder / 'report.json'}",
        "-o", folder / "resnet")
    kept = {row["product"]: row["ops_8"] > 0 for row in json.loads((folder / "report.json").read_text())["products"]}
    assert kept == {row["product"]: i % 2 == 1 for i, row in enumerate(table["products"])}


def test_another_device_is_named(folder):
    table_of(folder, lambda table: table.update(device="Some other processor"))
    opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 't.json'}", "-o", folder / "other")
    said = subprocess.run([sys.executable, "-c", "import mpt, sys; mpt.Trainer(sys.argv[1])", folder / "other"], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert said.returncode == 0 and "has its types by times of 'Some other processor'; this is '" in said.stderr


def broken(**changes):
    def change(table):
        for key, value in changes.items():
            if value is None:
                del table[key]
            else:
                table[key] = value
    return change


def first_product(**changes):
    return lambda table: table["products"][0].update(changes)


@pytest.mark.parametrize("change, expected", [
    (broken(format="mpt-ranges"), "expected \"format\": \"mpt-products\", got \"mpt-ranges\""),
    (broken(version=2), "expected version 1, got 2"),
    (broken(recipe=None), "expected a text for \"recipe\", got none"),
    (broken(device=3), "expected a text for \"device\", got 3"),
    (broken(target="cuda"), "expected products that were measured on target cpu, got a table of target cuda"),
    (broken(recipe="f16, f8E3M4, f8E5M2, delayed scales"), "got those with f16, f8E3M4, f8E5M2, delayed scales"),
    (broken(products=7), "expected a list of \"products\", got 7"),
    (broken(products=[3]), "expected rows with a \"product\" in \"products\", got 3"),
    (broken(products=[]), "expected a product 'mpt.matmul ("),
    (broken(conversions=[]), "expected a conversion '"),
    (first_product(us_8=-1.0), "for \"us_8\", got -1"),
    (first_product(us_16="fast"), "for \"us_16\", got \"fast\""),
    (first_product(us_16=None), "for \"us_16\", got null"),
    (first_product(us_16=0.0), "for \"us_16\", got 0"),
    (first_product(us_8=1e9), "expected microseconds above 0, of at most 1e8, for \"us_8\", got 1000000000"),
    (lambda table: table["conversions"][0].update(us=-1), "expected microseconds from 0, of at most 1e8, for \"us\", got -1"),
    (lambda table: table["products"].append(table["products"][0]), "expected one row for 'mpt.matmul ("),
])
def test_bad_tables_are_explained(folder, change, expected):
    table_of(folder, change)
    done = opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 't.json'}", "--dry-run", check=False)
    assert done.returncode == 1 and expected in done.stderr, done.stderr


def test_any_cut_of_a_table_is_explained(folder):
    text = measure.text_of(table_of(folder))
    for length in (0, 1, 20, len(text) // 3, len(text) // 2, len(text) - 3):
        (folder / "cut.json").write_text(text[:length])
        done = opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 'cut.json'}", "--dry-run", check=False)
        assert done.returncode == 1 and "'" + str(folder / "cut.json") + "' is not JSON" in done.stderr, done.stderr
    (folder / "cut.json").write_text(text.replace("5.0", "NaN", 1))
    done = opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 'cut.json'}", "--dry-run", check=False)
    assert done.returncode == 1 and "is not JSON" in done.stderr


@pytest.mark.parametrize("flags, expected", [
    (["--policy=fp8-hybrid,measure"], "expected a table of measured products with measure, got none: write the library"),
    (["--policy=fp8-hybrid,measure=/nowhere.json"], "cannot read the measured products in '/nowhere.json'"),
    (["--policy=amp-f16,measure=/nowhere.json"], "expected a policy with 8-bit operands of GEMMs with measure, got amp-f16"),
    (["--policy=amp-f16", "--emit=products"], "expected a policy with 8-bit operands of GEMMs, whose products can be measured, got amp-f16"),
    (["--policy=fp8-hybrid", "--emit=products", "--keep-f32=fc[123]"], "expected GEMMs with 8-bit operands, found none"),
    (["--policy=fp8-hybrid", "--emit=products", "--memory-budget=1G"], "expected a library of the model for --memory-budget"),
    (["--policy=fp8-hybrid,mesure=t.json"], "cannot find policy file fp8-hybrid,mesure=t.json"),
    (["--policy=fp8-hybrid,mesure"], "expected policy"),
])
def test_bad_options_are_explained(folder, flags, expected):
    done = opt(folder / "m.onnx", *flags, "-o", folder / "bad", check=False)
    assert done.returncode == 1 and expected in done.stderr, done.stderr


def test_a_graph_that_is_rewritten_node_by_node_is_refused(folder):
    table_of(folder)
    done = subprocess.run([OPT, folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 't.json'}", "--emit=onnx", "-o", folder / "out.onnx"],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "expected no measure for a graph that is rewritten node by node" in done.stderr


def test_the_tool_explains_what_it_cannot_measure(folder, capsys):
    opt(folder / "m.onnx", "-o", folder / "library")
    assert measure.main([str(folder / "library"), "-o", str(folder / "none.json")]) == 1
    assert "is no library of products" in capsys.readouterr().err
    assert measure.main([str(folder / "products"), "-o", str(folder / "none.json"), "--rounds=0"]) == 1
    assert "expected rounds of at least 1" in capsys.readouterr().err
    assert measure.main([str(folder / "missing"), "-o", str(folder / "none.json")]) == 1
    assert not (folder / "none.json").exists()


def test_times_of_functions(folder):
    """Arguments that mpt_trainer_time takes and refuses; a step that is timed has run."""
    batch = dict(np.load(folder / "batch.npz"))
    opt(folder / "m.onnx", "-o", folder / "timed")
    with mpt.Trainer(folder / "timed") as trainer:
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        inputs = {"x": batch["x"], target: batch["labels"]}
        before = trainer.state()
        assert trainer.time("step", inputs, 3) > 0
        assert any(not np.array_equal(before[name], value) for name, value in trainer.state().items())
        for runs in (0, 1001):
            with pytest.raises((mpt.Error, ValueError), match="expected"):
                trainer.time("step", inputs, runs)
        with pytest.raises(mpt.Error, match="nothing"):
            trainer.time("nothing", inputs, 1)
        with pytest.raises(mpt.Error):
            trainer.time("step", {}, 1)
        assert trainer.device()[0]


def test_on_the_stand_in(folder):
    """The same library for CUDA: products run and are timed, and a step compiled with the table trains."""
    from conftest import build_folder
    from standin import library
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    standin = str(library(build_folder()))
    options = {"driver": standin, "cublaslt": standin, "cudnn": standin, "cache": ""}
    opt(folder / "m.onnx", "--policy=fp8-hybrid", "--emit=products", "--target=cuda", "--arch=host", "-o", folder / "cuda")
    table = measure.measure(folder / "cuda", rounds=2, seconds=1e-6, options=options)
    assert table["target"] == "cuda" and "cuBLASLt" in table["libraries"] and len(table["products"]) == 9
    measure.write(table, folder / "cuda.json")
    opt(folder / "m.onnx", f"--policy=fp8-hybrid,measure={folder / 'cuda.json'}", "--target=cuda", "--arch=host", "-o", folder / "cuda-step")
    batch = dict(np.load(folder / "batch.npz"))
    with mpt.Trainer(folder / "cuda-step", options=options) as trainer:
        target = next(n for n in trainer.inputs() if n not in ("x", "learning_rate"))
        losses = [trainer.step({"x": batch["x"], target: batch["labels"]}).loss for _ in range(10)]
    assert losses[-1] < losses[0]
    shutil.rmtree(folder / "cuda-step")
