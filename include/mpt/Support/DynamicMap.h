// SPDX-License-Identifier: Apache-2.0
// The dynamic 8-bit map of optimizer states (arXiv 1511.04561, 2110.02861).
#ifndef MPT_SUPPORT_DYNAMICMAP_H
#define MPT_SUPPORT_DYNAMICMAP_H

#include <array>

namespace mpt {

/// The numbers of the codes, ascending: seven decades below 1, each in twice as many parts as the one below it, with
/// both signs, or without negative values and twice as fine.
std::array<float, 256> dynamicMap(bool isSigned);
/// Entry i is the least number whose code is above i.
std::array<float, 255> dynamicBoundaries(bool isSigned);

} // namespace mpt

#endif // MPT_SUPPORT_DYNAMICMAP_H
