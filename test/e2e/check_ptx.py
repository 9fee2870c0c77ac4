# SPDX-License-Identifier: Apache-2.0
"""Every operation and gradient of the conformance suite as interpreted PTX: check_ptx.py [--types f32,...] [--arch sm_80] [--only REGEX]

Results are held against the interpreter of the IR, within the error model's tolerances; a race, a barrier that not all threads reach
or a stray access fails the case. Exits 1 when one failed.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "test" / "python"), str(ROOT / "test" / "cts")]


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--types", default="f32,f16,bf16")
    parse.add_argument("--arch", default="sm_80")
    parse.add_argument("--order", default="shuffled", choices=["forward", "reversed", "shuffled"])
    parse.add_argument("--only", default="", help="regular expression over FILE.FUNCTION")
    parse.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    a = parse.parse_args()
    library = str(a.build.resolve() / "lib" / "libcuda_standin.so")
    os.environ.update(MPT_BUILD=str(a.build.resolve()), MPT_STANDIN_ARCH=a.arch.removeprefix("sm_"), OMP_NUM_THREADS="1")
    import ctypes

    import mpt
    import ptx_executor
    import run_cts
    del sys.modules["standin"]  # the bundle has one of its own
    sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
    import conform
    import pack
    import trainers
    mpt.use_build(a.build)
    trainers.take([f"{name}={library}" for name in ("driver", "cublaslt", "cudnn")] + ["cache=", "search=off", "ptx=1"])
    executor = ptx_executor.Executor(ctypes.CDLL(library), a.order)
    rows = failed = 0
    for kind in a.types.split(","):
        for file, group in run_cts.cases(kind).items():
            group = [case for case in group if re.search(a.only, case.name)]
            with tempfile.TemporaryDirectory() as scratch:
                left_out = pack.pack_cases(a.build.resolve() / "bin" / "mpt-opt", run_cts, group, pathlib.Path(scratch, f"{file.stem}-{kind}"), a.arch)
                for name, problem in left_out.items():
                    print(f"left out {name}-{kind}: {problem[:200]}")
                for folder in sorted(pathlib.Path(scratch).iterdir()):
                    def show(row):
                        nonlocal rows, failed
                        rows, failed = rows + 1, failed + (not row["ok"])
                        if not row["ok"]:
                            print(f"FAIL {row['case']}: {row['problem'][:400]}", flush=True)
                    conform.run(folder, show)
    print(f"{rows} cases, {failed} failed; {len(executor.instructions)} instructions of PTX")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
