// SPDX-License-Identifier: Apache-2.0
// Check ops: a failed one reports the place, the actual and the expected value; the run goes on and fails at its end.
#include "CheckRules.h"

#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Evaluation/Rule.h"

using namespace mlir;
using namespace mpt;

namespace {

std::string show(const Tensor &tensor, int64_t i) {
  if (tensor.isFloat())
    return llvm::formatv("{0:e9} (0x{1:x-})", tensor.reals()[i], tensor.bits(i)).str();
  return std::to_string(tensor.ints()[i]);
}

/// Position `linear` of `shape` as [i, j, ...].
std::string indexOf(ArrayRef<int64_t> shape, int64_t linear) {
  SmallVector<int64_t> index(shape.size());
  for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
    index[d] = linear % shape[d];
    linear /= shape[d];
  }
  return llvm::formatv("[{0:$[, ]}]", llvm::make_range(index.begin(), index.end())).str();
}

template <typename Op, typename Fn> LogicalResult checkAll(Op op, InterpreterFrame &frame, Fn agrees) {
  const Tensor &actual = frame.get(op.getActual()), &expected = frame.get(op.getExpected());
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < actual.size(); ++i)
    if (!agrees(actual, expected, i)) {
      first = first < 0 ? i : first;
      ++wrong;
    }
  if (wrong) {
    op.emitOpError() << "expected " << show(expected, first) << ", got " << show(actual, first) << " at "
                     << indexOf(actual.shape(), first) << " (" << wrong << " of " << actual.size()
                     << " elements differ)";
    ++frame.state().failedChecks;
  }
  return success();
}

LogicalResult interpretEqual(check::EqualOp op, InterpreterFrame &frame) {
  return checkAll(op, frame, [](const Tensor &a, const Tensor &e, int64_t i) { return a.bits(i) == e.bits(i); });
}

LogicalResult interpretClose(check::CloseOp op, InterpreterFrame &frame) {
  double atol = op.getAtol().convertToDouble(), rtol = op.getRtol().convertToDouble();
  return checkAll(op, frame, [&](const Tensor &a, const Tensor &e, int64_t i) {
    double actual = a.number(i), expected = e.number(i);
    if (std::isnan(actual) || std::isnan(expected))
      return std::isnan(actual) && std::isnan(expected);
    return actual == expected || std::fabs(actual - expected) <= atol + rtol * std::fabs(expected);
  });
}

/// Position of an encoding on the line of all values: neighbours differ by one, both zeros are 0.
int64_t ordinal(uint64_t bits, unsigned width) {
  uint64_t sign = UINT64_C(1) << (width - 1);
  return bits & sign ? -static_cast<int64_t>(bits & (sign - 1)) : static_cast<int64_t>(bits);
}

LogicalResult interpretULPClose(check::ULPCloseOp op, InterpreterFrame &frame) {
  auto ulps = static_cast<int64_t>(op.getUlps());
  return checkAll(op, frame, [&](const Tensor &a, const Tensor &e, int64_t i) {
    if (!a.isFloat())
      return std::abs(a.ints()[i] - e.ints()[i]) <= ulps;
    if (std::isnan(a.reals()[i]) || std::isnan(e.reals()[i]))
      return std::isnan(a.reals()[i]) && std::isnan(e.reals()[i]);
    unsigned width = a.getElementType().getIntOrFloatBitWidth();
    int64_t distance = ordinal(a.bits(i), width) - ordinal(e.bits(i), width);
    return std::abs(distance) <= ulps;
  });
}

} // namespace

void mpt::attachCheckRules(MLIRContext *context) {
  attachRule<check::EqualOp, interpretEqual>(context);
  attachRule<check::CloseOp, interpretClose>(context);
  attachRule<check::ULPCloseOp, interpretULPClose>(context);
}
