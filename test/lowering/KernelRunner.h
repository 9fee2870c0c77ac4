// SPDX-License-Identifier: Apache-2.0
// Compiles a function of core ops as one kernel and runs it on buffers of this process.
#ifndef MPT_TEST_LOWERING_KERNELRUNNER_H
#define MPT_TEST_LOWERING_KERNELRUNNER_H

#include "mpt/Lowering/Emission/KernelTarget.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

/// Values of one tensor in row-major order; `strides` (elements) say how they lie in the kernel's buffer.
struct TestTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
  std::vector<int64_t> strides = {};

  int64_t count() const;
  double operator()(std::vector<int64_t> at) const;
};

/// The processor that runKernel emits for. Code for wider vectors than this machine's runs here too: LLVM splits them.
extern mpt::KernelTarget testTarget;

/// True: runKernel emits for a GPU and runs that in loops; PTX is made for every architecture, and assembled where
/// ptxas is found.
extern bool testDevice;
/// True: runKernel prefers the schedule of SerialSchedule.cpp to the compiler's own.
extern bool testPlanted;
/// Kernels assembled so far, and schedules that runKernel has met.
extern int assembledKernels;
extern std::set<std::string> metSchedules;

/// Wraps the body of `@f` in `text` in one fusion, emits, compiles and runs it, in `pieces` calls. Returns the results;
/// empty on failure, after printing why. `outputStrides` as for inputs, row-major when empty.
std::vector<TestTensor> runKernel(const std::string &text, const std::vector<TestTensor> &inputs,
                                  const std::vector<std::vector<int64_t>> &outputStrides = {}, int pieces = 2);

#endif // MPT_TEST_LOWERING_KERNELRUNNER_H
