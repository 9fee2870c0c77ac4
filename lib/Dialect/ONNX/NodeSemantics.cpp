// SPDX-License-Identifier: Apache-2.0
// The numeric class of a node, from its operator's entry.
#include "mpt/Dialect/ONNX/OperatorClasses.h"

using namespace mpt;
using namespace mpt::onnx;

NumericClass NodeOp::getNumericClass() {
  auto *classes = (*this)->getDialect()->getRegisteredInterface<OperatorClasses>();
  return (classes ? classes->classOf(*this) : std::nullopt).value_or(NumericClass::Pinned);
}
