#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Options are options: compiler, runtime and Python package read no environment variable but the system's own, and one file
the variables by which launchers tell a process its rank."""
import re

import repo

SYSTEM = {"XDG_CACHE_HOME", "HOME"}  # where a cache lies unless an option says so
LAUNCHER = "lib/Runtime/world/Launcher.cpp"
BY_LAUNCHERS = {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "RANK", "SLURM_JOB_ID",
                "SLURM_LOCALID", "SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "TORCHELASTIC_RESTART_COUNT",
                "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "WORLD_SIZE"}
READS = re.compile(r"""\b(?:secure_)?getenv\s*\(\s*(?:"(\w*)")?|\bos\.environ\b(?:\.get\(\s*"(\w*)"|\[\s*"(\w*)")?""")


def main():
    problems, count = [], 0
    for path in repo.files("lib", "passes", "tools", "include", "python/mpt", ends=(".cpp", ".c", ".h", ".hpp", ".py")):
        count += 1
        allowed = BY_LAUNCHERS if path == LAUNCHER else SYSTEM
        for number, line in enumerate(repo.text(path).splitlines(), 1):
            for match in READS.finditer(line):
                name = next(filter(None, match.groups()), "")
                if name not in allowed:
                    problems.append(f"{path}:{number}: reads the environment ({name or 'some variable'}): make it a flag, a pass "
                                    "option or a trainer's option")
    repo.finish("check_environment", problems, f"{count} files")


if __name__ == "__main__":
    main()
