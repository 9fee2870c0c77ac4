// SPDX-License-Identifier: Apache-2.0
// Whether this processor has the features that a library's code needs.
#ifndef MPT_RUNTIME_CORE_FEATURES_H
#define MPT_RUNTIME_CORE_FEATURES_H

#include <string>

namespace mpt::rt {

/// The first of a comma-separated list of LLVM feature names ("avx2,fma,f16c"; a leading + is allowed) that this
/// processor lacks; "" when it has them all.
std::string missingFeature(const char *features);

} // namespace mpt::rt

#endif
