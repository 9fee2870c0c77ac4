# SPDX-License-Identifier: Apache-2.0
"""Every kernel of a training step for CUDA against the interpreter on the very values that the kernel worked with.

The step is compiled at the level of fusions with all results of fusions as outputs (except results that become state, which are read there), and runs
without a GPU. The interpreter takes every fusion by itself, with the GEMMs and convolutions that feed it, and computes it from the kernel's operands:
both round alike, so that a wrong kernel stands out in every policy, whatever its effect on the step as a whole. As a program it makes
steps: cuda_kernels.py LIBRARY STATE BATCH.npz LATER-STATE, or LIBRARY STATE BATCH.npz INPUTS VALUES STATE-AFTER STATES.json."""
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

import cuda_steps
import numpy as np

VALUE = re.compile(r"%\w+(?:#\d+)?")
OP = re.compile(r'^    (?:(%\w+)(?::(\d+))? = )?"([\w.]+)"\(([^)]*)\)')


def split(types: str) -> list:
    """The parts of a list of types (commas within brackets do not count)."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(types + ","):
        depth += (c in "<([{") - (c in ">)]}")
        if c == "," and depth == 0:
            found.append(types[start:i].strip())
            start = i + 1
    return [part for part in found if part]


@dataclass
class Op:
    """One op of a function's body, in the generic form."""
    name: str
    operands: list
    lines: list
    results: list = field(default_factory=list)

    @property
    def types(self) -> list:
        """Of the results."""
        text = self.lines[-1].rsplit(") -> ", 1)[1]
        return split(text[1:-1] if text.startswith("(") else text)


@dataclass
class Step:
    """The module's text around @step, and @step in pieces."""
    before: list
    head: str
    arguments: list  # (name, type)
    ops: list
    after: list

    @staticmethod
    def read(text: str) -> "Step":
        # Large initial values do not travel in the text; the state that is loaded has them.
        lines = re.sub(r"dense_resource<[^>]*> : (tensor<(?:\d+x)*(\w+)>)",
                       lambda m: f"dense<{'0' if m[2].startswith('i') else '0.0'}> : {m[1]}", text).splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith('  "func.func"') and 'sym_name = "step"' in line)
        end = next(i for i in range(start, len(lines)) if lines[i].startswith("  })"))
        arguments = [tuple(part.split(": ", 1)) for part in split(lines[start + 1].strip()[len("^bb0("):-2])]
        ops = []
        for line in lines[start + 2:end]:
            if match := OP.match(line):
                base, count, name, operands = match.groups()
                ops.append(Op(name, VALUE.findall(operands), []))
                ops[-1].results = [f"{base}#{i}" for i in range(int(count))] if count else [base] if base else []
            ops[-1].lines.append(line)
        # Large initial values do not travel in the text; the state that is loaded has them.
        return Step(lines[:start], lines[start], arguments, ops, lines[end:])

    def with_outputs(self, seen: list) -> str:
        """The module with the values `seen` [(value, type, name)] as outputs of the step."""
        outputs, results = self.attributes("res_attrs"), [*self.returned, *(type_ for _, type_, _ in seen)]
        names = ", ".join(f'{{check.observed, mpt.name = "{name}"}}' for _, _, name in seen)
        head = self.head.replace("res_attrs = " + outputs, f"res_attrs = [{', '.join(filter(None, [outputs[1:-1], names]))}]")
        kind = head[head.index("function_type = ") + len("function_type = "):head.index(", res_attrs")]
        head = head.replace(kind, f"({', '.join(type_ for _, type_ in self.arguments)}) -> ({', '.join(results)})")
        block = "  ^bb0(" + ", ".join(f"{name}: {type_}" for name, type_ in self.arguments) + "):"
        body = [line for op in self.ops if op.name != "func.return" for line in op.lines]
        operands = [*self.ops[-1].operands, *(value for value, _, _ in seen)]
        return "\n".join([*self.before, head, block, *body, f'    "func.return"({", ".join(operands)}) : ({", ".join(results)}) -> ()',
                          *self.after]) + "\n"

    def roots(self) -> list:
        """Fusions, attention, and all other ops whose results become a state or a result."""
        kept = {operand for op in self.ops if op.name in ("train.write", "func.return") for operand in op.operands}
        return [op for op in self.ops if op.name in ("mpt.fusion", "library.gemm", "library.attention", "library.attention_gradient") or op.name != "train.read" and kept & set(op.results)]

    def alone(self, root: Op, roots: list, states: dict) -> str:
        """A module whose function @alone makes `root` of the results of other roots, of states and of the step's inputs."""
        made = {result: op for op in self.ops for result in op.results}
        types = dict(self.arguments)
        types.update({result: type_ for op in self.ops for result, type_ in zip(op.results, op.types)})
        given, ops = {}, []

        def take(op):
            for operand in op.operands:
                source = made.get(operand)
                if source is None or source.name == "train.read" or source in roots:
                    given[operand] = self.inputs.get(operand) or (states[operand] if source.name == "train.read" else name_of(operand))
                elif source not in ops:
                    take(source)
            ops.append(op)

        take(root)
        arguments = {value: f"%given{i}" for i, value in enumerate(given)}
        body = []
        for op in ops:
            begin = op.lines[0].index('"(') + 1
            stop = op.lines[0].index(")", begin)
            body += [op.lines[0][:begin] + VALUE.sub(lambda m: arguments.get(m[0], m[0]), op.lines[0][begin:stop]) + op.lines[0][stop:], *op.lines[1:]]
        named = lambda names: ", ".join(f'{{mpt.name = "{name}"}}' for name in names)  # noqa: E731
        kinds, results = ", ".join(types[value] for value in given), ", ".join(root.types)
        return f'''"builtin.module"() ({{
  "func.func"() <{{arg_attrs = [{named(given.values())}], function_type = ({kinds}) -> ({results}), res_attrs = [{named(map(name_of, root.results))}], sym_name = "alone"}}> ({{
  ^bb0({", ".join(f"{arguments[value]}: {types[value]}" for value in given)}):
''' + "\n".join(body) + f"""
    "func.return"({", ".join(root.results)}) : ({results}) -> ()
  }}) : () -> ()
}}) : () -> ()
"""

    @property
    def inputs(self) -> dict:
        """The names of the function's arguments."""
        return dict(zip((name for name, _ in self.arguments), re.findall(r'mpt.name = "([^"]*)"', self.attributes("arg_attrs"))))

    def attributes(self, name: str) -> str:
        """The list behind `name` in the function's head."""
        start = stop = self.head.index(name + " = ") + len(name) + 3
        depth = 0
        while not depth or self.head[start:stop].count("[") > self.head[start:stop].count("]"):
            depth, stop = 1, stop + 1
        return self.head[start:stop]

    @property
    def returned(self) -> list:
        """Types of the function's results."""
        last = next(op for op in self.ops if op.name == "func.return")
        return split(last.lines[-1].rsplit(" : (", 1)[1].rsplit(") -> ()", 1)[0])


STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # from one number to the next, relative


def name_of(value: str) -> str:
    return f"value{value[1:].replace('#', '_')}"


def words(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-1500:] or f"status {done.returncode}")
    return done.stdout


def compare(build, step, roots, folder, n) -> dict:
    """{value: (distance from the interpreter's, relative to its largest element; an error message, or nothing)} of step `n`."""
    import mpt_run
    states = {op.results[0]: state_of(op) for op in step.ops if op.name == "train.read"}
    values = {name: value for what in ("state", "inputs", "values")
              for name, value in mpt_run.read_tensors(folder / f"{what}{n}.safetensors").items()}

    def one(root):
        place = folder / f"alone{name_of(root.results[0])}"
        place.mkdir(exist_ok=True)
        text = step.alone(root, roots, states)
        (place / "m.mlir").write_text(text)
        names = re.findall(r'mpt.name = "([^"]*)"', text[:text.index("^bb0")])[:-len(root.results)]
        mpt_run.write_tensors(place / "in.safetensors", {name: values[name] for name in names})

        def interpret(*flags):
            words(build / "bin" / "mpt-run", place / "m.mlir", f"--inputs={place}/in.safetensors", "--function=alone",
                  f"--outputs={place}/out.safetensors", *flags)
            return mpt_run.read_tensors(place / "out.safetensors")

        exact, found = None, {}
        for name, want in interpret().items():
            distance, text = apart(values[name], want)
            if text:
                exact = exact or interpret("--fp64")
                # Where terms cancel, the rounding error of the interpreter itself is the measure.
                lost = largest(exact[name] - want.astype(np.float64)) if want.dtype.name not in ("bool", "int32", "int64") else 0
                # Scores' gradients are rounded before their scale here, and behind it by cuDNN: a step of the largest sum.
                other = STEP.get(want.dtype.name, 0) * largest(want) if "attend_gradient" in ops_of(root) else 0
                text = "" if distance <= max(4 * lost, other) else f"step {n}: {name} of {', '.join(ops_of(root))}: {text}, where rounding changes {lost:.2g}"
            found[name] = distance / max(largest(want), 1e-30), text
        return found

    found = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for part in pool.map(one, roots):
            found.update(part)
    return found


def ops_of(root: Op) -> list:
    return list(dict.fromkeys(re.findall(r'"(?:library|mpt|rt)\.(\w+)"', "".join(root.lines))))


def largest(values) -> float:
    values = np.abs(np.asarray(values, np.float64))
    return float(np.max(values, initial=0, where=np.isfinite(values)))


def apart(got, want):
    """(largest difference, text where that is more than two orders of the same sums make)."""
    a, b = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    if got.dtype != want.dtype or a.shape != b.shape:
        return np.inf, f"expected {want.dtype} {b.shape}, got {got.dtype} {a.shape}"
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    wrong, most = int(np.count_nonzero(off)), float(off.max(initial=0))
    text = f"{wrong} of {off.size} differ, by {most:.3g} at most, the largest is {largest(b):.3g}"
    if want.dtype.kind in "biu" or want.dtype.itemsize == 8 and want.dtype.kind != "f":
        return most, text if wrong else ""
    if want.dtype.itemsize >= 4:
        return most, text if most > 1e-5 * largest(b) else ""
    # Now and then a sum is rounded to the other side: to the neighbour, and seldom.
    digits = {"float16": 11, "bfloat16": 8, "float8_e4m3fn": 4, "float8_e5m2": 3}[want.dtype.name]
    step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(b), 2.0**-126))) - digits + 1)
    floor = 1e-5 * largest(b)
    return most, text if np.any(off > 2 * step + floor) or wrong > 2 + 0.02 * off.size else ""


def state_of(op: Op) -> str:
    match = re.search(r'state = @(?:"([^"]*)"|([^>,}]*))', op.lines[0])
    return match[1] or match[2]


def check(build, model, flags, batch, folder, cudnn=True, tamper=lambda text: text):
    """(values compared, largest relative distance, problems) of the first step, and of the one behind the first that moved the
    parameters. `tamper` changes the module that is compiled."""
    folder, opt = pathlib.Path(folder), build / "bin" / "mpt-opt"
    flags = [*flags, "--optimizer=sgd,lr=0.01,momentum=0.9", "--target=cuda", "--arch=host", "--quiet"]
    folder.mkdir()
    words(opt, model, *flags, "-o", folder / "plain")
    words(opt, model, *flags, "--to=fusion", "--emit=mlir", "-o", folder / "fusion.mlir")
    words(opt, folder / "fusion.mlir", "--mlir-print-op-generic", "-o", folder / "generic.mlir")
    step = Step.read((folder / "generic.mlir").read_text())
    roots = step.roots()
    written = {name_of(op.operands[0]): state_of(op) for op in step.ops if op.name == "train.write"}
    seen = [(value, type_, name_of(value)) for op in roots for value, type_ in zip(op.results, op.types)]
    (folder / "states.json").write_text(json.dumps({name: written[name] for _, _, name in seen if name in written}))
    (folder / "seen.mlir").write_text(tamper(step.with_outputs([what for what in seen if what[2] not in written])))
    words(opt, folder / "seen.mlir", "--from=library", "--target=cuda", "--arch=host", "--quiet", "-o", folder / "seen")
    np.savez(folder / "batch.npz", **batch)
    environment = cuda_steps.environment(build, cudnn)
    problems, distances = [], []
    words(sys.executable, __file__, folder / "plain", *(folder / name for name in ("state0.safetensors", "batch.npz", "state1.safetensors")),
          env=environment)
    for n in (0, 1):
        said = words(sys.executable, __file__, folder / "seen", *(folder / name for name in (
            f"state{n}.safetensors", "batch.npz", f"inputs{n}.safetensors", f"values{n}.safetensors", f"after{n}.safetensors", "states.json")),
            env=environment)
        found = compare(build, step, roots, folder, n)
        distances += [distance for distance, _ in found.values()]
        problems += [*filter(None, said.splitlines()), *(text for _, text in found.values() if text)]
    return len(distances), max(distances, default=0), problems


def main(library, state, *rest):
    from mpt_run import read_tensors, write_tensors
    from standin import standin, trainer as make_trainer
    with make_trainer(library) as trainer:
        batch, *rest = rest
        known = trainer.inputs()
        feeds = {name: value for name, value in np.load(batch).items() if name in known}
        if len(rest) == 1:
            trainer.save(state)
            for _ in range(cuda_steps.MOST):
                if not trainer.step(feeds).skipped:
                    break
            trainer.save(rest[0])
            return
        inputs, values, after, states = rest
        trainer.load(state)
        found = {name: np.array(value) for name, value in trainer.run("step", feeds).items()}
        trainer.save(after)
    new = read_tensors(after)
    found.update({name: new[state] for name, state in json.loads(pathlib.Path(states).read_text()).items()})
    rate = {} if "learning_rate" not in known else {"learning_rate": np.array(0.01, np.float32)}
    write_tensors(inputs, {**rate, **feeds, **{name: value for name, value in found.items() if name.startswith("value")}})
    write_tensors(values, found)
    print(standin().standin_violations().decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
