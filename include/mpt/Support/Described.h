// SPDX-License-Identifier: Apache-2.0
// A name that users may give, with a line about it.
#ifndef MPT_SUPPORT_DESCRIBED_H
#define MPT_SUPPORT_DESCRIBED_H

#include "llvm/ADT/StringRef.h"
#include <string>
#include <vector>

namespace mpt {

struct Described {
  llvm::StringRef name;
  std::string text;
};

} // namespace mpt

#endif // MPT_SUPPORT_DESCRIBED_H
