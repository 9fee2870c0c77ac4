# SPDX-License-Identifier: Apache-2.0
"""Limits of the machine: GEMMs and memory traffic, measured; and the work of a model's step.

  limits.py [--threads N]     prints GFLOP/s of FP32 and 16-bit GEMMs and GB/s

The rate of GEMMs is the best of PyTorch's and the runtime's own on 1024 x 1024 x 1024, whose operands fit the caches. The
bandwidth is measured by an in-place vector sum over buffers far larger than the caches. Both are the best of several tries.
"""
from __future__ import annotations

import argparse
import ctypes
import time
from dataclasses import dataclass

EXTENT = 1024
FLOAT32, FLOAT16, BFLOAT16 = 1, 10, 16  # mpt_dtype


@dataclass
class Limits:
    f32: float          # FLOP/s of FP32 GEMMs
    narrow: float       # FLOP/s of the fastest GEMMs of FP32, FP16 or BF16 operands
    bandwidth: float    # bytes/s

    def seconds(self, work: "Work", precision: str) -> float:
        """The least time of a step: its GEMMs at the rate of GEMMs, then its optimizer at the bandwidth."""
        return work.flops / (self.f32 if precision == "fp32" else self.narrow) + work.optimizer_bytes / self.bandwidth


@dataclass
class Work:
    flops: float            # of GEMMs and convolutions, forward and backward
    optimizer_bytes: float  # FP32 parameters, gradients and optimizer state, read and written once


class GemmDesc(ctypes.Structure):
    """mpt_gemm_desc of mpt-c/abi.h."""
    _fields_ = [(name, ctypes.c_int64) for name in
                "m n k batch0 batch1 a_type b_type d_type bias_type a_batch0 a_batch1 a_row a_col b_batch0 b_batch1 b_row b_col "
                "d_batch0 d_batch1 d_row d_col flags".split()] + [("alpha", ctypes.c_double)]


def best(run, tries: int = 12) -> float:
    run()
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def own_product(dtype: int):
    """One GEMM by the runtime that emitted libraries call."""
    import torch
    from mpt._native import DEFAULT_RUNTIME, runtime
    kind = {FLOAT32: torch.float32, FLOAT16: torch.float16, BFLOAT16: torch.bfloat16}[dtype]
    a, b, d = (torch.randn(EXTENT, EXTENT).to(kind) for _ in range(3))
    desc = GemmDesc(m=EXTENT, n=EXTENT, k=EXTENT, batch0=1, batch1=1, a_type=dtype, b_type=dtype, d_type=dtype, a_row=EXTENT,
                    a_col=1, b_row=EXTENT, b_col=1, d_row=EXTENT, d_col=1, alpha=1.0)
    call = runtime(DEFAULT_RUNTIME, "cpu").library.mpt_rt_gemm
    call.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(GemmDesc)] + [ctypes.c_void_p] * 4
    call.restype = ctypes.c_int32

    def run():
        if call(None, 0, ctypes.byref(desc), a.data_ptr(), b.data_ptr(), None, d.data_ptr()):
            raise RuntimeError("the runtime has no such product")

    return run


def measure(threads: int) -> Limits:
    """Needs OMP_NUM_THREADS=threads in the environment: the runtime asks OpenMP."""
    import torch
    torch.set_num_threads(threads)
    flops = 2.0 * EXTENT**3

    def torch_product(kind, extent=EXTENT):
        a, b = torch.randn(extent, extent).to(kind), torch.randn(extent, extent).to(kind)
        return lambda: torch.mm(a, b)

    f32 = flops / min(best(torch_product(torch.float32)), best(own_product(FLOAT32)))
    narrow = flops / min(best(own_product(FLOAT16)), best(own_product(BFLOAT16)))
    # Processors without BF16 instructions take seconds for such a GEMM in PyTorch: a small one tells.
    if 2.0 * 256**3 / best(torch_product(torch.bfloat16, 256), 1) > f32 / 2:
        narrow = max(narrow, flops / best(torch_product(torch.bfloat16)))
    a, b = torch.ones(1 << 25), torch.ones(1 << 25)
    bandwidth = 3.0 * 4 * (1 << 25) / best(lambda: a.add_(b), 6)
    return Limits(f32, max(f32, narrow), bandwidth)


def work_of(name: str) -> Work:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode
    import models
    case = models.build(name)
    parameters = sum(p.numel() for p in case.module.parameters())
    counter = FlopCounterMode(display=False)
    # The counter knows GEMMs, not attention nor the recurrent layers that oneDNN computes whole.
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False), counter:
        case.module.train()(*case.inputs.values()).backward()
    # Parameter and optimizer state read and written, gradient read.
    return Work(float(counter.get_total_flops()), parameters * (28.0 if case.optimizer.startswith("adam") else 20.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    limits = measure(parser.parse_args().threads)
    print(f"GEMMs: {limits.f32 * 1e-9:.0f} GFLOP/s in FP32, {limits.narrow * 1e-9:.0f} at best; "
          f"memory: {limits.bandwidth * 1e-9:.1f} GB/s")


if __name__ == "__main__":
    main()
