#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds for fuzz_import: make_seeds.py OUT writes the models of the folder seeds as binary files."""
import pathlib
import sys

from onnx import parser


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for text in sorted((pathlib.Path(__file__).parent / "seeds").glob("*.onnxtxt")):
        (out / (text.stem + ".onnx")).write_bytes(parser.parse_model(text.read_text()).SerializeToString())


if __name__ == "__main__":
    main()
