# SPDX-License-Identifier: Apache-2.0
"""Checks and timings of the CUDA target on this machine's GPU: run.py [PLAN or PART...] [options].

`first` is the most telling command of eight minutes, `second` follows from its results; without words both, then all
parts (--list names items with their clock). Writes results.jsonl as rows come, and after each item results.json, table.md, log.txt
with failed items' output, and all of --out as one file, --archive: a call may be cut off anywhere. An item that fails does not stop the
others, but for part smoke where nothing in it is right. --seconds bounds a call: items that do not fit are left for the next one,
which goes on where this one stopped (with the same --out, or the archive where there is no such folder). PyTorch's compilations
for later items run in the background first.

Needs CUDA 12 or 13 with cuBLASLt, Python with numpy and ml_dtypes, and PyTorch for whole models. Exits 1 when something failed.
"""
from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import parts
import trainers
from kept import Results, Run, extract

HERE = pathlib.Path(__file__).resolve().parent
GRACE = 15  # seconds from the word to end until a process is killed
FULL = 20000  # characters that a failed process's row keeps of its output


def libraries() -> tuple[dict, str]:
    """Trainers' options that name cuBLASLt and cuDNN where Python's packages have them, and the folders of libraries that they open in
    turn, for LD_LIBRARY_PATH."""
    found, folders = {}, []
    for base in sys.path:
        folders += [os.path.dirname(f) for f in glob.glob(os.path.join(base, "nvidia", "**", "lib", "lib*.so*"), recursive=True)]
    folders = list(dict.fromkeys(folders))
    for option, pattern in (("cublaslt", "libcublasLt.so.1[23]"), ("cudnn", "libcudnn.so.9")):
        matches = [m for folder in folders for m in sorted(glob.glob(os.path.join(folder, pattern)))]
        if matches:
            found[option] = matches[-1]
    return found, ":".join([*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *folders])


def is_whole(data: pathlib.Path) -> bool:
    """Whether every file that was packed is there in its size."""
    try:
        files = json.loads((data / "files.json").read_text())
        return all((data / name).stat().st_size == size for name, size in files.items() if name != "files.json")
    except (OSError, ValueError):
        return False


def unpack() -> None:
    """Extracts the packed data, aside and then in one piece; the remains of an extraction that was cut off are replaced."""
    data, aside = HERE / "data", HERE / "data.unfinished"
    if is_whole(data):
        return
    if data.exists():
        print("data: not all of it is there; it is extracted again", flush=True)
    for folder in (aside, data):
        shutil.rmtree(folder, ignore_errors=True)
    extract(HERE / "data.tar.xz", aside)
    if not is_whole(aside / "data"):
        sys.exit("data.tar.xz: expected every file of its files.json in its size: copy the bundle again")
    (aside / "data").rename(data)
    aside.rmdir()


class Lines(threading.Thread):
    """The output of a process on `pipe`, read as it comes; each line that is a row is also handed to `out`."""

    def __init__(self, pipe, out=None):
        super().__init__(daemon=True)
        self.pipe, self.out, self.rows, self.other = pipe, out, [], []
        self.start()

    def run(self) -> None:
        for line in self.pipe:
            row = row_of(line) if self.out else None
            if row is None:
                self.other.append(line)
                continue
            self.rows.append(row)
            self.out(row)

    @property
    def text(self) -> str:
        return "".join(self.other)


def row_of(line: str):
    """The row that a line is; else None."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) else None


def run_item(item, limit: float, log, options: dict, out) -> list:
    """The rows that an item printed, with one that states the error where one occurred. `out` takes each as it comes."""
    if item.needs and not shutil.which(item.needs):
        row = {"ok": None, "problem": f"{item.needs} is not on this machine"}
        out(row)
        return [row]
    command = [*item.command, *trainers.words({**options, **item.options})]
    process = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    err = Lines(process.stderr)
    said = Lines(process.stdout, out)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        status = None
    finally:  # also where this process is told to end
        end(process)
        for lines in (said, err):
            lines.join(10)  # a process that left the group may hold the pipe
    rows = list(said.rows)
    text = err.text or said.text
    problem = f"no end within {limit:.0f} s" if status is None else f"status {status}" if status or not rows else ""
    if problem:
        rows.append({"ok": False, "problem": f"{problem}: {tail(text)}", "text": text[-FULL:]})
        out(rows[-1])
    if problem or not all(row.get("ok") for row in rows) or item.part in ("sanitizer", "ncu", "diagnose"):
        log.write(f"==== {item.key}: status {status}\n{' '.join(command)}\n" + said.text[-200000:] + "\n" + err.text[-60000:] + "\n")
        log.flush()
    return rows


def end(process) -> None:
    """Ends a process and all of its group. One that is still running is asked first, so that it prints its results."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    kill(process)


def start(command: list, **more):
    """A process in a group of its own, which dies with this one: a call that is cut off leaves nobody who holds the GPU."""
    die = ctypes.CDLL(None).prctl
    return subprocess.Popen(command, start_new_session=True, preexec_fn=lambda: die(1, signal.SIGKILL), **more)


def kill(process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def tail(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])[-600:]


class Warmers:
    """PyTorch's compilations for items to come, in the background: its caches keep their results. They are over before anything is timed."""

    def __init__(self, pairs: list, tiny: bool):
        self.begin, self.running = time.monotonic(), {}
        for peer, model in dict.fromkeys(pairs):
            command = [shutil.which("nice") or "nice", "-n", "10", sys.executable, str(HERE / "bench.py"), peer, model, "--only-compile", *(["--tiny"] if tiny else [])]
            said = tempfile.TemporaryFile("w+")
            self.running[f"{peer} {model}"] = start(command, stdout=said, stderr=subprocess.STDOUT), said

    def wait(self, most: float, results) -> None:
        """Until all are done, `most` seconds or the time by which they should be; a compilation that is cut off is made again by who needs it."""
        deadline = min(time.monotonic() + most, self.begin + parts.COMPILED_BY)
        for name, (process, said) in self.running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            status = process.poll()
            kill(process)
            said.seek(0)
            row = {"item": f"background/{name}", "part": "background", "run": self.begin, "seconds": round(time.monotonic() - self.begin, 1)}
            results.add(**row, end=True, **({"ok": True} if status == 0 else {"ok": None, "problem": f"status {status}: {tail(said.read())}"}))
        self.running = {}

    def stop(self) -> None:
        for process, _ in self.running.values():
            kill(process)


def options_of(words: list, out: pathlib.Path) -> dict:
    """Of all trainers; cuBLASLt's and cuDNN's folders go into the environment."""
    found, os.environ["LD_LIBRARY_PATH"] = libraries()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"cache": out / "choices", **found, **dict(word.split("=", 1) for word in words)}


def show(chosen: list) -> None:
    for item, start, end in parts.clock(chosen):
        print(f"{item.key:44} {start:5.0f} - {end:5.0f} s, {item.limit:4.0f} s at most")


def run_all(chosen: list, a, begin: float, results, options: dict) -> None:
    done, warmers = set() if a.again else results.done(), None
    waiting = [item for item in chosen if item.key not in done]
    before = next((i for i, item in enumerate(waiting) if item.compiled), 0)
    if before:  # there is something to do meanwhile
        warmers = Warmers([pair for item in waiting for pair in item.compiled if item.part == "speed-first"], a.tiny)
    try:
        with open(a.out / "log.txt", "a") as log:
            for number, item in enumerate(waiting):
                if warmers and item.part.startswith("speed"):
                    warmers.wait(a.seconds - (time.monotonic() - begin) - item.least, results)
                rest = a.seconds - (time.monotonic() - begin)
                if rest < item.least:
                    results.left.append(item.key)
                    continue
                if item.late:
                    item = next(one for one in parts.items(a.tiny, a.scratch, results.rows()) if one.key == item.key)
                with Run(results, item) as out:
                    rows = run_item(item, min(item.limit, max(1, rest - GRACE)), log, options, out)
                at = time.monotonic() - begin
                bad = [row for row in rows if row.get("ok") is False]
                print(f"[{at:6.1f} s] {item.key}: " + (f"{len(bad)} of {len(rows)} FAIL: {bad[0].get('case', '')} {bad[0]['problem'][:300]}" if bad else
                                                       rows[0].get("problem") or f"{len(rows)} ok"), flush=True)
                if item.part == "smoke" and len(bad) == len(rows) and not a.anyway:
                    print("run.py: no model of this part is right, and the others would fail in the same way: nothing more is run (--anyway does)", flush=True)
                    results.left += [one.key for one in waiting[number + 1:]]
                    break
    finally:
        if warmers:
            warmers.stop()


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*parts.PLANS, *parts.PARTS]
    parse.add_argument("parts", nargs="*", metavar="PART", help="any of: " + ", ".join(names))
    # Not in the bundle's own folder: a second upload of it would replace them.
    parse.add_argument("--out", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir(), "mpt-results"))
    parse.add_argument("--archive", type=pathlib.Path, help="where --out as one file goes (default: OUT.tar.gz)")
    parse.add_argument("--seconds", type=float, default=float("inf"), help="start nothing new, and end, after this long")
    parse.add_argument("--only", default="", help="items whose name holds this")
    parse.add_argument("--again", action="store_true", help="run what is there already, too")
    parse.add_argument("--anyway", action="store_true", help="go on where no model of part smoke is right")
    parse.add_argument("--tiny", action="store_true", help="small models for PyTorch, few steps: to try the scripts out")
    parse.add_argument("--scratch", default=tempfile.gettempdir(), help="folder for initial weights (10 GB)")
    trainers.add_argument(parse)
    parse.add_argument("--list", action="store_true", help="name parts and items, run nothing")
    a = parse.parse_args()
    unknown = [part for part in a.parts if part not in names]
    if unknown:
        parse.error(f"expected parts among {', '.join(names)}, got {', '.join(unknown)}")
    begin, a.out = time.monotonic(), a.out.resolve()
    a.archive = (a.archive or a.out.with_name(a.out.name + ".tar.gz")).resolve()
    unpack()
    results = Results(a.out, a.archive)
    found = parts.items(a.tiny, a.scratch, results.rows())
    chosen = [item for item in parts.choose(found, a.parts, results.done()) if a.only in item.key]
    if a.list:
        show(chosen)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: stopped"))  # by way of run_item(), which ends its process
    try:
        run_all(chosen, a, begin, results, options_of(a.option, a.out))
    finally:
        rows = results.keep()
    print((a.out / "table.md").read_text())
    return 1 if any(row.get("ok") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
