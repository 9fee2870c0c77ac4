#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mixed-precision rewriters of .onnx files side by side, over a folder of graphs: one table by one command.

    python3 -m venv build/peers && build/peers/bin/pip install onnx onnxruntime onnxconverter-common numpy ml_dtypes
    build/peers/bin/pip install --no-deps nvidia-modelopt && build/peers/bin/pip install PACKAGES-THAT-ITS-IMPORT-ASKS-FOR
    build/peers/bin/python benchmarks/rewriters.py --forward DIR --joint DIR --adam 50 200 [--json FILE]

DIR holds the output of the corpus generators: FORM/MODEL.VARIANT.onnx or MODEL.joint.onnx beside MODEL.npz with the inputs.
Tools: mpt, common (onnxconverter-common), ort (onnxruntime.transformers), modelopt (nvidia-modelopt's autocast). A peer that is not
installed is said to be missing.

Casts and cast bytes (read and written) are counted between float types in the result, bodies included.  A result is valid if the
full checker (strict shape inference) accepts it and ONNX Runtime loads and runs it.  Drift, of results that it accepts,
is the relative L2 distance of the result's outputs from the given graph's, the worst of the groups *_grad, *_next and others, the
median over --batches inputs (the same ones for all tools), where onnx.reference evaluates both: it rounds every value to its type,
unlike ONNX Runtime's CPU provider.  CPU time is of one thread: of the whole process for mpt, of loading, converting and
saving alone for peers, whose start is stated apart.  Peak memory is the process's for mpt, and for peers without the imports' share.
"""
from __future__ import annotations

import argparse
import collections
import glob
import hashlib
import importlib
import importlib.util
import json
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
import numpy as np  # noqa: E402
import onnx  # noqa: E402

import adam  # noqa: E402
import compile_time  # noqa: E402
import reference  # noqa: E402
import spawn  # noqa: E402

PEERS = {"common": ("onnxconverter_common", "onnxconverter-common"), "ort": ("onnxruntime.transformers.float16", "onnxruntime"),
         "modelopt": ("modelopt.onnx.autocast", "nvidia-modelopt[onnx]")}
PARTS = ["forward", "joint", "optimizer", "chain", "big"]
FLOATS = {onnx.TensorProto.FLOAT: 4, onnx.TensorProto.FLOAT16: 2, onnx.TensorProto.BFLOAT16: 2, onnx.TensorProto.DOUBLE: 8}


# ---------------------------------------------------------------- conversion
def convert(tool: str, source: str, out: str, feeds: str) -> None:
    """One conversion by a peer, in this process: load, convert, save; inputs and outputs stay FP32."""
    if tool == "modelopt":
        from modelopt.onnx.autocast import convert_to_mixed_precision
        with tempfile.TemporaryDirectory() as folder:
            given = onnx.load(source, load_external_data=False)
            np.savez(os.path.join(folder, "feeds.npz"), **inputs_of(given, dict(np.load(feeds))))
            model = convert_to_mixed_precision(onnx_path=source, low_precision_type="fp16", keep_io_types=True,
                                               calibration_data=os.path.join(folder, "feeds.npz"))
    else:
        module = "onnxconverter_common.float16" if tool == "common" else "onnxruntime.transformers.float16"
        model = importlib.import_module(module).convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(model, out)


def in_child(work, limit: float):
    """The result of `work`, as JSON, from a forked process; with CPU seconds and peak MB of that process alone."""
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            if hasattr(resource, "RLIMIT_CPU"):
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 5))
            hush = os.open(os.devnull, os.O_WRONLY)
            os.dup2(hush, 1), os.dup2(hush, 2)
            before = resident()
            try:
                reply = {"value": work()}
            except BaseException as problem:  # noqa: BLE001: whatever a peer raises is its result
                text = " ".join(str(problem).split())
                reply = {"error": f"{type(problem).__name__}: {text[:300]}"}
            os.write(write, json.dumps({**reply, "before": before}).encode()[:60000])
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status, used = os.wait4(child, 0)
    reply = json.loads(text) if text else {"before": 0}
    if not text:
        died = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no result"
        reply["error"] = f"more than {limit:g} s" if died in ("SIGXCPU", "SIGKILL") else f"died: {died}"
    reply["cpu"] = used.ru_utime + used.ru_stime
    reply["peak"] = max(0.0, used.ru_maxrss / 1024 - reply.pop("before"))
    return reply


def resident() -> float:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def ours(options, source: str, out: str) -> dict:
    status, cpu, peak, said = spawn.measure([options.compiler, source, "--policy=amp-f16", "--emit=onnx", "--quiet", "-o", out])
    result = {"cpu": cpu, "peak": peak}
    return result if status == 0 else {**result, "error": said.strip()[:300] or f"status {status}"}


# ---------------------------------------------------------------- what a result is worth
def cast_cost(path: str) -> tuple[int, int]:
    """Casts between float types, and the bytes that they read and write; an extent that nothing states counts as 16."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False), strict_mode=False, data_prop=True)
    count = total = 0

    def visit(graph, outer):
        nonlocal count, total
        known = dict(outer)
        for info in [*graph.input, *graph.output, *graph.value_info]:
            tensor = info.type.tensor_type
            known[info.name] = tensor.elem_type, [d.dim_value if d.HasField("dim_value") else 16 for d in tensor.shape.dim]
        for tensor in graph.initializer:
            known[tensor.name] = tensor.data_type, list(tensor.dims)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    visit(attribute.g, known)
            if node.op_type != "Cast" or node.domain:
                continue
            to = next(a.i for a in node.attribute if a.name == "to")
            kind, shape = known.get(node.input[0], (0, []))
            if not kind and node.output[0] in known:
                kind, shape = (onnx.TensorProto.FLOAT16 if to == onnx.TensorProto.FLOAT else onnx.TensorProto.FLOAT), known[node.output[0]][1]
            if kind in FLOATS and to in FLOATS and kind != to:
                count += 1
                total += math.prod(shape) * (FLOATS[kind] + FLOATS[to])

    visit(model.graph, {})
    return count, total


def moved(array: np.ndarray, rng) -> np.ndarray:
    """Floats moved by half their deviation, none below zero where none was; integers dealt anew over the first axis."""
    if array.dtype.kind != "f":
        return rng.permuted(array, axis=0) if array.ndim else array
    if array.size < 2:
        return array
    other = array + 0.5 * array.std() * rng.standard_normal(array.shape)
    return (np.abs(other) if array.min() >= 0 else other).astype(array.dtype)


def batches(feeds: str, count: int) -> list[dict]:
    """The given inputs, and others like them."""
    first = dict(np.load(feeds))
    return [first] + [{name: moved(array, np.random.default_rng([i, k])) for k, (name, array) in enumerate(first.items())}
                      for i in range(1, count)]


def inputs_of(model, feeds: dict) -> dict:
    kinds = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
    return {name: array.astype(kinds[name]) for name, array in feeds.items() if name in kinds}


def group_of(name: str) -> str:
    return next((suffix for suffix in ("_grad", "_next") if suffix in name), "value")


def without_dropout(model):
    """Dropout draws bits that no two evaluators share: for drift it passes its operand on."""
    for node in model.graph.node:
        if node.op_type == "Dropout" and not node.domain:
            del node.input[1:]
    return model


def evaluate(path: str, feeds: list[dict]) -> list[list]:
    model = without_dropout(onnx.load(path))
    session = reference.evaluator(model)
    with np.errstate(all="ignore"):
        return [[np.asarray(v, np.float64) for v in session.run(None, inputs_of(model, f))] for f in feeds]


def drift(given: list, got: list, names: list[str]) -> float:
    distance, size = collections.Counter(), collections.Counter()
    for one, other in zip(given, got):
        for name, a, b in zip(names, one, other):
            with np.errstate(all="ignore"):
                distance[group_of(name)] += float(((a - b)**2).sum())
                size[group_of(name)] += float((a**2).sum())
    values = [math.sqrt(distance[g] / size[g]) if size[g] else 0.0 if distance[g] == 0 else math.inf for g in size]
    return max((v if v == v else math.inf) for v in values)


def run_session(path: str | bytes, model, feeds: list[dict], as_given: bool = False) -> list:
    """`as_given`: without ONNX Runtime's own rewriting, which folds batch norms in training form as if they were in inference form."""
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    wishes = onnxruntime.SessionOptions()
    wishes.intra_op_num_threads = wishes.inter_op_num_threads = 1
    if as_given:
        wishes.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, wishes, providers=["CPUExecutionProvider"])
    return [session.run(None, inputs_of(model, feed)) for feed in feeds]


def judge(source: str, out: str, feeds: str, expected: str, count: int) -> dict:
    """Casts, validity and drift of a result; the outputs of the given graph are kept in `expected`."""
    result = dict(zip(("casts", "bytes"), cast_cost(out)))
    model = onnx.load(out, load_external_data=False)
    names = [o.name for o in model.graph.output]
    try:
        onnx.checker.check_model(out, full_check=True)
    except Exception as problem:  # noqa: BLE001
        result["checker"] = " ".join(str(problem).split())[:200]
    given = batches(feeds, count)
    try:
        run_session(out, model, given[:1])
    except Exception as problem:  # noqa: BLE001
        result["runtime"] = " ".join(str(problem).split())[:200]
    if "checker" in result:
        return result  # values of an invalid model say nothing
    try:
        if not os.path.exists(expected):
            wanted = evaluate(source, given)
            if importlib.util.find_spec("onnxruntime"):
                plain = without_dropout(onnx.load(source))
                runtime = [[np.asarray(v, np.float64) for v in r] for r in run_session(plain.SerializeToString(), plain, given[:1], True)]
                if drift(runtime, wanted[:1], names) > 3e-3:
                    raise ValueError("the reference evaluator and ONNX Runtime differ on the given graph")
            made = f"{expected}.{os.getpid()}.npz"
            np.savez(made, *[v for batch in wanted for v in batch])
            os.replace(made, expected)
        kept = np.load(expected)
        flat = [kept[f"arr_{i}"] for i in range(len(kept.files))]
        wanted = [flat[i:i + len(names)] for i in range(0, len(flat), len(names))]
        values = [drift([one], [other], names) for one, other in zip(wanted, evaluate(out, given))]
        result["drifts"] = [value if math.isfinite(value) else "not finite" for value in values]
        result["drift"] = float(np.median(values)) if all(map(math.isfinite, values)) else "not finite"
    except Exception as problem:  # noqa: BLE001
        result["reference"] = " ".join(str(problem).split())[:200]
    return result


# ---------------------------------------------------------------- graphs
def graphs(options, folder: str):
    """(name, part, path, inputs) of every graph asked for."""
    def chosen(name):
        return re.fullmatch(options.graphs, name)
    for part, root in (("joint", options.joint), ("forward", options.forward), ("big", options.big)):
        for path in sorted(glob.glob(os.path.join(root or "", "**", "*.onnx"), recursive=True)) if root else []:
            name = os.path.relpath(path, root)[:-len(".onnx")]
            model = os.path.basename(path).split(".")[0]
            feeds = next((f for f in (os.path.join(root, model + ".npz"), os.path.join(os.path.dirname(path), "inputs.npz"))
                          if os.path.exists(f)), None)
            if chosen(name) and feeds:
                yield name, part, path, feeds
    for tensors in options.adam:
        path = os.path.join(folder, f"adam-{tensors}.onnx")
        onnx.save(adam.adam(tensors), path)
        np.savez(path[:-5] + ".npz", **adam.feeds(tensors))
        yield f"adam-{tensors}", "optimizer", path, path[:-5] + ".npz"
    for count in options.chain:
        path = os.path.join(folder, f"chain-{count}.onnx")
        compile_time.chain(count, path)
        np.savez(path[:-5] + ".npz", v0=np.random.default_rng(0).standard_normal((4, compile_time.WIDTH)).astype(np.float32))
        yield f"chain-{count}", "chain", path, path[:-5] + ".npz"


def keep(options, rows: list[dict], imports: dict) -> None:
    if options.json:
        with open(options.json + ".part", "w") as f:
            json.dump({"rows": rows, "imports": imports}, f, indent=1)
        os.replace(options.json + ".part", options.json)


def measure(options) -> tuple[list[dict], dict]:
    tools, imports, rows = ["mpt"] if "mpt" in options.tools else [], {}, []
    if options.resume and os.path.exists(options.json):
        with open(options.json) as f:
            kept = json.load(f)
        rows, imports = kept["rows"], kept["imports"]
    for tool in (t for t in PEERS if t in options.tools):
        module, package = PEERS[tool]
        try:
            importlib.import_module(module)
        except ImportError as problem:
            print(f"{tool} is left out: {problem}; install it with: pip install {package}", file=sys.stderr, flush=True)
            imports[tool] = "missing"
            continue
        tools.append(tool)
        if not isinstance(imports.get(tool), float):
            imports[tool] = spawn.measure([sys.executable, "-c", f"import numpy, onnx, {module}"])[1]
    known = {(row["graph"], row["part"]): row for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        options.kept = options.kept or folder
        todo = []
        for name, part, path, feeds in graphs(options, folder):
            nodes = len(onnx.load(path, load_external_data=False).graph.node)
            row = known.setdefault((name, part), {"graph": name, "part": part, "nodes": nodes, "tools": {}})
            todo += [(options, tool, name, part, nodes, path, feeds) for tool in tools if tool not in row["tools"]]
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            for name, part, tool, result in pool.imap_unordered(measure_one, todo):
                known[name, part]["tools"][tool] = result
                print(f"{name}, {tool}: {cell(result)}", file=sys.stderr, flush=True)
                rows = sorted((r for r in known.values() if r["tools"]), key=lambda r: (PARTS.index(r["part"]), r["graph"]))
                keep(options, rows, imports)
    return rows, imports


def verdict_on(path: str, out: str, feeds: str, expected: str, limit: float, count: int) -> dict:
    """judge(), or its earlier verdict on identical bytes."""
    with open(out, "rb") as f:
        known = f"{expected}.{hashlib.sha256(f.read()).hexdigest()[:16]}.json"
    if not os.path.exists(known):
        verdict = in_child(lambda: judge(path, out, feeds, expected, count), limit)
        if "value" not in verdict:
            return {"runtime": verdict["error"]}
        with open(known, "w") as f:
            json.dump(verdict["value"], f)
    with open(known) as f:
        return json.load(f)


def measure_one(task) -> tuple:
    """One graph through one tool."""
    options, tool, name, part, nodes, path, feeds = task
    expected = os.path.join(options.kept, re.sub(r"\W", "_", f"{part} {name}") + f".{options.batches}.npz")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.onnx")
        if tool == "mpt":
            result = ours(options, path, out)
        elif tool == "modelopt" and nodes > options.most_nodes:
            result = {"error": f"not run above {options.most_nodes} nodes"}
        else:
            result = in_child(lambda: convert(tool, path, out, feeds), options.limit)
        result.pop("value", None)
        if "error" not in result and nodes <= options.most_judged:
            result |= verdict_on(path, out, feeds, expected, options.limit, options.batches)
    return name, part, tool, result


# ---------------------------------------------------------------- the table
def is_valid(result: dict) -> bool:
    return "casts" in result and not {"error", "checker", "runtime"} & result.keys() and isinstance(result.get("drift"), float)


def cell(result: dict | None, absent: str = "") -> str:
    if result is None:
        return absent
    if "error" in result:
        limit = result["error"].startswith(("more than", "not run"))
        return result["error"] if limit else f"fails: {result['error'].split(':')[0]}"
    if "casts" not in result:
        return "too large to judge"
    said = [word for key, word in (("checker", "checker"), ("runtime", "runtime")) if key in result]
    said += ["drift"] if "checker" not in result and not isinstance(result.get("drift"), float) else []
    size = f"{result['casts']}, {result['bytes'] / 1024:.0f}"
    return size + (f", invalid ({' '.join(said)})" if said else f", {result['drift']:.1e}")


def whole(row: dict, tool: str, imports: dict) -> float:
    """CPU seconds of a process that does the conversion."""
    return row["tools"][tool]["cpu"] + (imports[tool] if tool in PEERS else 0)


def table(rows: list[dict], imports: dict, tools) -> str:
    lines = ["Cells: casts, KiB through casts, drift; `invalid` says what refused the result. Ratios of CPU time: whole processes, "
             "and without the peer's start", "",
             "| graph | nodes | " + " | ".join(tools) + " | x fastest valid peer | x modelopt |", "|---|---|" + "---|" * (len(tools) + 2)]

    def ratio(row, peer):
        if not peer or "cpu" not in row["tools"].get(peer, {}) or "error" in row["tools"][peer] or "cpu" not in row["tools"].get("mpt", {}):
            return ""
        mine = row["tools"]["mpt"]["cpu"]
        return f"{whole(row, peer, imports) / mine:.1f}, {row['tools'][peer]['cpu'] / mine:.1f}"

    for row in rows:
        peers = [t for t in PEERS if t in row["tools"] and is_valid(row["tools"][t])]
        fastest = min(peers, key=lambda t: whole(row, t, imports), default="")
        lines.append(f"| {row['graph']} | {row['nodes']} | " + " | ".join(cell(row["tools"].get(t), "missing" if imports.get(t) == "missing" else "") for t in tools) +
                     f" | {ratio(row, fastest)} | {ratio(row, 'modelopt')} |")
    return "\n".join(lines)


def summary(rows: list[dict], imports: dict, tools) -> str:
    lines = ["| part | tool | valid | casts | MiB through casts | median drift | CPU s | largest peak MiB |", "|---|---|---|---|---|---|---|---|"]
    for part in dict.fromkeys(row["part"] for row in rows):
        chosen = [row for row in rows if row["part"] == part]
        for tool in tools:
            results = [row["tools"][tool] for row in chosen if tool in row["tools"]]
            if not results:
                lines.append(f"| {part} | {tool} | {imports.get(tool, 'not run')} | | | | | |")
                continue
            drifts = [r["drift"] for r in results if isinstance(r.get("drift"), float)]
            lines.append(f"| {part} | {tool} | {sum(map(is_valid, results))} of {len(results)} | {sum(r.get('casts', 0) for r in results)} | "
                         f"{sum(r.get('bytes', 0) for r in results) / 2**20:.2f} | {f'{np.median(drifts):.1e}' if drifts else ''} | "
                         f"{sum(r.get('cpu', 0) for r in results):.2f} | {max(r.get('peak', 0) for r in results):.0f} |")
    lines.append("")
    for tool, seconds in imports.items():
        lines.append(f"{tool}: {'not installed' if seconds == 'missing' else f'{seconds:.2f} CPU s a process for the interpreter and imports, on top'}")
    return "\n".join(lines)


def is_chance(ours: list[float], theirs: list[float]) -> bool:
    """Sign test, one-sided, 5 %: False where `ours` is larger so often that equal distributions would seldom do it."""
    larger, differ = sum(a > b for a, b in zip(ours, theirs)), sum(a != b for a, b in zip(ours, theirs))
    return sum(math.comb(differ, k) for k in range(larger, differ + 1)) > 0.05 * 2**differ


def verdicts(rows: list[dict], imports: dict) -> list[str]:
    """Requirements on mpt, each with the graphs that fall short."""
    judged = [row for row in rows if "mpt" in row["tools"]]
    mine = lambda row: row["tools"]["mpt"]
    peers = lambda row: [t for t in PEERS if t in row["tools"] and is_valid(row["tools"][t])]
    ran = lambda row, tool: "cpu" in row["tools"].get(tool, {}) and "error" not in row["tools"][tool]
    everywhere, beside = lambda row: True, lambda row: bool(peers(row)) and "error" not in mine(row)
    modelopt = lambda row: ran(row, "modelopt")
    best = lambda row, cost: min(cost(row, t) for t in peers(row))
    alone = lambda row, tool: row["tools"][tool]["cpu"]
    process = lambda row, tool: whole(row, tool, imports)
    asked = [
        ("valid", everywhere, lambda row: "error" not in mine(row) and ("casts" not in mine(row) or is_valid(mine(row)))),
        ("median drift no larger than the best valid peer's", lambda row: bool(peers(row)) and "casts" in mine(row),
         lambda row: is_valid(mine(row)) and mine(row)["drift"] <= min(row["tools"][t]["drift"] for t in peers(row))),
        ("drift not larger than a valid peer's on more of the inputs than chance allows", lambda row: bool(peers(row)) and "casts" in mine(row),
         lambda row: is_valid(mine(row)) and all(is_chance(mine(row).get("drifts", []), row["tools"][t].get("drifts", [])) for t in peers(row))),
        ("20 x faster than modelopt, whole processes", modelopt, lambda row: process(row, "modelopt") >= 20 * alone(row, "mpt")),
        ("20 x faster than modelopt without its start", modelopt, lambda row: alone(row, "modelopt") >= 20 * alone(row, "mpt")),
        ("2 x faster than the fastest valid peer, whole processes", beside, lambda row: best(row, process) >= 2 * alone(row, "mpt")),
        ("2 x faster than the fastest valid peer without its start", beside, lambda row: best(row, alone) >= 2 * alone(row, "mpt"))]
    lines = []
    for what, applies, holds in asked:
        chosen = [row for row in judged if applies(row)]
        short = [row["graph"] for row in chosen if not holds(row)]
        names = f"; not {', '.join(short)}" if 0 < len(short) <= 12 else ""
        lines.append(f"- {what}: {len(chosen) - len(short)} of {len(chosen)} graphs where it can be said{names}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="build/release/bin/mpt-opt")
    parser.add_argument("--forward")
    parser.add_argument("--joint")
    parser.add_argument("--big", help="a folder of models in real size, each in a folder with inputs.npz (benchmarks/export.py)")
    parser.add_argument("--adam", type=int, nargs="*", default=[])
    parser.add_argument("--chain", type=int, nargs="*", default=[])
    parser.add_argument("--graphs", default=".*", help="only those of FORM/MODEL.VARIANT that match this regular expression")
    parser.add_argument("--tools", nargs="+", default=["mpt", *PEERS])
    parser.add_argument("--jobs", type=int, default=1, help="graphs at a time (CPU time suffers a little from company)")
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds a conversion or an evaluation")
    parser.add_argument("--batches", type=int, default=16, help="inputs over which the median drift is taken, the given ones and moved ones")
    parser.add_argument("--most-nodes", type=int, default=3000, help="larger graphs are not given to modelopt, which is quadratic")
    parser.add_argument("--most-judged", type=int, default=15000, help="larger results are not evaluated")
    parser.add_argument("--json", help="where all figures go")
    parser.add_argument("--resume", action="store_true", help="keep what --json holds and do the rest")
    parser.add_argument("--kept", help="a folder in which the outputs of the given graphs, and what was said of results, are kept for a later --resume")
    parser.add_argument("--read", nargs="+", help="make the table of earlier runs' figures instead")
    options = parser.parse_args()
    if options.read:
        rows, imports = [], {}
        for path in options.read:
            with open(path) as f:
                kept = json.load(f)
            rows, imports = rows + kept["rows"], imports | kept["imports"]
    else:
        rows, imports = measure(options)
    keep(options, rows, imports)
    print(summary(rows, imports, options.tools), "", *verdicts(rows, imports), "", table(rows, imports, options.tools), sep="\n")


if __name__ == "__main__":
    main()
