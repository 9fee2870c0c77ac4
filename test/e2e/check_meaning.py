#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates models whose values mean something and holds each under a policy, compiled and rewritten, against float64.

  check_meaning.py --results FILE [--first N] [--count N] [--workers N] [--kinds a,b] [--policies a,b] [--forms compiled,rewritten]
                   [--flag FLAG]... [--keep FOLDER] [--markdown FILE]

Model N has kind, policy, opset, exporter's style and data that follow from N alone, so that the same number is the same model. Kinds and
policies make a Latin square: of K kinds and P policies, K * P models in a row have every pair once.
  compiled   loss and gradients of a step whose loss scale has settled
  rewritten  the result of --emit=onnx, evaluated as its types round, after onnx.checker
An error passes when it is at most four times float64's own change when the values that the policy may round each move by at most
one rounding (the most of four draws); values that count, point, turn, or lie beyond the narrow range stay where they are.
Results: right; wrong; skips (no step counts); untrained; refused; invalid; died; warned (not finite, and the compiler said so); range (a
constant loss scale has no FP16 number for a gradient that float64 has). FILE keeps a line a model and form, and a run goes on where
one ended. --keep writes the model of each failure, shrunk (shrink.py). The status is non-zero when one fails.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import numpy as np
import onnx

sys.path.insert(0, os.path.dirname(__file__))
from meaning import causes, check, draft, evaluate, kinds  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MPT_BUILD", check.ROOT / "build" / "release"))
FORMS, GOOD, TRIES = ("compiled", "rewritten"), ("right", "warned", "range"), 40


def choices(number, names, policies):
    """(kind, policy, opset, style) of a model."""
    block, place = divmod(number, len(names))
    rng = np.random.default_rng([number, 1])
    return names[place], policies[(block + place) % len(policies)], draft.OPSETS[rng.integers(4)], draft.STYLES[rng.integers(3)]


def case_of(number, names, policies):
    """(case, policy): the first data of the model's for which no rounding decides between two answers."""
    name, policy, opset, style = choices(number, names, policies)
    for attempt in range(TRIES):
        case = kinds.make(name, [number, attempt], opset, style)
        try:
            evaluate.Graph(case.model).run(case.feeds, case.exact, kinks=True)
            return case, policy
        except evaluate.Kink:
            pass
    raise RuntimeError(f"model {number} ({name}) has kinks in all of {TRIES} tries")


def rows_of(number, given, compiler, folder):
    """A row for each form."""
    case, policy = case_of(number, given.kinds, given.policies)
    judge = check.Judge(case, compiler, folder)
    for form in given.forms:
        start = time.time()
        try:
            result = getattr(judge, form)(policy, given.flag)
        except Exception as problem:
            result = check.Result(form, policy, "broken", type(problem).__name__, 0, 0, traceback.format_exc()[-600:])
        cause = "" if result.status in GOOD else cause_of(judge, result, given.flag)
        if given.keep and result.status not in GOOD:
            keep(given, judge, result, f"{number}-{form}-{policy}")
        yield {"model": number, "kind": case.kind, "cause": cause, "opset": case.model.opset_import[0].version, **result._asdict(), "error": min(result.error, 1e300),
               "text": "" if result.status == "right" else result.text[:1500], "seconds": round(time.time() - start, 3)}


def cause_of(judge, result, flags):
    """The rounded values that must be exact; of refusals the first words."""
    try:
        if result.status == "untrained":
            return "held"
        if result.status not in ("wrong", "skips"):
            return " ".join(result.text.split())[:120]
        if result.form == "rewritten":
            return causes.of_rewritten(judge.case, evaluate.load(judge.folder / "out.onnx"))
        return causes.of_compiled(judge.case, judge.compiler, judge.model, result.policy, flags)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def keep(given, judge, result, name):
    """Writes the smallest model found that fails alike."""
    folder = given.keep / name
    folder.mkdir(parents=True, exist_ok=True)

    def fails(case):
        return getattr(check.Judge(case, judge.compiler, shrinking), result.form)(result.policy, given.flag).status == result.status
    shrinking = judge.folder / "shrinking"
    shrinking.mkdir(exist_ok=True)
    onnx.save(causes.shrunk(judge.case, fails).model, folder / "model.onnx")
    (folder / "told.txt").write_text(result.text)


def work(given):
    """Rows of the numbers on standard input, each number announced before."""
    compiler = check.Compiler(BUILD)
    with tempfile.TemporaryDirectory(prefix="meaning-") as folder:
        for line in sys.stdin:
            print(json.dumps({"begin": int(line)}), flush=True)
            for row in rows_of(int(line), given, compiler, folder):
                print(json.dumps(row), flush=True)
            print(json.dumps({"end": int(line)}), flush=True)


class Worker:
    """A process that takes numbers; one that dies costs the model it is at, and is replaced."""

    def __init__(self, words):
        self.words, self.process, self.number, self.done = words, None, None, 0

    def give(self, number):
        if self.process is None or self.done % 300 == 299:  # libraries stay loaded: a fresh process now and then
            self.close()
            self.process = subprocess.Popen([sys.executable, __file__, *self.words, "--work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.number, self.done = number, self.done + 1
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def rows(self):
        for line in self.process.stdout:
            row = json.loads(line)
            if "end" in row:
                return
            if "begin" not in row:
                yield row
        status, self.process = self.process.wait(), None
        yield {"model": self.number, "kind": "", "form": "", "policy": "", "cause": "died", "status": "died", "text": f"status {status}"}

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def share(given, numbers, words, add):
    """Numbers over workers, one thread each."""
    import threading
    left, lock = collections.deque(numbers), threading.Lock()

    def loop():
        worker = Worker(words)
        while True:
            with lock:
                if not left:
                    break
                number = left.popleft()
            worker.give(number)
            found = list(worker.rows())
            with lock:
                add(found)
        worker.close()
    threads = [threading.Thread(target=loop) for _ in range(given.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def table(rows):
    """Markdown: a row a kind, a column a policy: right of all, in each form."""
    lines = []
    for form in FORMS:
        of = [row for row in rows if row["form"] == form]
        names = sorted({row["policy"] for row in of})
        lines += [f"\n{form}:\n", "| kind | " + " | ".join(names) + " | all |", "|---" * (len(names) + 2) + "|"]
        for name in [*sorted({row["kind"] for row in of}), None]:
            counts = []
            for policy in [*names, None]:
                here = [row["status"] in GOOD for row in of if name in (None, row["kind"]) and policy in (None, row["policy"])]
                counts.append(f"{sum(here)} of {len(here)}" if sum(here) < len(here) else str(len(here)))
            lines.append(f"| {name or 'all'} | " + " | ".join(counts) + " |")
    return "\n".join(lines) + "\n"


def parsed(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(kinds.KINDS))
    parser.add_argument("--policies", type=lambda text: text.split(","), default=check.policies())
    parser.add_argument("--forms", type=lambda text: text.split(","), default=list(FORMS))
    parser.add_argument("--flag", action="append", default=[])
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words=None):
    words = sys.argv[1:] if words is None else words
    given, end = parsed(words), None
    if given.work:
        return work(given)
    rows = [json.loads(line) for line in open(given.results)] if given.results and given.results.exists() else []
    done, end = {row["model"] for row in rows}, time.time() + given.budget
    numbers = [n for n in range(given.first, given.first + given.count) if n not in done]
    file = open(given.results, "a") if given.results else None

    def add(found):
        rows.extend(found)
        for row in found:
            if file:
                print(json.dumps(row), file=file, flush=True)
            if row["status"] not in GOOD:
                print(row["model"], row["kind"], row["opset"] if "opset" in row else "", row["form"], row["policy"], row["status"], row.get("what", ""),
                      f"{row.get('error', 0):.2g} > {row.get('allowed', 0):.2g}", row["cause"], flush=True)

    def until():
        for number in numbers:
            if time.time() > end:
                return
            yield number
    share(given, until() if given.budget == float("inf") else list(until()), words, add)
    results = collections.Counter(row["status"] for row in rows)
    failed = sum(count for status, count in results.items() if status not in GOOD)
    print(f"meaning: {len({row['model'] for row in rows})} models, {dict(results)}; {failed} failed")
    groups = collections.Counter((row["status"], row["kind"], row["form"], row.get("cause", "")) for row in rows if row["status"] not in GOOD)
    for (status, name, form, cause), count in groups.most_common():
        print(f"{count:6} {status:9} {name} {form}: {cause}")
    if given.markdown:
        given.markdown.write_text(table(rows))
    return failed != 0 or not rows


if __name__ == "__main__":
    sys.exit(main())
