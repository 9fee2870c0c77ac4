# SPDX-License-Identifier: Apache-2.0
"""The bundle for machines with a GPU: packed, run against the stand-in for driver and libraries, broken, and resumed."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import cuda_models
import pytest
from conftest import build_folder
from standin import library

ROOT = pathlib.Path(__file__).resolve().parents[2]


def options():
    return [f"--option={name}={library(build_folder())}" for name in ("driver", "cublaslt", "cudnn")]


def run(bundle, *arguments, **variables):
    done = subprocess.run([sys.executable, bundle / "run.py", *arguments, *options()], env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
                          capture_output=True, text=True)
    results = bundle / "results" / "results.jsonl"  # none where no part has run yet
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    return done, rows


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    # Packed in two goes.
    pack(folder, "--policies=fp32", "--hold")
    assert "training/own-mlp/amp-bf16: ok" in pack(folder, "--policies=fp32,amp-bf16", "--resume")
    assert not (folder / "data").exists()
    return folder


def pack(folder, *flags):
    return subprocess.run([ROOT / "scripts" / "gpu-bundle.sh", folder, "--models=", "--arch=host", "--types=f32", *flags,
                           "--conformance=^(elementwise[.]add|matmul[.].*)$", "--training=own-mlp", f"--build={build_folder()}"],
                          env={**os.environ, "MPT_TORCH_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def test_all_parts_run_and_agree(bundle):
    done, rows = run(bundle, "probe", "smoke", "conformance", "training", "--seconds=500")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {row["part"] for row in rows if row["ok"]}
    assert {"probe", "smoke", "conformance", "training"} <= parts
    assert {row["case"] for row in rows if row["part"] == "training"} == {"own-mlp fp32", "own-mlp amp-bf16"}
    assert any(row["case"].startswith("matmul-f32.") and 0 <= row["error"] < 1e-3 for row in rows if "case" in row)
    table = (bundle / "results" / "table.md").read_text()
    assert "| conformance/f32 |" in table and "| training/fp32 | 1 | 0 | 0 |" in table


def test_a_second_run_does_nothing_and_a_broken_part_stops_no_other(bundle):
    _, before = run(bundle, "conformance", "training")
    library, = (bundle / "data" / "training" / "own-mlp" / "fp32" / "cuda").glob("*.so")
    kept = library.read_bytes()
    library.write_bytes(bytes(len(kept)))  # of another size it would be extracted again
    done, rows = run(bundle, "training", "--again")
    library.write_bytes(kept)
    new = {row["case"]: row for row in rows[len(before):]}
    assert done.returncode == 1 and not new["fp32"]["ok"] and str(library.parent) in new["fp32"]["problem"]
    assert new["own-mlp amp-bf16"]["ok"] and "training/fp32 : " not in done.stderr
    done, rows = run(bundle, "training")  # what failed is tried again
    assert done.returncode == 0 and rows[-1]["case"] == "own-mlp fp32" and rows[-1]["ok"]


def test_a_dry_run_compares_nothing_but_calls(bundle):
    _, before = run(bundle, "conformance", "training")
    done, rows = run(bundle, "conformance", "training", "digits", "--again", MPT_STANDIN_DRY="1")
    assert {row["case"] for row in rows[len(before):] if row["part"] == "digits"} == {"digits amp-bf16"}
    assert json.loads((bundle / "data" / "digits" / "amp-bf16" / "expected.json").read_text())["accuracy"] > 0.9
    assert done.returncode == 0 and all(row["ok"] and not row.get("error") for row in rows[len(before):] if row["part"] == "conformance"), done.stdout
    told = subprocess.run([sys.executable, "-c", "import ctypes, sys, standin, trainers; trainers.take(sys.argv[1:]); "
                           "ctypes.CDLL(trainers.options['driver']).cuMemFree_v2(1); "
                           "print(standin.violations() != '', standin.violations() == '')",
                           f"driver={library(build_folder())}"], text=True, cwd=ROOT / "benchmarks" / "gpu", capture_output=True)
    assert told.stdout.split() == ["True", "True"], told.stderr


def test_time_that_is_spent_leaves_the_rest_for_the_next_call(bundle):
    done, _ = run(bundle, "conformance", "--again", "--seconds=1")
    assert done.returncode == 0 and "Not run for want of time: conformance/f32" in done.stdout


def test_what_is_packed_stays_until_the_compiler_changes(bundle):
    known = bundle / "packed.json"
    assert "pack: training" not in pack(bundle, "--policies=fp32,amp-bf16", "--resume")
    before = json.loads(known.read_text())
    assert set(before) == {"conformance/f32", "training/own-mlp/fp32", "training/own-mlp/amp-bf16", "digits/amp-bf16"}
    entry = {**before["training/own-mlp/fp32"], "maker": "an older compiler"}
    known.write_text(json.dumps({**before, "training/own-mlp/fp32": entry}))
    said = pack(bundle, "--policies=fp32,amp-bf16", "--resume")
    assert "training/own-mlp/fp32: ok" in said and "amp-bf16: ok" not in said and json.loads(known.read_text()) == before


def test_tables_of_products(tmp_path):
    """Part products leaves a file that --policy=...,measure=FILE takes, for the model that was packed."""
    if not (build_folder() / "lib" / "libcuda_standin.so").exists():
        pytest.skip("the stand-in is not built")
    assert "products/own-chain/fp8-hybrid: ok" in pack(tmp_path / "bundle", "--policies=fp8-hybrid")
    done, rows = run(tmp_path / "bundle", "products", "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["case"] for row in rows] == ["own-chain fp8-hybrid"] and rows[0]["products"] == 6
    assert "products are faster in 8 bits" in (tmp_path / "bundle" / "results" / "table.md").read_text()
    table = tmp_path / "bundle" / "results" / "products" / "own-chain-fp8-hybrid.json"
    cuda_models.chain(tmp_path / "chain.onnx")
    told = subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "chain.onnx", "--loss=softmax-cross-entropy", "--target=cuda", "--arch=host",
                           f"--policy=fp8-hybrid,measure={table}", "--dry-run", "--report=precision"], text=True, capture_output=True)
    assert told.returncode == 0 and told.stdout.count("us in 8 bits with conversions") == 6, told.stderr


def test_names_of_parts(bundle):
    done, _ = run(bundle, "speed")
    assert done.returncode == 2 and "expected parts among probe, smoke" in done.stderr


def test_an_extraction_that_was_cut_off_is_noticed(bundle):
    run(bundle, "probe")
    cases, = (bundle / "data" / "conformance").glob("matmul-f32/cases.safetensors")
    cases.write_bytes(cases.read_bytes()[:100])
    (bundle / "data.unfinished").mkdir()
    done, _ = run(bundle, "conformance", "--again")
    assert done.returncode == 0 and "extracted again" in done.stdout and not (bundle / "data.unfinished").exists()


def test_the_first_parts_search_nothing_and_come_in_order(bundle, monkeypatch):
    run(bundle, "--list")  # extracts what was packed, where no test before has
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    import parts
    monkeypatch.setattr(parts, "HERE", bundle)
    more = [bundle / "data" / "speed" / model / "amp-bf16" for model in ("resnet50-gpu", "bert-gpu", "gpt2-gpu")]
    more.append(bundle / "data" / "conformance" / "conv-f32")
    for folder in more:
        folder.mkdir(parents=True)
    found = parts.items(False, "/tmp")
    shutil.rmtree(bundle / "data" / "speed")
    more[-1].rmdir()
    order = list(dict.fromkeys(item.part for item in found))
    assert order[:5] == ["probe", "smoke", "conformance", "digits", "speed-first"]
    assert all(item.options["search"] == "off" for item in found if item.part in ("smoke", "conformance", "sanitizer"))
    first = [item for item in found if item.part == "speed-first"]
    assert [item.command[2:5] for item in first] == [[model, "mpt:amp-bf16", "compile:bf16"] for model in ("bert-gpu", "resnet50-gpu", "gpt2-gpu")]
    assert all(item.options["search"] == "quick" for item in first)
    assert any(item.name == "racecheck-convolutions-implicit" and item.options["cudnn"] == "none" for item in found)


def test_peers_of_an_item_fit_a_gpu_together(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    import parts
    monkeypatch.setattr(parts, "HERE", tmp_path)
    policies = ("fp32", "amp-bf16", "amp-f16", "als-f16", "fp8-hybrid", "fp8-current", "fp8-e5m2")
    for folder in [tmp_path / "data" / "speed" / model / policy for model in parts.MODELS for policy in policies]:
        folder.mkdir(parents=True)
    timed = [item for item in parts.items(False, "/tmp") if item.part.startswith("speed")]
    assert len({item.key for item in timed}) == len(timed)
    seen = set()
    for item in timed:
        peers = [word for word in item.command if ":" in word]
        seen.update(peers)
        assert 2 <= len(peers) <= (2 if any("32" in peer for peer in peers) else 3), item.key
        assert peers[0].startswith("mpt:") and not peers[-1].startswith("mpt:"), "no losses to compare with"
        assert item.limit > sum(parts.limit_of(peer, float(item.command[item.command.index("--limit") + 1])) for peer in peers)
    kinds = {f"{way}:{kind}" for way in ("eager", "compile") for kind in ("fp32", "tf32", "f16", "bf16")}
    assert seen == kinds | {"autotune:f16", "autotune:bf16", "mpt:fp32+tf32", "mpt:fp8-hybrid+fast-sums"} | {f"mpt:{policy}" for policy in policies}


def test_an_archive_has_all_results_and_is_enough_to_go_on(bundle, tmp_path):
    words = "probe", f"--out={tmp_path / 'out'}", f"--archive={tmp_path / 'kept' / 'r.tar.gz'}"
    assert run(bundle, *words)[0].returncode == 0
    (tmp_path / "out" / "choices").write_text("some\n")
    run(bundle, *words)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {"results.jsonl", "results.json", "table.md", "log.txt", "choices"} <= set(before)
    shutil.rmtree(tmp_path / "out")
    assert run(bundle, *words)[0].returncode == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before, "the probe ran again"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["r.tar.gz"]


def test_what_was_cut_off_is_run_again(bundle, tmp_path):
    words, results = ("probe", f"--out={tmp_path / 'out'}"), tmp_path / "out" / "results.jsonl"
    run(bundle, *words)
    row = json.loads(results.read_text())
    assert row.pop("seconds") > 0  # who is killed writes the rows that came, and no seconds
    results.write_text(json.dumps(row) + "\n")
    run(bundle, *words)
    assert len(results.read_text().splitlines()) == 2
    run(bundle, *words)
    assert len(results.read_text().splitlines()) == 2


def test_a_hopper_gets_its_own_code_unasked(tmp_path):
    done = subprocess.run([ROOT / "scripts" / "gpu-bundle.sh", tmp_path / "bundle", "--models=", "--types=", "--policies=fp32", "--training=own-mlp", "--hold",
                           f"--build={build_folder()}"], env={**os.environ, "MPT_TORCH_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    manifest, = (tmp_path / "bundle" / "data" / "training" / "own-mlp" / "fp32" / "cuda").glob("*.so")
    assert b".target sm_90a" in manifest.read_bytes() and b".target sm_90\n" in manifest.read_bytes()


def test_weights_of_fewer_bits_are_the_compilers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    torch = pytest.importorskip("torch")
    from bench import narrowed
    assert narrowed(torch.tensor([-1.7e-8, 1e6, 0.0, 1.0]), torch.float16).tolist() == [-2.0**-24, 65504, 0, 1]
    assert narrowed(torch.tensor([1.7e-8]), torch.float32).tolist() == torch.tensor([1.7e-8]).tolist()
