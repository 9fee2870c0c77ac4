// SPDX-License-Identifier: Apache-2.0
// Kinds of arithmetic, the vocabulary of the analysis of meanings.
#ifndef MPT_INTERFACES_ARITHMETIC_H
#define MPT_INTERFACES_ARITHMETIC_H

#include <cstdint>

namespace mpt {

enum class Arithmetic : uint8_t {
  Unknown,   ///< nothing is known of results
  Moves,     ///< elements of operand 0 in other places
  Chooses,   ///< elements of operands that have the result's kind of type: concat, select, max
  Converts,  ///< a cast
  Adds,      ///< sums of all operands, element by element
  Subtracts, ///< operand 0 minus operand 1
  Multiplies,
  Divides,
  Remains,     ///< the remainder of a division by operand 1
  Negates,     ///< or takes the magnitude
  Rounds,      ///< to an integer
  Clamps,      ///< operand 0, brought into a range
  Grows,       ///< of operand 0's order of magnitude: GELU, softplus
  Sums,        ///< many elements of operand 0
  Averages,    ///< many elements of operand 0
  Accumulates, ///< running sums of operand 0
  Contracts,   ///< sums of products
  Expands,     ///< exponentials and powers of operand 0
  Roots,       ///< of operand 0
  Bounds,      ///< results are of order one: softmax, norms
  Saturates,   ///< results are of order one, of infinite operands too: tanh, sigmoid, erf
  Diverges,    ///< where operand 0 is near zero: logarithms
  Inverts,     ///< one over operand 0, or over its root
  Waves,       ///< sine and cosine: operand 0 is an angle
  Tests,       ///< flags
  Finds,       ///< positions of elements that operand 0 chooses, or these elements
  Counts,      ///< positions and extents, whatever the operands hold
  Steps,       ///< from operand 0 up to operand 1, operand 2 apart
  Samples      ///< elements of operand 0 at positions that operand 1 tells
};

/// True for functions of operand 0, element by element, that are not linear and that a gate or a scale is made by.
inline bool isFunction(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::Clamps || arithmetic == Arithmetic::Grows || arithmetic == Arithmetic::Expands ||
         arithmetic == Arithmetic::Saturates;
}

} // namespace mpt

#endif // MPT_INTERFACES_ARITHMETIC_H
