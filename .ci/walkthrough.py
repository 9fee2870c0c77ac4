# SPDX-License-Identifier: Apache-2.0
"""The page that follows one small model through the IR of every phase, made by running mpt-opt.

The phases are the ones that mpt-opt names. A phase without a text here still gets its section, with its IR.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

import repo

MODEL = "test/walkthrough/Inputs/digits.onnxtxt"
FLAGS = ["--loss=mse", "--optimizer=sgd,lr=0.1", "--policy=amp-f16"]
# Kernels depend on the processor: the page is for one that no machine chooses.
PROCESSOR = "--mcpu=x86-64-v3"
INTRODUCTION = f"""# One model through the phases

For first-time readers: how one small model becomes a training step ([training](#training)), gets its types
([precision](#precision)) and its buffers ([buffers](#buffers)). `.ci/check_docs.py --fix` writes this page from [{os.path.basename(MODEL)}](../../{MODEL}), so it shows today's
compiler. Each section is the output of

    mpt-opt digits.onnxtxt {' '.join(FLAGS)} --to=PHASE

for one phase: the states where they change, and function `@step`. Elements of constants are left out. Why the precision phase
decided as it did stands behind each operation as a comment. [phases.md](../phases.md) describes the module after each phase in general, and
[glossary.md](../glossary.md) explains words.
"""
TEXTS = {
    "import": "Operators became core operations with static shapes. `Gemm` became a matrix multiplication, a broadcast and an addition. "
              "Initializers that are trained became states.",
    "training": "`@forward` became `@step`: the loss, the backward pass from `train.scale_loss` on, a `train.gradient` for each "
                "parameter, and its update. (`@gradients`, `@evaluate` and `@predict`, not shown, are clones of earlier forms.)",
    "precision": "Types are decided and casts are placed. Parameters are stored in FP16 and have FP32 masters. The gradient's seed is the "
                 "loss scale; gradients are unscaled in FP32. Writes happen where all gradients are finite, and the loss scale moves.",
    "distribution": "Nothing: this step has one replica. With `--replicas` there would be `shard.all_reduce` before each `train.gradient`.",
    "fusion": "Training arithmetic became core operations: conditional writes are selects now. Everything but GEMMs is grouped into "
              "`mpt.fusion`, each of which becomes one kernel.",
    "library": "Operations that a library computes became calls with their epilogues, layouts and side results. Values are still tensors.",
    "buffers": "Tensors became buffers. Updates go into the state. Fusions became launches of kernels; two of the shortest that "
               "`@step` launches follow it, each a fusion between tensors of its buffers.",
    "kernels": "Kernels became loops; the same two follow. Launches say how far each runs.",
    "memory": "Buffers have offsets in one arena.",
}
KERNELS = 2
STATES = re.compile(r"^  train\.state\b.*$", re.M)
DECISION = re.compile(r'mpt\.precision = (?:#[\w.]+)?[{<][^{}<>]*\brule = "([^"]*)"[^{}<>]*[}>]')


def run(tool, *arguments):
    return subprocess.run([tool, *arguments], capture_output=True, text=True, cwd=repo.ROOT)


def phases(tool):
    """The phases that a run can stop after, asked of mpt-opt; the last one, which prints no module of ours, is left out."""
    message = run(tool, MODEL, "--to=?").stderr
    names = re.search(r"expected ([\w|]+) for --to", message)
    if not names:
        sys.exit(f"check_docs: expected mpt-opt to name its phases, got: {message[:500]}")
    return names[1].split("|")[:-1]


def function(text, name):
    """The text of a function of a printed module, or None."""
    match = re.search(rf"^  func\.func (?:private )?@{re.escape(name)}\(.*?^  \}}$", text, re.M | re.S)
    return match and match[0]


def tidy(text, decisions=False):
    """IR as a page shows it: elements of constants left out, decisions as comments where `decisions` asks for them."""
    lines = []
    for line in text.splitlines():
        rule = DECISION.search(line)
        line = DECISION.sub("", line)
        line = re.sub(r"\{, ", "{", re.sub(r", (?=[,}])", "", line))
        line = re.sub(r"dense<\[.{40,}?\]>(?= : tensor)", "dense<...>", line)
        line = re.sub(r" (?:attributes )?\{\}", "", line)
        line = re.sub(r"^return \s+", "return ", line)
        lines.append(line.rstrip() + (f"  // {rule[1]}" if rule and decisions else ""))
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[indent:] for line in lines)


def kernels(text, step):
    """The shortest kernels that a step launches and that have a loop, in the order of their launch."""
    names = list(dict.fromkeys(re.findall(r"rt\.launch @([\w.]+)", step)))
    bodies = [(name, function(text, name)) for name in names]
    with_loops = [(name, body) for name, body in bodies if body and "scf.for" in body]
    chosen = {name for name, _ in sorted(with_loops, key=lambda kernel: kernel[1].count("\n"))[:KERNELS]}
    return [body for name, body in with_loops if name in chosen]


def section(phase, text, before):
    """The part of the page for one phase; `before` are the states as the phase before it showed them."""
    step = function(text, "step") or function(text, "forward")
    decides = phase == "precision"
    states = tidy("\n".join(STATES.findall(text)))
    blocks = ([states] if states != before else []) + [tidy(body, decides) for body in [step, *kernels(text, step)]]
    body = "\n\n".join(blocks)
    return f"## {phase}\n\n{TEXTS.get(phase, '')}\n\n```mlir\n{body}\n```\n", states


def page():
    """The page's text, or None before mpt-opt is built."""
    tools = glob.glob(os.path.join(repo.ROOT, "build", "*", "bin", "mpt-opt"))
    if not tools:
        return None
    tool = max(tools, key=os.path.getmtime)
    parts, states = [INTRODUCTION, f"## The model\n\n```\n{repo.text(MODEL).strip()}\n```\n"], ""
    with tempfile.TemporaryDirectory() as scratch:
        for phase in phases(tool):
            output = os.path.join(scratch, "module.mlir")
            result = run(tool, MODEL, *FLAGS, PROCESSOR, f"--to={phase}", "--quiet", "-o", output)
            if result.returncode:
                sys.exit(f"check_docs: mpt-opt {MODEL} --to={phase} failed:\n{result.stderr[:2000]}")
            with open(output, encoding="utf-8") as stream:
                text, states = section(phase, stream.read(), states)
            parts.append(text)
    return "\n".join(parts)
