"""Conformance, parity, speed and memory on this machine's GPU: run.py [--quick]. Writes results.json, prints one table.

Needs CUDA 12 or 13 with cuBLASLt, Python with numpy, and PyTorch for the comparison. Exits 1 when a case fails.
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = {"fp32": 1e-5, "amp-f16": 4e-3, "als-f16": 4e-3, "amp-bf16": 2e-2}  # relative, of losses; 8 bits: 5e-2
PEERS = ["mpt:amp-bf16", "eager:bf16", "compile:bf16", "mpt:amp-f16", "eager:f16", "compile:f16", "mpt:fp32", "eager:fp32",
         "mpt:fp8-hybrid"]


def libraries() -> dict:
    """cuBLASLt and cuDNN where Python's packages have them and the system does not name them."""
    found = {}
    for variable, pattern in (("MPT_CUBLASLT", "libcublasLt.so.*"), ("MPT_CUDNN", "libcudnn.so.*")):
        for base in sys.path:
            match = sorted(glob.glob(os.path.join(base, "nvidia", "**", "lib", pattern), recursive=True))
            if match and variable not in os.environ:
                found[variable] = match[-1]
                break
    return found


def conformance() -> list:
    """The small models' losses against those that the CPU library computed."""
    import numpy as np
    import mpt
    rows = []
    for expected in sorted(HERE.glob("cases/*/*/expected.json")):
        folder, want = expected.parent, json.loads(expected.read_text())
        row = {"case": folder.parent.name, "policy": want["policy"]}
        try:
            batch = dict(np.load(folder / "batch.npz"))
            with mpt.Trainer(folder / "cuda") as trainer:
                row["losses"] = [trainer.step(batch).loss for _ in want["losses"]]
            error = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], want["losses"]))
            row.update(error=error, ok=bool(error <= TOLERANCE.get(want["policy"], 5e-2)))
        except Exception as problem:  # every case is to be tried
            row.update(ok=False, problem=str(problem))
        rows.append(row)
    return rows


def speed(quick: bool) -> list:
    rows = []
    for model in sorted(p.name for p in HERE.glob("speed/*")):
        for peer in PEERS[:3] if quick else PEERS:
            kind, kept = peer.split(":")
            if kind == "mpt" and not (HERE / "speed" / model / kept).is_dir():
                continue
            try:
                done = subprocess.run([sys.executable, HERE / "bench.py", peer, model], capture_output=True, text=True, timeout=900)
                rows.append(json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else
                            {"model": model, "peer": peer, "problem": done.stderr.strip()[-400:]})
            except subprocess.TimeoutExpired:
                rows.append({"model": model, "peer": peer, "problem": "no result in 900 s"})
    return rows


def main() -> int:
    parse = argparse.ArgumentParser()
    parse.add_argument("--quick", action="store_true", help="the BF16 peers alone")
    a = parse.parse_args()
    os.environ.update(libraries())
    os.environ["PYTHONPATH"] = str(HERE)
    sys.path.insert(0, str(HERE))
    results = {"conformance": conformance(), "speed": speed(a.quick)}
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    results["gpu"] = gpu.stdout.strip()
    (HERE / "results.json").write_text(json.dumps(results, indent=1))
    print(results["gpu"])
    for row in results["conformance"]:
        print(f"{row['case']:12} {row['policy']:16} {'ok' if row['ok'] else 'FAILS'} {row.get('error', row.get('problem'))}")
    print(f"\n{'model':14} {'peer':16} {'ms':>9} {'x best PyTorch':>15} {'peak MiB':>10}")
    for row in results["speed"]:
        kind = {"f16": "f16", "amp-f16": "f16", "fp32": "fp32"}.get(row["peer"].split(":")[1], "bf16")
        best = min((r["ms"] for r in results["speed"] if "ms" in r and r["model"] == row["model"]
                    and r["peer"] in (f"eager:{kind}", f"compile:{kind}")), default=None)
        if "ms" in row:
            ratio = f"{best / row['ms']:.2f}" if best else "-"
            print(f"{row['model']:14} {row['peer']:16} {row['ms']:9.2f} {ratio:>15} {row['peak_mib']:10.0f}")
        else:
            print(f"{row['model']:14} {row['peer']:16} FAILS {row['problem'].splitlines()[-1] if row['problem'] else ''}")
    return 0 if all(row["ok"] for row in results["conformance"]) else 1


if __name__ == "__main__":
    sys.exit(main())
