# SPDX-License-Identifier: Apache-2.0
"""Everything that is to be known of the CUDA target on this machine's GPU, in one command: run.py [PART...] [options].

Without parts, all of them, the most telling first (--list names them). Writes results.jsonl as it goes, results.json and table.md
after each part, and log.txt with what failed, into --out, and all of it as one file, --archive. A part that fails does not stop the
others. --seconds bounds a call: what does not fit is left for the next one, which goes on where this one stopped (with the same
--out, or the archive where there is no such folder).

Needs CUDA 12 or 13 with cuBLASLt, Python with numpy and ml_dtypes, and PyTorch for whole models. Exits 1 when something failed.
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import parts
import table
import trainers

HERE = pathlib.Path(__file__).resolve().parent
GRACE = 15  # seconds from the word to end until a process is killed
FULL = 20000  # characters that a failed process's row keeps of what it said


def libraries() -> tuple[dict, str]:
    """Trainers' options that name cuBLASLt and cuDNN where Python's packages have them, and the folders of what they open in
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


def extract(archive: pathlib.Path, folder: pathlib.Path) -> None:
    with tarfile.open(archive) as file:
        file.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # Python 3.11.4 brought it


def unpack() -> None:
    """Extracts what was packed, aside and then in one piece; what an extraction that was cut off left is replaced."""
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


class Results:
    """Writes an item's rows to `file` as they come. The last one, and no other, has the item's seconds: without it the item was cut off."""

    def __init__(self, file, item):
        self.file, self.same, self.start, self.held = file, {"item": item.key, "part": item.part, "run": time.time()}, time.monotonic(), None

    def __call__(self, row: dict) -> None:
        self.write()
        self.held = row

    def write(self, **more) -> None:
        if self.held:
            self.file.write(json.dumps({**self.same, **self.held, **more}) + "\n")
            self.file.flush()
        self.held = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_) -> None:
        self.write(**({} if kind else {"seconds": round(time.monotonic() - self.start, 1)}))


class Lines(threading.Thread):
    """What a process says on `pipe`, read as it comes; each line that is a row is also handed to `out`."""

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
    """The rows that an item printed, with one that says what went wrong where something did. `out` takes each as it comes."""
    if item.needs and not shutil.which(item.needs):
        row = {"ok": None, "problem": f"{item.needs} is not on this machine"}
        out(row)
        return [row]
    command = [*item.command, *trainers.words({**options, **item.options})]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    err = Lines(process.stderr)
    # A profile is part of its row, so that row waits for the end.
    said = Lines(process.stdout, (lambda row: None) if item.part == "profile" else out)
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
    if item.part == "profile" and rows:
        rows[0]["profile"] = err.text[-60000:]
        for row in rows:
            out(row)
    if problem:
        rows.append({"ok": False, "problem": f"{problem}: {tail(text)}", "text": text[-FULL:]})
        out(rows[-1])
    if problem or not all(row.get("ok") for row in rows) or item.part in ("profile", "sanitizer", "ncu"):
        log.write(f"==== {item.key}: status {status}\n{' '.join(command)}\n" + said.text[-200000:] + "\n" + err.text[-60000:] + "\n")
        log.flush()
    return rows


def end(process) -> None:
    """Ends a process and all of its group. One that is still running is asked first, so that it prints what it has."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def write_products(rows: list, folder: pathlib.Path) -> None:
    """A file for each table of measured products: FOLDER/MODEL-POLICY.json."""
    for row in rows:
        if row.get("table"):
            from mpt import measure
            folder.mkdir(exist_ok=True)
            measure.write(row["table"], folder / f"{row['case'].replace(' ', '-')}.json")


def write_results(folder: pathlib.Path, archive: pathlib.Path, left: list) -> list:
    """Everything that follows from results.jsonl, and the whole folder as one archive. Returns each item's last rows."""
    rows = table.latest(table.read(folder / "results.jsonl"))
    write_products(rows, folder / "products")
    (folder / "results.json").write_text(json.dumps(rows, indent=1))
    (folder / "table.md").write_text(table.markdown(rows, left))
    archive.parent.mkdir(parents=True, exist_ok=True)
    aside = archive.with_name(archive.name + ".unfinished")
    with tarfile.open(aside, "w:gz") as file:
        file.add(folder, "results")
    aside.rename(archive)
    return rows


def restore(folder: pathlib.Path, archive: pathlib.Path) -> None:
    """The results of an earlier call, where their archive alone came along."""
    aside = folder.with_name(folder.name + ".unfinished")
    if folder.exists() or not archive.exists():
        return
    shutil.rmtree(aside, ignore_errors=True)
    extract(archive, aside)
    (aside / "results").rename(folder)
    aside.rmdir()


def tail(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])[-600:]


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("parts", nargs="*", metavar="PART", help="any of: " + ", ".join(parts.PARTS))
    parse.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parse.add_argument("--archive", type=pathlib.Path, help="where --out as one file goes (default: OUT.tar.gz)")
    parse.add_argument("--seconds", type=float, default=float("inf"), help="start nothing new, and end, after this long")
    parse.add_argument("--only", default="", help="items whose name holds this")
    parse.add_argument("--again", action="store_true", help="run what is there already, too")
    parse.add_argument("--tiny", action="store_true", help="small models for PyTorch, few steps: to try the scripts out")
    parse.add_argument("--scratch", default=tempfile.gettempdir(), help="folder for initial weights (10 GB)")
    trainers.add_argument(parse)
    parse.add_argument("--list", action="store_true", help="name parts and items, run nothing")
    a = parse.parse_args()
    unknown = [part for part in a.parts if part not in parts.PARTS]
    if unknown:
        parse.error(f"expected parts among {', '.join(parts.PARTS)}, got {', '.join(unknown)}")
    begin, a.out = time.monotonic(), a.out.resolve()
    a.archive = (a.archive or a.out.with_name(a.out.name + ".tar.gz")).resolve()
    unpack()
    options, os.environ["LD_LIBRARY_PATH"] = libraries()
    options = {"cache": a.out / "choices", **options, **dict(word.split("=", 1) for word in a.option)}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = [item for item in parts.items(a.tiny, a.scratch) if (not a.parts or item.part in a.parts) and a.only in item.key]
    if a.list:
        for item in chosen:
            print(f"{item.key:50} {item.limit:5.0f} s at most")
        return 0
    restore(a.out, a.archive)
    a.out.mkdir(parents=True, exist_ok=True)
    path = a.out / "results.jsonl"
    known = table.latest(table.read(path))
    done = {row["item"] for row in known if "seconds" in row} - {row["item"] for row in known if row.get("ok") is False}
    left, part = [], None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: stopped"))  # by way of run_item(), which ends its process
    try:
        with open(a.out / "log.txt", "a") as log, open(path, "a") as results:
            for item in chosen:
                if item.key in done and not a.again:
                    continue
                rest = a.seconds - (time.monotonic() - begin)
                if rest < min(item.limit, item.least):
                    left.append(item.key)
                    continue
                if part not in (None, item.part):
                    write_results(a.out, a.archive, left)
                part = item.part
                with Results(results, item) as out:
                    rows = run_item(item, min(item.limit, max(1, rest - GRACE)), log, options, out)
                at = time.monotonic() - begin
                bad = [row for row in rows if row.get("ok") is False]
                print(f"[{at:6.1f} s] {item.key}: " + (f"{len(bad)} of {len(rows)} FAIL: {bad[0].get('case', '')} {bad[0]['problem'][:300]}" if bad else
                                                       rows[0].get("problem") or f"{len(rows)} ok"), flush=True)
    finally:
        rows = write_results(a.out, a.archive, left)
    print((a.out / "table.md").read_text())
    return 1 if any(row.get("ok") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
