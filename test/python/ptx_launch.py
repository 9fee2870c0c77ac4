# SPDX-License-Identifier: Apache-2.0
"""Launches of interpreted kernels, block by block (ptx_machine.py)."""
import numpy as np
from ptx_machine import Block
from ptx_memory import Memory
from ptx_text import Kernel


def execute(kernel: Kernel, memory: Memory, arguments, grid, block, number, dynamic=0, observe=lambda op: None) -> int:
    """Runs one block of a launch; the number of instructions. Raises Fault."""
    run = Block(kernel, memory, arguments, block, grid, number, dynamic, observe)
    with np.errstate(all="ignore"):
        run.run()
    return run.executed


def launch(kernel: Kernel, memory: Memory, arguments, grid, block, dynamic=0, order="forward", observe=lambda op: None) -> int:
    """Runs all blocks, in the order that `order` says (forward, reversed, shuffled); the number of instructions. Raises Fault."""
    numbers = list(range(int(np.prod(grid))))
    if order == "reversed":
        numbers.reverse()
    elif order == "shuffled":
        np.random.default_rng(0).shuffle(numbers)
    memory.begin()
    return sum(execute(kernel, memory, arguments, grid, block, number, dynamic, observe) for number in numbers)
