// SPDX-License-Identifier: Apache-2.0
// For messages about unknown names: the names that were probably meant.
#ifndef MPT_SUPPORT_NEARNAMES_H
#define MPT_SUPPORT_NEARNAMES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace mpt {

/// Up to `most` of `names` that differ from `name` by little or hold it, the likest first. A regular expression is like
/// the text that one of its alternatives spells.
llvm::SmallVector<llvm::StringRef> nearNames(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> names,
                                             size_t most = 4);

/// The end of a message about `name`: "near it: 'a', 'b'", or where none is near, the names that there are.
std::string whatThereIs(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> names);

} // namespace mpt

#endif // MPT_SUPPORT_NEARNAMES_H
