#!python
# SPDX-License-Identifier: Apache-2.0
"""Becomes the program of its own name in the package, which is not imported for that."""
import importlib.util
import os
import sys

folder = os.path.dirname(importlib.util.find_spec("mpt").origin)
os.execv(os.path.join(folder, "bin", os.path.basename(sys.argv[0])), sys.argv)
