// SPDX-License-Identifier: Apache-2.0
// mpt-opt with one more target: what a target costs outside its own two folders is the line that registers it.
#include "mpt/Driver/Compile.h"
#include "mpt/Driver/Registration.h"

namespace mpt::toy {
std::unique_ptr<target::Target> createTarget();
}

int main(int argc, char **argv) {
  mpt::registerTargets();
  mpt::target::registerTarget(mpt::toy::createTarget);
  return mpt::compilerMain(llvm::SmallVector<llvm::StringRef>(argv + 1, argv + argc));
}
