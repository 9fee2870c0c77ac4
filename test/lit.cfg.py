# SPDX-License-Identifier: Apache-2.0
# lit configuration of the whole test folder; test/lit.site.cfg.py in the build folder loads it.
import os
import platform

import lit.formats

config.name = "mpt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".onnxtxt"]
config.excludes = ["Inputs", "cases", "CMakeLists.txt", "capi", "cts", "e2e", "fuzz", "mutants", "python", "unit"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.mpt_build, "test")

bin_dir = os.path.join(config.mpt_build, "bin")
python = os.path.join(config.mpt_source, ".venv", "bin", "python")
ours = ("mpt-opt", "mpt-opt-toy", "mpt-run", "mpt-translate", "mpt-reduce", "mpt-lsp-server")
tools = {name: os.path.join(bin_dir, name) for name in ours}
tools.update({name: os.path.join(config.llvm_tools, name) for name in ("FileCheck", "not", "count", "split-file")})
tools["FileCheck"] += " --enable-var-scope --allow-unused-prefixes=false"

# A tool's name is replaced only as a word of its own, never inside a path or a file name.
for name, path in tools.items():
    config.substitutions.append((rf"(?<![\w./-]){name}(?![\w./-])", path))
config.substitutions += [("%python", python), ("%mpt_source", config.mpt_source), ("%mpt_build", config.mpt_build)]

config.environment["PATH"] = os.pathsep.join([bin_dir, os.path.dirname(python), config.llvm_tools, os.environ["PATH"]])
config.environment["PYTHONPATH"] = os.path.join(config.mpt_source, "python")
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
config.environment["MPT_BUILD"] = config.mpt_build
for name in ("HOME", "MPT_DEPS_DIR", "OMP_NUM_THREADS"):
    if name in os.environ:
        config.environment[name] = os.environ[name]


def cpu_flags():
    try:
        with open("/proc/cpuinfo") as info:
            return set(next((line for line in info if line.startswith("flags")), "").split())
    except OSError:
        return set()


config.available_features.add(platform.machine())
for feature, flag in (("avx2", "avx2"), ("avx512", "avx512f"), ("avx512-bf16", "avx512_bf16"), ("avx512-fp16", "avx512_fp16")):
    if flag in cpu_flags():
        config.available_features.add(feature)
for name in config.sanitizers.split(","):
    if name:
        config.available_features.add(name)
for name in ours:
    if os.path.exists(os.path.join(bin_dir, name)):
        config.available_features.add(name)
