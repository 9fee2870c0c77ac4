// SPDX-License-Identifier: Apache-2.0
// Why a schedule does not serve a kernel.
#include "mpt/Lowering/Nest/KernelSchedule.h"

#include "mpt/Support/Refusal.h"

#define DEBUG_TYPE "lowering-emit-kernels"

using namespace mlir;
using namespace mpt;

KernelSchedule::~KernelSchedule() = default;

LogicalResult KernelSchedule::refuse(const KernelNest &kernel, const Twine &reason) const {
  return mpt::refuse(DEBUG_TYPE, kernel.fusion) << "not " << name << ": " << reason;
}
