#!python
# SPDX-License-Identifier: Apache-2.0
"""Becomes mpt-opt of the package, which is not imported for that, under its own name: mpt-opt or mpt-run."""
import importlib.util
import os
import sys

folder = os.path.dirname(importlib.util.find_spec("mpt").origin)
os.execv(os.path.join(folder, "bin", "mpt-opt"), sys.argv)
