# SPDX-License-Identifier: Apache-2.0
"""An installed copy of the build, and programs built against it."""
import os
import shutil
import subprocess

import pytest
from conftest import ROOT, build_folder


def run(*command, **keywords) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The prefix of an installation, which has been moved after it was made."""
    if not shutil.which("cmake") or not shutil.which("ninja"):
        pytest.skip("needs cmake and ninja on the PATH")
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", build_folder(), "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moved")


def build(source, folder, prefix, *settings) -> None:
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_COMPILER=clang++-22", *settings)
    run("cmake", "--build", folder)


def without_tree(*command, cwd) -> str:
    """Runs a command that cannot see the repository: an empty folder lies over it."""
    probe = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {ROOT} && exec "$@"', "sh"]
    if subprocess.run([*probe, "true"], capture_output=True).returncode:
        pytest.skip("no right to mount a folder over the repository")
    environment = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG")}
    return run(*probe, *command, cwd=cwd, env={**environment, "PATH": "/usr/bin:/bin"})
