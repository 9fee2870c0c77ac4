# SPDX-License-Identifier: Apache-2.0
"""Of pack.py: the compiler's calls."""
import pathlib
import shutil
import subprocess


def compile(opt, model, out, *flags):
    """Compiles a model; the last line of its errors, or None."""
    done = subprocess.run([str(word) for word in (opt, model, "--quiet", "-o", out, *flags)], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        shutil.rmtree(out, ignore_errors=True)
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
    for pattern in ("*.h", "*.template"):  # files that nothing here is linked with or saved by
        for path in pathlib.Path(out).glob(pattern):
            path.unlink()
    return None
