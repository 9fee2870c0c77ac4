# SPDX-License-Identifier: Apache-2.0
"""The fake driver's kernels of PTX, run by the interpreter (ptx_machine.py) in the fake driver's memory."""
import ctypes

import numpy as np
import ptx_launch
import ptx_machine
import ptx_memory
import ptx_text

DEVICE, MOST = 1 << 62, 1 << 22  # the bit of device addresses; bytes of an allocation that a kernel is shown
I64, U64 = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_uint64)


class Executor:
    """Runs every launch from here on, blocks in `order`. A kernel's fault is a violation that the fake driver notes."""

    def __init__(self, standin, order="forward"):
        self.standin, self.order, self.modules, self.kernels, self.instructions = standin, order, {}, set(), set()
        standin.standin_allocation.restype = ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, I64, I64, ctypes.c_int64, U64, ctypes.c_int64)
        self._callback = kind(self._execute)  # as long as this object lives
        standin.standin_executor(self._callback)

    def _allocations(self, arguments):
        found = {}
        for address in arguments:
            start = ctypes.c_uint64()
            size = self.standin.standin_allocation(ctypes.c_uint64(address), ctypes.byref(start))
            if not size:
                raise ptx_machine.Fault("an argument that is no address of device memory")
            begin, end = start.value, start.value + size
            if size > MOST:  # scratch of libraries: the MOST bytes from the argument's address on
                begin = address & ~DEVICE
                end = min(end, begin + MOST)
            found[begin] = np.frombuffer((ctypes.c_uint8 * (end - begin)).from_address(begin), np.uint8)
        return found

    def _execute(self, name, text, grid, block, shared, arguments, count):
        try:
            text = ctypes.string_at(text)  # a later module may lie at the same address
            if text not in self.modules:
                self.modules[text] = ptx_text.parse(text.decode())
            views = self._allocations(arguments[:count])
            kernel = self.modules[text][name.decode()]
            memory = ptx_memory.Memory({**views, **kernel.tables})
            ptx_launch.launch(kernel, memory, [a & ~DEVICE for a in arguments[:count]], grid[:3], block[:3], shared,
                               self.order, self.instructions.add)
            for start, view in views.items():
                ctypes.memmove(start, np.ascontiguousarray(memory.array(start)).ctypes.data, len(view))
            self.kernels.add(name.decode())
        except Exception as problem:  # a callback has nobody above it
            self.standin.standin_note_violation(f"{type(problem).__name__}: {problem}".encode())
