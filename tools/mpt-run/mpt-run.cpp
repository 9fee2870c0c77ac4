// SPDX-License-Identifier: Apache-2.0
// mpt-run: runs steps in the reference interpreter, and reports its findings.
#include "mpt/Driver/RunCommand.h"

int main(int argc, char **argv) { return mpt::runMain(llvm::SmallVector<llvm::StringRef>(argv + 1, argv + argc)); }
