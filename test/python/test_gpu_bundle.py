# SPDX-License-Identifier: Apache-2.0
"""The bundle for machines with a GPU: packed, run against the fake driver and libraries, broken, and resumed."""
import json
import shutil
import subprocess
import sys

import cuda_models
import pytest
from conftest import build_folder
from gpu_bundle import GPU, ROOT, environment, needs_standin, run
from gpu_bundle import pack as pack_all
from standin import library

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    needs_standin()
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    # Packed in two goes.
    pack(folder, "--policies=fp32", "--hold")
    assert "training/own-mlp/amp-bf16: ok" in pack(folder, "--policies=fp32,amp-bf16", "--resume")
    assert not (folder / "data").exists()
    return folder


def pack(folder, *flags):
    return pack_all(folder, "--types=f32", "--conformance=^(elementwise[.]add|matmul[.].*)$", "--training=own-mlp|digits", *flags).stdout


def test_all_parts_run_and_agree(bundle):
    done, rows = run(bundle, "probe", "smoke", "conformance", "gradients", "--seconds=500")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = {row["part"] for row in rows if row.get("ok")}
    assert {"probe", "smoke", "conformance", "gradients"} <= parts
    assert {row["case"] for row in rows if row["part"] == "gradients" and "case" in row} == {"own-mlp fp32", "own-mlp amp-bf16"}
    assert any(row["case"].startswith("matmul-f32.") and 0 <= row["error"] < 1e-3 for row in rows if "case" in row)
    table = (bundle / "results" / "table.md").read_text()
    assert "| conformance/f32 |" in table and "| gradients/fp32 | 1 | 0 | 0 | 0." in table


def test_a_second_run_does_nothing_and_a_broken_part_stops_no_other(bundle):
    _, before = run(bundle, "conformance", "gradients")
    library, = (bundle / "data" / "training" / "own-mlp" / "fp32" / "cuda").glob("*.so")
    kept = library.read_bytes()
    library.write_bytes(bytes(len(kept)))  # of another size it would be extracted again
    done, rows = run(bundle, "gradients", "--again")
    library.write_bytes(kept)
    new = {row["case"]: row for row in rows[len(before):] if "case" in row}
    assert done.returncode == 1 and not new["fp32"]["ok"] and str(library.parent) in new["fp32"]["problem"]
    assert new["own-mlp amp-bf16"]["ok"]
    done, rows = run(bundle, "gradients")  # failed cases are tried again
    assert done.returncode == 0 and rows[-2]["case"] == "own-mlp fp32" and rows[-2]["ok"] and rows[-1]["end"]


def test_nothing_follows_a_smoke_test_in_which_nothing_is_right(bundle, tmp_path):
    """The cost of each start is worth more than the same failure in every part."""
    run(bundle, "smoke", out=tmp_path / "right")  # which extracts the data
    libraries = {path: path.read_bytes() for path in (bundle / "data" / "training" / "own-mlp").glob("*/cuda/*.so")}
    try:
        for path, content in libraries.items():
            path.write_bytes(bytes(len(content)))
        done, rows = run(bundle, "smoke", "gradients", out=tmp_path / "out")
        assert done.returncode == 1 and {row["part"] for row in rows} == {"smoke"} and "Not run: gradients/" in done.stdout
        _, rows = run(bundle, "smoke", "gradients", "--anyway", out=tmp_path / "anyway")
        assert {row["part"] for row in rows} == {"smoke", "gradients"}
    finally:
        for path, content in libraries.items():
            path.write_bytes(content)


def test_a_dry_run_compares_nothing_but_calls(bundle):
    _, before = run(bundle, "conformance", "gradients")
    done, rows = run(bundle, "conformance", "gradients", "digits", "--again", MPT_STANDIN_DRY="1")
    assert {row["case"] for row in rows[len(before):] if row["part"] == "digits" and "case" in row} == {"digits amp-bf16"}
    assert json.loads((bundle / "data" / "digits" / "amp-bf16" / "expected.json").read_text())["accuracy"] > 0.9
    assert done.returncode == 0 and all(row["ok"] and not row.get("error") for row in rows[len(before):] if row["part"] == "conformance" and "case" in row), done.stdout
    told = subprocess.run([sys.executable, "-c", "import ctypes, sys, standin, trainers; trainers.take(sys.argv[1:]); "
                           "ctypes.CDLL(trainers.options['driver']).cuMemFree_v2(1); "
                           "print(standin.violations() != '', standin.violations() == '')",
                           f"driver={library(build_folder())}"], text=True, cwd=GPU, capture_output=True)
    assert told.stdout.split() == ["True", "True"], told.stderr


def test_time_that_is_spent_leaves_the_rest_for_the_next_call(bundle):
    done, _ = run(bundle, "conformance", "--again", "--seconds=1")
    assert done.returncode == 0 and "Not run: conformance/f32" in done.stdout


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
    needs_standin()
    assert "products/own-chain/fp8-hybrid: ok" in pack(tmp_path / "bundle", "--policies=fp8-hybrid")
    done, rows = run(tmp_path / "bundle", "products", "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.get("case") for row in rows] == ["own-chain fp8-hybrid", None] and rows[0]["products"] == 6
    assert "products are faster in 8 bits" in (tmp_path / "bundle" / "results" / "table.md").read_text()
    table = tmp_path / "bundle" / "results" / "products" / "own-chain-fp8-hybrid.json"
    cuda_models.chain(tmp_path / "chain.onnx")
    told = subprocess.run([build_folder() / "bin" / "mpt-opt", tmp_path / "chain.onnx", "--loss=softmax-cross-entropy", "--target=cuda", "--arch=host",
                           f"--policy=fp8-hybrid,measure={table}", "--dry-run", "--report=precision"], text=True, capture_output=True)
    assert told.returncode == 0 and told.stdout.count("us in 8 bits with conversions") == 6, told.stderr


def test_names_of_parts(bundle):
    done, _ = run(bundle, "speed")
    assert done.returncode == 2 and "expected parts among first, second, smoke" in done.stderr


def test_an_extraction_that_was_cut_off_is_noticed(bundle):
    run(bundle, "probe")
    cases, = (bundle / "data" / "conformance").glob("matmul-f32/cases.safetensors")
    cases.write_bytes(cases.read_bytes()[:100])
    (bundle / "data.unfinished").mkdir()
    done, _ = run(bundle, "conformance", "--again")
    assert done.returncode == 0 and "extracted again" in done.stdout and not (bundle / "data.unfinished").exists()


def test_peers_of_an_item_fit_a_gpu_together(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(GPU))
    import parts
    monkeypatch.setattr(parts, "HERE", tmp_path)
    policies = ("fp32", "amp-bf16", "autocast-cuda-bf16", "amp-f16", "als-f16", "fp8-hybrid", "fp8-current", "fp8-e5m2")
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
        assert item.limit > max(parts.limit_of(peer, float(item.command[item.command.index("--limit") + 1])) for peer in peers)
    kinds = {f"{way}:{kind}" for way in ("eager", "compile") for kind in ("fp32", "tf32", "f16", "bf16")}
    assert seen == kinds | {"autotune:f16", "autotune:bf16", "mpt:fp32+tf32", "mpt:fp8-hybrid+fast-sums"} | {f"mpt:{policy}" for policy in policies}


def test_an_archive_has_all_results_and_is_enough_to_go_on(bundle, tmp_path):
    words, out = ("probe", f"--archive={tmp_path / 'kept' / 'r.tar.gz'}"), tmp_path / "out"
    assert run(bundle, *words, out=out)[0].returncode == 0
    (out / "choices").write_text("some\n")
    run(bundle, *words, out=out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {"results.jsonl", "results.json", "table.md", "log.txt", "choices"} <= set(before)
    shutil.rmtree(out)
    assert run(bundle, *words, out=out)[0].returncode == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before, "the probe ran again"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["r.tar.gz"]


def test_what_was_cut_off_is_run_again(bundle, tmp_path):
    out = tmp_path / "out"
    _, rows = run(bundle, "probe", out=out)
    assert [row.get("end") for row in rows] == [None, True] and rows[1]["seconds"] > 0
    (out / "results.jsonl").write_text(json.dumps(rows[0]) + "\n{\"item\": \"pro")  # as who is killed leaves it
    assert len(run(bundle, "probe", out=out)[1]) == 3
    assert len(run(bundle, "probe", out=out)[1]) == 3


def test_a_hopper_gets_its_own_code_where_it_is_tried(tmp_path):
    pack_all(tmp_path / "bundle", "--types=", "--policies=amp-bf16", "--training=own-shared", "--hold", arch="sm_90")
    code = {name: next((tmp_path / "bundle" / "data" / "training" / name / "amp-bf16" / "cuda").glob("*.so")).read_bytes() for name in ("own-shared", "own-shared-wgmma")}
    assert b".target sm_90\n" in code["own-shared"] and b".target sm_90a" not in code["own-shared"] and b"wgmma" not in code["own-shared"]
    assert b".target sm_90a" in code["own-shared-wgmma"] and b"wgmma.mma_async" in code["own-shared-wgmma"]


def test_nothing_is_dropped_in_silence(tmp_path):
    hidden = tmp_path / "hidden" / "sklearn"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('no scikit-learn here')\n")
    words = [ROOT / "scripts" / "gpu-bundle.sh", tmp_path / "bundle", "--models=", "--types=", "--policies=amp-bf16", "--training=own-mlp|digits", "--arch=host",
             f"--build={build_folder()}"]
    done = subprocess.run(words, env=environment(PYTHONPATH=str(hidden.parent)), text=True, capture_output=True)
    assert done.returncode == 1 and "1 could not be made: digits/amp-bf16 (--partial leaves them out)" in done.stderr, done.stderr
    other = [word for word in [words[0], tmp_path / "other", *words[2:]] if word != "--models="] # the first one's folder is kept
    done = subprocess.run(other, env=environment(MPT_TORCH_PYTHON="false"), text=True, capture_output=True)
    assert done.returncode == 1 and "no PyTorch" in done.stderr, done.stderr


def test_weights_of_fewer_bits_are_the_compilers(monkeypatch):
    monkeypatch.syspath_prepend(str(GPU))
    torch = pytest.importorskip("torch")
    from bench import narrowed
    assert narrowed(torch.tensor([-1.7e-8, 1e6, 0.0, 1.0]), torch.float16).tolist() == [-2.0**-24, 65504, 0, 1]
    assert narrowed(torch.tensor([1.7e-8]), torch.float32).tolist() == torch.tensor([1.7e-8]).tolist()
