// SPDX-License-Identifier: Apache-2.0
// Damaged models for the fuzz target and the mutation test: bits, or fields of the message changed one by one.
#ifndef MPT_TEST_FUZZ_MUTATE_H
#define MPT_TEST_FUZZ_MUTATE_H

#include <cstdint>
#include <string>

namespace mpt::fuzz {

/// Changes a binary model in one to four places: numbers become extreme, names those of other values, operators others,
/// fields are added, doubled, dropped or swapped. Now and then, and for bytes that do not parse, bits flip and the end
/// goes instead. The same seed gives the same model.
std::string mutateModel(const std::string &bytes, uint64_t seed);

} // namespace mpt::fuzz

#endif // MPT_TEST_FUZZ_MUTATE_H
