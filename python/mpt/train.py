# SPDX-License-Identifier: Apache-2.0
"""Compiles a model and trains it on a folder of samples: mpt.compile, mpt.fit and mpt.report as one command.

    python -m mpt.train MODEL.onnx --samples=DIR --epochs=12 --run=RUN --loss=softmax-cross-entropy --policy=amp-f16

Samples are safetensors files, each with a tensor an input, whose rows are samples. Flags that are not listed are mpt-opt's; the library is
RUN/library. A command that is given again goes on where it was.
"""
import argparse
import pathlib
import sys

from . import _compile
from ._errors import CompileError
from ._fit import fit
from ._native import Error
from ._report import report
from ._trainer import Trainer


def main(words=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mpt.train", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--samples", required=True, metavar="DIR", help="folder of safetensors files, or one of them")
    parser.add_argument("--epochs", required=True, type=int)
    parser.add_argument("--run", required=True, metavar="DIR", help="folder of the run: library, log, checkpoints, report")
    parser.add_argument("--validation", metavar="DIR", help="samples for the loss after each epoch")
    parser.add_argument("--patience", type=int, help="end after so many epochs without a smaller loss")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints that stay (3)")
    parser.add_argument("--order", type=int, default=0, help="seed of the order of samples (0)")
    parser.add_argument("--threads", type=int, default=0, help="on the CPU (all)")
    parser.add_argument("--profile", action="store_true", help="times of runtime calls, in RUN/profile.txt and the report")
    parser.add_argument("--anew", action="store_true", help="begin anew where RUN has checkpoints")
    parser.add_argument("--save-onnx", metavar="FILE", help="where the trained model goes, with the best values of a validation")
    arguments, compiler_words = parser.parse_known_args(words)
    run = pathlib.Path(arguments.run)
    library = run / "library"
    try:
        run.mkdir(parents=True, exist_ok=True)
        reports = {kind: run / f"{kind}.json" for kind in ("precision", "memory")}
        own = [f"--report={kind}={path}" for kind, path in reports.items()]
        _compile.run([*compiler_words, *own], library)
        options = {"profile": 1} if arguments.profile else None
        fit(Trainer(library, threads=arguments.threads, options=options), arguments.samples, epochs=arguments.epochs, run=run, validation=arguments.validation,
            patience=arguments.patience, keep=arguments.keep, seed=arguments.order, resume=not arguments.anew, save_onnx=arguments.save_onnx)
        print(f"mpt: report in {report(run, compiler=reports.values())}", file=sys.stderr)
    except (CompileError, Error, OSError, TypeError, ValueError) as problem:
        print(f"mpt.train: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
