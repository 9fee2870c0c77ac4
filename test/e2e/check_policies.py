#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains every form of training graph under every built-in policy: three steps, finite, and as near to FP32's as the policy allows.

  check_policies.py --results FILE [--forward FOLDER]... [--joint FOLDER]... [--algorithms FOLDER]... [--artifacts FOLDER]...
                    [--only REGEX] [--policies a,b] [--sample K] [--limit SECONDS] [--budget SECONDS] [--retry] [--markdown FILE]

Forms: forward graphs (FOLDER/{ts,dyn,opt}/NAME.loss.onnx beside FOLDER/NAME.npz), joint graphs (NAME.joint.onnx, NAME.npz), files with
TrainingInfoProto (NAME.OPTIMIZER.train.onnx), and ONNX Runtime's artifacts (check_artifacts.py says how they lie). The latter two take the
data of the forward graphs. FILE keeps a line for each file and policy, so that a run goes on where one ended: --retry takes those again that failed.
--sample K takes one policy a file, as a Latin square does: of P policies, file j of a form gets policy (j + K) mod P, the files of a form in an
order that does not hang on their size. Each policy meets each form, as far as a form has P files, and K from 0 to P - 1 are all pairs.
Smallest files first; each compilation with its steps has --limit seconds, and the run ends after --budget. Of each:
  steps      losses of the three steps that count, largest difference from FP32's over the first loss
  gradients  relative error of all gradients of the first step together, beside FP32's (nothing where they overflow at the first scale,
             or the file has several algorithms)
  allowed    one rounding of the policy's operands for losses, four for gradients; or four times FP32's own change with parameters and
             inputs that are each moved by one such rounding, where that is more (the most of four draws); or, for the backward pass of a
             file, four times the error of our own of the same file in the same policy
A policy with a constant scale that stops at an infinite gradient has the result `range` where FP32's own gradient of that parameter,
times the scale, is beyond the type that holds it: the recipe has no number for it. All other stops fail.
The status is non-zero when one fails. Compiles for one thread.
"""
import argparse
import collections
import csv
import multiprocessing
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.dirname(__file__))
import check_artifacts  # noqa: E402
import check_corpus  # noqa: E402
import step_files  # noqa: E402
import training_report as report  # noqa: E402

STEPS, DRAWS, ROUNDINGS, FACTOR = 3, 4, (1, 4), 4
# One rounding, relative, of the operands of a policy's GEMMs; the first word of a policy's name that is here.
UNITS = {"fp8-hybrid": 2.0**-4, "fp8-current": 2.0**-4, "fp8": 2.0**-3, "bf16": 2.0**-8, "f16": 2.0**-11, "fp32": 2.0**-24}
FIELDS = ("case", "policy", "result", "steps", "steps_allowed", "gradients", "gradients_allowed", "skipped", "seconds", "text")

Case = collections.namedtuple("Case", "key path size arguments feeds")


def unit_of(policy):
    return next(unit for word, unit in UNITS.items() if word in policy)


def built_in():
    return sorted(path.stem for path in (step_files.ROOT / "lib/Precision/policies").glob("*.mlir"))


def cases(given):
    """Every file of the folders, smallest first."""
    found = []

    def add(key, path, feeds, **arguments):
        size = sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file())
        found.append(Case(key, path, size, dict(arguments, dropout=False), feeds))

    for folder in given.forward:
        for path in sorted(folder.glob("*/*.loss.onnx")):
            name = path.name.split(".")[0]
            add(f"F {path.parent.name}/{name}", path, folder / f"{name}.npz", optimizer="sgd,lr=0.01")
    for folder in given.joint:
        for path in sorted(folder.glob("*.joint.onnx")):
            name = path.name.split(".")[0]
            add(f"J {name}", path, folder / f"{name}.npz")
    for folder in given.algorithms:
        for path in sorted(folder.glob("*.train.onnx")):
            inputs = next((data / f"{path.name.split('.')[0]}.npz" for data in given.forward
                           if (data / f"{path.name.split('.')[0]}.npz").exists()), None)
            add(f"T {path.name.removesuffix('.train.onnx')}", path, inputs)
    for root in given.artifacts:
        for path in sorted(root.rglob("training_model.onnx")):
            add(f"O {path.parent.relative_to(root)}", path.parent, (root, given.forward))
    return sorted((case for case in found if re.search(given.only, case.key)), key=lambda case: case.size)


def sampled(found, policies, offset):
    """{key of a case: its one policy}."""
    chosen = {}
    for form in sorted({case.key[0] for case in found}):
        keys = sorted(case.key for case in found if case.key[0] == form)
        random.Random(0).shuffle(keys)
        chosen.update((key, policies[(place + offset) % len(policies)]) for place, key in enumerate(keys))
    return chosen


def artifact_feeds(case):
    """(inputs, extents to bind) of a folder of artifacts."""
    root, data = case.feeds
    for folder in data:
        try:
            read = check_artifacts.Artifacts(case.path, root, folder)
            return read.feeds, read.extents
        except FileNotFoundError:
            pass
    raise FileNotFoundError(f"no inputs for {case.key}")


class Run:
    """Losses and gradients of a file under a policy."""

    def __init__(self, case, policy, feeds, extents, folder):
        import mpt

        self.trainer = mpt.Trainer(mpt.compile(case.path, out=folder, policy=policy, bind=extents, **case.arguments), threads=1)
        self.feeds = {name: feeds[name] for name in self.trainer.inputs() if name in feeds}
        self.gradients, self.initial = self.first(self.feeds), self.trainer.parameters()
        self.losses, self.skipped = [], 0
        for _ in range(64):
            if len(self.losses) == STEPS:
                break
            done = self.trainer.step(self.feeds)
            self.skipped += bool(done.skipped)
            self.losses += [] if done.skipped else [done.loss]

    def first(self, feeds):
        try:
            return self.trainer.gradients(feeds)[1]
        except Exception as problem:
            if "gradients" in str(problem) and "function" in str(problem):
                return None
            raise

    def moved(self, unit):
        """(parting of losses, distance of gradients) that FP32 answers to numbers moved by one rounding each, up or down."""
        answers = []
        for seed in range(DRAWS):
            draws = np.random.default_rng(seed)

            def near(value):
                return value * (1 + unit * draws.choice([-1.0, 1.0], value.shape)).astype(value.dtype)

            self.trainer.reset()
            for name, value in self.initial.items():
                self.trainer.set_parameter(name, near(value))
            feeds = {name: near(value) if value.dtype == np.float32 else value for name, value in self.feeds.items()}
            gradients = self.first(feeds)
            answers.append((report.parting(report.committed(self.trainer, feeds, STEPS), self.losses),
                            report.distance(gradients, self.gradients) if gradients else 0.0))
        return np.max(answers, axis=0)


def row_of(run, wide, allowed):
    """Fields of a row; raises where a step is not finite."""
    if len(run.losses) < STEPS or not np.isfinite(run.losses).all():
        raise ValueError(f"{len(run.losses)} steps that count, losses {run.losses}")
    if not all(np.isfinite(value).all() for value in run.trainer.parameters().values()):
        raise ValueError("parameters that are not finite after the steps")
    apart = report.parting(run.losses, wide.losses)
    gradients = report.distance(run.gradients, wide.gradients) if run.gradients else float("nan")
    ok = apart <= allowed[0] and not (np.isfinite(gradients) and gradients > allowed[1])
    return {"result": "ok" if ok else "FAIL", "steps": f"{apart:.1e}", "steps_allowed": f"{allowed[0]:.1e}",
            "gradients": f"{gradients:.1e}" if np.isfinite(gradients) else "-", "gradients_allowed": f"{allowed[1]:.1e}",
            "skipped": run.skipped}


def beyond_range(problem, wide):
    """Why no run under this policy could go on: FP32's own gradient, scaled as the policy scales it, has no FP16 number. Otherwise ""."""
    told = re.search(r"a loss scale of ([0-9.e+]+), .*the gradient of '([^']+)'", str(problem))
    if not told or not wide or told[2] not in (wide.gradients or {}):
        return ""
    scale, largest = float(told[1]), float(np.abs(wide.gradients[told[2]]).max())
    if scale * largest <= float(np.finfo(np.float16).max):
        return ""
    return f"FP32's gradient of '{told[2]}' is up to {largest:.4g}; times the constant scale of {scale:g} it is beyond FP16's 65504"


def child(connection, case, policies):
    """Sends a row for each policy."""
    import mpt

    mpt.use_build(step_files.BUILD)
    folder, wide, reactions = tempfile.TemporaryDirectory(), None, {}
    for policy in policies:
        start, row = time.time(), {"case": case.key, "policy": policy}
        try:
            if isinstance(case.feeds, tuple):
                feeds, extents = artifact_feeds(case)
            else:
                feeds, extents = check_corpus.load(case.feeds), {}
            wide = wide or Run(case, "fp32", feeds, extents, pathlib.Path(folder.name) / "fp32")
            run = wide if policy == "fp32" else Run(case, policy, feeds, extents, pathlib.Path(folder.name) / policy)
            unit = unit_of(policy)
            if unit not in reactions:
                reactions[unit] = wide.moved(unit)
            allowed = [max(count * unit, FACTOR * reaction) for count, reaction in zip(ROUNDINGS, reactions[unit])]
            row.update(row_of(run, wide, allowed))
            if row["result"] != "ok" and case.key[0] in "JO":  # whose backward pass is the file's
                own = case._replace(arguments=dict(case.arguments, backward="own"))
                mine = Run(own, policy, feeds, extents, pathlib.Path(folder.name) / f"{policy}-own")
                parts = report.parting(mine.losses, wide.losses), report.distance(mine.gradients, wide.gradients)
                row.update(row_of(run, wide, [max(limit, FACTOR * part) for limit, part in zip(allowed, parts)]))
        except mpt.Stalled as problem:
            text = beyond_range(problem, wide)
            row.update(result="range" if text else "FAIL", text=text or f"Stalled: {problem}")
        except Exception as problem:  # the row says it
            row.update(result="FAIL", text=f"{type(problem).__name__}: " + " ".join(str(problem).split())[:400])
        row["seconds"] = f"{time.time() - start:.1f}"
        connection.send(row)
    folder.cleanup()
    connection.close()


def run_case(case, policies, limit):
    """Yields a row for each policy; a process that hangs or dies costs the one it is at."""
    left = list(policies)
    while left:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=child, args=(theirs, case, left))
        process.start()
        theirs.close()
        try:
            while left:
                if not ours.poll(limit):
                    yield {"case": case.key, "policy": left.pop(0), "result": "late", "text": f"no result within {limit:.0f} s"}
                    break
                yield ours.recv()
                left.pop(0)
        except EOFError:
            process.join()
            yield {"case": case.key, "policy": left.pop(0), "result": "FAIL", "text": f"died with status {process.exitcode}"}
        process.kill()
        process.join()


def read_rows(path):
    """{(case, policy): row} of an earlier run."""
    if not path.exists():
        return {}
    with open(path, newline="") as file:
        return {(row["case"], row["policy"]): row for row in csv.DictReader(file, delimiter="\t")}


def write_rows(path, rows):
    whole = path.with_name(path.name + ".new")  # a run that is killed while it writes loses nothing
    with open(whole, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, delimiter="\t", restval="")
        writer.writeheader()
        writer.writerows(rows.values())
    whole.replace(path)


def table(rows):
    """Markdown: a row a policy, a column a form, with the passing files of all that ran, and the largest difference of losses."""
    forms = [form for form in "FJTO" if any(case.startswith(form) for case, _ in rows)]
    lines = ["| policy | " + " | ".join(forms) + " | steps apart | gradients apart |", "|---" * (len(forms) + 3) + "|"]
    for policy in sorted({policy for _, policy in rows}):
        of = [row for (_, name), row in rows.items() if name == policy]
        counts = [[row["result"] for row in of if row["case"].startswith(form)] for form in forms]
        largest = [max((float(row[kind]) for row in of if row.get(kind, "") not in ("", "-")), default=0.0) for kind in ("steps", "gradients")]
        lines.append(f"| {policy} | " + " | ".join(f"{c.count('ok')} of {len(c)}" for c in counts) + f" | {largest[0]:.1e} | {largest[1]:.1e} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for form in ("forward", "joint", "algorithms", "artifacts"):
        parser.add_argument("--" + form, type=pathlib.Path, action="append", default=[])
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--policies", default="")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--markdown")
    given = parser.parse_args()
    policies = [name for name in given.policies.split(",") if name] or built_in()
    rows, end = read_rows(given.results), time.time() + given.budget
    if given.retry:
        rows = {key: row for key, row in rows.items() if row["result"] == "ok"}
    found = cases(given)
    chosen = {} if given.sample is None else sampled(found, policies, given.sample)
    for case in found:
        wanted = [policy for policy in policies if (case.key, policy) not in rows and chosen.get(case.key, policy) == policy]
        for row in run_case(case, wanted, given.limit) if wanted and time.time() < end else ():
            rows[case.key, row["policy"]] = row
            write_rows(given.results, rows)
            if row["result"] != "ok":
                print("\t".join(str(row.get(field, "")) for field in FIELDS), flush=True)
            if time.time() > end:
                break
    results = collections.Counter(row["result"] for row in rows.values())
    failed = len(rows) - results["ok"] - results["range"]
    print(f"policies: {results['ok']} passed, {results['range']} beyond the recipe's range, {failed} failed")
    if given.markdown:
        pathlib.Path(given.markdown).write_text(table(rows))
    return failed != 0 or not rows


if __name__ == "__main__":
    sys.exit(main())
