#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs training steps of the corpus for CUDA without a GPU, and holds them against the same policy's steps on the CPU.

  check_cuda.py CORPUS [--models a,b] [--forms ts] [--policies fp32,amp-f16] [--parts kernels] [--no-cudnn]
    [--results FILE]

CORPUS is the folder that scripts/corpus.sh made. Kernels run as loops over blocks and threads, library calls in fake libraries.
Every kernel is held against the interpreter on its operands (cuda_kernels.check). After two steps of SGD with momentum, skipped ones not counted,
losses and movements of all parameters are compared, by cuda_steps.judge. The status is non-zero for a failed model or a violation of CUDA's rules.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import cuda_kernels  # noqa: E402
import cuda_steps  # noqa: E402
from check_corpus import MODELS  # noqa: E402
from check_steps import source_of  # noqa: E402

POLICIES = "fp32,amp-f16,amp-bf16,als-f16,fp8-e5m2,fp8-hybrid,fp8-current,pure-f16-static"


def rows_of(build, corpus, form, model, policies, cudnn, parts):
    """Yields (policy, ok, text)."""
    path, loss, feeds = source_of(corpus, form, model)
    flags, exact = [f"--loss={loss}", "--no-dropout"], None
    for policy in policies:
        start, words = time.time(), [*flags, f"--policy={policy}"]
        try:
            texts, problems = [], []
            with tempfile.TemporaryDirectory() as folder:
                if "kernels" in parts:
                    values, most, problems = cuda_kernels.check(build, path, words, feeds, folder + "/kernels", cudnn)
                    texts.append(f"{values} values within {most:.1e} of the interpreter's")
                if "steps" in parts and exact is None:
                    exact = cuda_steps.run(build, path, [*flags, "--policy=fp32"], feeds, folder + "/exact", False)
                if "steps" in parts:
                    cpu = exact if policy == "fp32" else cuda_steps.run(build, path, words, feeds, folder + "/cpu", False)
                    cuda = cuda_steps.run(build, path, words, feeds, folder + "/cuda", True, cudnn)
                    text, more = cuda_steps.judge(cuda, cpu, exact)
                    texts, problems = [*texts, text], [*problems, *more]
            ok, text = not problems, "; ".join([*texts, *problems[:5]])
        except Exception as problem:  # one policy's failure is its row
            ok, text = False, " ".join(str(problem).split())[-400:]
        yield policy, ok, f"{text}  ({time.time() - start:.0f} s)"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus")
    ap.add_argument("--models", default=",".join(MODELS))
    ap.add_argument("--forms", default="ts")
    ap.add_argument("--policies", default=POLICIES)
    ap.add_argument("--parts", default="kernels,steps", help="what to compare")
    ap.add_argument("--no-cudnn", action="store_true", help="convolutions as GEMMs with columns")
    ap.add_argument("--results", type=pathlib.Path, help="keeps what passed, so that a run that was cut off goes on")
    args = ap.parse_args()
    build = pathlib.Path(os.environ.get("MPT_BUILD", cuda_steps.ROOT / "build" / "release"))
    known = json.loads(args.results.read_text()) if args.results and args.results.exists() else {}
    passed = failed = 0
    for model in args.models.split(","):
        for form in args.forms.split(","):
            if source_of(args.corpus, form, model) is None:
                continue
            policies = [p for p in args.policies.split(",") if f"{form}/{model} {p}" not in known]
            passed += len(args.policies.split(",")) - len(policies)
            for policy, ok, text in rows_of(build, args.corpus, form, model, policies, not args.no_cudnn, args.parts.split(",")):
                print(f"{form}/{model} {policy}: {'ok' if ok else 'FAIL'}  {text}", flush=True)
                passed, failed = passed + ok, failed + (not ok)
                if ok and args.results:
                    known[f"{form}/{model} {policy}"] = text
                    args.results.write_text(json.dumps(known, indent=1))
    print(f"{passed} agree, {failed} do not")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
