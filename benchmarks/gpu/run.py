# SPDX-License-Identifier: Apache-2.0
"""Everything that is to be known of the CUDA target on this machine's GPU, in one command: run.py [PART...] [options].

Without parts, all of them, the most telling first (--list names them). Writes results.jsonl as it goes, results.json and table.md
at the end, and log.txt with what failed, into --out. A part that fails does not stop the others. --seconds bounds a call: what
does not fit is left for the next one, which goes on where this one stopped (with the same --out, or a copy of it).

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
import time

import parts
import table
import trainers

HERE = pathlib.Path(__file__).resolve().parent
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


def unpack() -> None:
    """Extracts what was packed, aside and then in one piece; what an extraction that was cut off left is replaced."""
    data, aside = HERE / "data", HERE / "data.unfinished"
    if is_whole(data):
        return
    if data.exists():
        print("data: not all of it is there; it is extracted again", flush=True)
    for folder in (aside, data):
        shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(HERE / "data.tar.xz") as archive:
        archive.extractall(aside, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # Python 3.11.4 brought it
    if not is_whole(aside / "data"):
        sys.exit("data.tar.xz: expected every file of its files.json in its size: copy the bundle again")
    (aside / "data").rename(data)
    aside.rmdir()


def run_item(item, limit: float, log, options: dict) -> list:
    """The rows that an item printed, or one that says what went wrong."""
    if item.needs and not shutil.which(item.needs):
        return [{"ok": None, "problem": f"{item.needs} is not on this machine"}]
    start = time.monotonic()
    command = [*item.command, *trainers.words({**options, **item.options})]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = None
    rows, other = [], []
    for line in out.splitlines():
        try:
            row = json.loads(line)
            (rows if isinstance(row, dict) else other).append(row if isinstance(row, dict) else line)
        except json.JSONDecodeError:
            other.append(line)
    seconds = round(time.monotonic() - start, 1)
    if status is None:
        rows.append({"ok": False, "problem": f"no end within {limit:.0f} s: {tail(err or out)}", "text": (err or out)[-FULL:]})
    elif status or not rows:
        rows.append({"ok": False, "problem": f"status {status}: {tail(err or out)}", "text": (err or out)[-FULL:]})
    if status or status is None or not all(row.get("ok") for row in rows) or item.part in ("profile", "sanitizer", "ncu"):
        log.write(f"==== {item.key}: status {status}, {seconds} s\n{' '.join(command)}\n" + "\n".join(other)[-200000:] + "\n" +
                  err[-60000:] + "\n")
        log.flush()
    if item.part == "profile":
        rows[0]["profile"] = err[-60000:]
    rows[0]["seconds"] = seconds
    return rows


def write_products(rows: list, folder: pathlib.Path) -> None:
    """A file for each table of measured products: FOLDER/MODEL-POLICY.json."""
    for row in rows:
        if row.get("table"):
            from mpt import measure
            folder.mkdir(exist_ok=True)
            measure.write(row["table"], folder / f"{row['case'].replace(' ', '-')}.json")


def tail(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-3:])[-600:]


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("parts", nargs="*", metavar="PART", help="any of: " + ", ".join(parts.PARTS))
    parse.add_argument("--out", type=pathlib.Path, default=HERE / "results")
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
    begin = time.monotonic()
    unpack()
    options, os.environ["LD_LIBRARY_PATH"] = libraries()
    options = {"cache": a.out.resolve() / "choices", **options, **dict(word.split("=", 1) for word in a.option)}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = [item for item in parts.items(a.tiny, a.scratch) if (not a.parts or item.part in a.parts) and a.only in item.key]
    if a.list:
        for item in chosen:
            print(f"{item.key:50} {item.limit:5.0f} s at most")
        return 0
    a.out.mkdir(parents=True, exist_ok=True)
    path = a.out / "results.jsonl"
    done = {row["item"] for row in table.read(path) if row.get("ok") is not False}
    done -= {row["item"] for row in table.read(path) if row.get("ok") is False}
    left = []
    with open(a.out / "log.txt", "a") as log, open(path, "a") as results:
        for item in chosen:
            if item.key in done and not a.again:
                continue
            rest = a.seconds - (time.monotonic() - begin)
            if rest < min(item.limit, 40):
                left.append(item.key)
                continue
            rows = run_item(item, min(item.limit, rest), log, options)
            at, run = time.monotonic() - begin, time.time()
            for row in rows:
                results.write(json.dumps({"item": item.key, "part": item.part, "run": run, **row}) + "\n")
            results.flush()
            bad = [row for row in rows if row.get("ok") is False]
            print(f"[{at:6.1f} s] {item.key}: " + (f"{len(bad)} of {len(rows)} FAIL: {bad[0].get('case', '')} {bad[0]['problem'][:300]}" if bad else
                                                   rows[0].get("problem") or f"{len(rows)} ok"), flush=True)
    rows = table.latest(table.read(path))
    write_products(rows, a.out / "products")
    (a.out / "results.json").write_text(json.dumps(rows, indent=1))
    text = table.markdown(rows, left)
    (a.out / "table.md").write_text(text)
    print(text)
    return 1 if any(row.get("ok") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
