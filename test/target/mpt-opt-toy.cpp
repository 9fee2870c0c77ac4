// SPDX-License-Identifier: Apache-2.0
// mpt-opt with the tests' targets: a target costs one line outside its own folders, which registers it.
#include "mpt/Driver/Compile.h"
#include "mpt/Driver/Registration.h"

namespace mpt::toy {
std::unique_ptr<target::Target> createTarget();
}
namespace mpt::gpuoncpu {
std::unique_ptr<target::Target> createTarget();
}

int main(int argc, char **argv) {
  mpt::registerTargets();
  mpt::target::registerTarget(mpt::toy::createTarget);
  mpt::target::registerTarget(mpt::gpuoncpu::createTarget);
  return mpt::compilerMain(llvm::SmallVector<llvm::StringRef>(argv + 1, argv + argc));
}
