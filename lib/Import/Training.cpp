// SPDX-License-Identifier: Apache-2.0
// Operators of ai.onnx.preview.training: requests for gradients, and optimizers over groups of tensors.
#include "Training.h"

#include "Binder.h"

#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Dialect/Train/RequestOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

/// `y` computed anew from `points` in place of `from`, at the end of the block.
static Value recompute(Binder &b, Value y, ArrayRef<Value> from, ArrayRef<Value> points) {
  IRMapping mapping;
  for (auto [value, point] : llvm::zip_equal(from, points))
    mapping.map(value, point);
  if (mapping.contains(y))
    return mapping.lookup(y);
  // Ops that y needs and a changed operand reaches.
  SetVector<Operation *> slice;
  SmallVector<Value> work{y};
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || mapping.contains(value) || !slice.insert(op))
      continue;
    llvm::append_range(work, op->getOperands());
  }
  SmallVector<Operation *> order(slice.begin(), slice.end());
  llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : order)
    if (llvm::any_of(op->getOperands(), [&](Value operand) { return mapping.contains(operand); }))
      b.builder.clone(*op, mapping);
  return mapping.lookupOrDefault(y);
}

static size_t listSize(Binder &b, StringRef name) {
  auto list = dyn_cast_or_null<ArrayAttr>(b.attr(name));
  return list ? list.size() : 0;
}

/// Operands are y, xs and zs, and points for xs and zs where they are others; see proto::takeGradientOperands().
static LogicalResult importGradient(Binder &b) {
  b.ignore({"y"}); // an operand by now
  size_t xs = listSize(b, "xs"), named = xs + listSize(b, "zs"), count = b.operandCount();
  if (xs == 0 || (count != 1 + named && count != 1 + 2 * named))
    return b.fail() << "expected a tensor for each name in xs and zs, got " << count << " operands";
  if (failed(b.need(static_cast<unsigned>(count))))
    return failure();
  SmallVector<Value> variables, points;
  for (size_t i = 1; i < count; ++i)
    (i <= named ? variables : points).push_back(b.in(static_cast<unsigned>(i)));
  Value y = b.in(0);
  if (!isa<FloatType>(tensorType(y).getElementType()))
    return b.fail() << "expected y to be of floats, got " << y.getType();
  if (!points.empty()) {
    if (ValueRange(points).getTypes() != ValueRange(variables).getTypes())
      return b.fail() << "expected points of the types of the tensors in xs and zs";
    y = recompute(b, y, variables, points);
    variables = points;
  }
  ArrayRef<Value> all = variables;
  for (Value value : all.take_front(xs)) {
    if (!isa<FloatType>(tensorType(value).getElementType()))
      return b.fail() << "expected floats to differentiate with respect to, got " << value.getType();
    if (value.getDefiningOp<ConstantOp>())
      return b.fail() << "expected inputs, initializers or what is computed in xs, got a constant";
  }
  SmallVector<Value> held;
  llvm::copy_if(all.drop_front(xs), std::back_inserter(held), [](Value value) {
    return value && isa<FloatType>(tensorType(value).getElementType()) && !value.getDefiningOp<ConstantOp>();
  });
  ValueRange derived = all.take_front(xs);
  auto request = train::DeriveOp::create(b.builder, b.loc, derived.getTypes(), y, derived, held);
  for (unsigned i = 0; i < b.resultCount() && i < xs; ++i)
    if (failed(b.set(i, request.getGradients()[i])))
      return failure();
  return success();
}

namespace {

/// Operands of a standard optimizer: R, T, then each kind of tensor for all parameters.
struct Group {
  Value rate, step; ///< scalars, step in i64
  unsigned count = 0;
};

/// `kinds` tensors a parameter: X, G and states.
FailureOr<Group> readGroup(Binder &b, unsigned kinds) {
  unsigned operands = b.operandCount();
  if (operands < 2 + kinds || (operands - 2) % kinds != 0)
    return b.fail() << "expected R, T and " << kinds << " tensors for each parameter, got " << operands << " operands";
  if (failed(b.need(operands)))
    return failure();
  Group group;
  group.count = (operands - 2) / kinds;
  for (unsigned i = 0; i < 2; ++i)
    if (tensorType(b.in(i)).getNumElements() != 1 || isa<FloatType>(b.element(i)) != (i == 0))
      return b.fail() << "expected one " << (i == 0 ? "float as R" : "integer as T") << ", got " << b.in(i).getType();
  for (unsigned i = 2; i < operands; ++i) {
    Value parameter = b.in(2 + (i - 2) % group.count);
    if (!isa<FloatType>(b.element(i)) || tensorType(b.in(i)).getShape() != tensorType(parameter).getShape())
      return b.fail() << "expected floats of the parameter's shape, " << parameter.getType() << ", got "
                      << b.in(i).getType();
  }
  group.rate = b.reshape(b.in(0), {});
  group.step = b.cast(b.reshape(b.in(1), {}), b.builder.getI64Type());
  return group;
}

/// Sets the results of parameter `i`: the new parameter, then its new states.
LogicalResult setGroup(Binder &b, const Group &group, unsigned i, ResultRange values) {
  for (auto [kind, value] : llvm::enumerate(values))
    if (failed(b.set(i + static_cast<unsigned>(kind) * group.count, value)))
      return failure();
  return success();
}

} // namespace

static LogicalResult importAdam(Binder &b) {
  FailureOr<Group> group = readGroup(b, 4);
  if (failed(group))
    return failure();
  for (unsigned i = 0, n = group->count; i < n; ++i) {
    auto update =
        AdamHatOp::create(b.builder, b.loc, b.in(2 + i), b.in(2 + n + i), group->rate, group->step, b.in(2 + 2 * n + i),
                          b.in(2 + 3 * n + i), b.f64(b.floatAttr("alpha", 0.9)), b.f64(b.floatAttr("beta", 0.999)),
                          b.f64(b.floatAttr("epsilon", 1e-6)), b.f64(b.floatAttr("norm_coefficient", 0)),
                          b.f64(b.floatAttr("norm_coefficient_post", 0)), b.f64(0));
    if (failed(setGroup(b, *group, i, update->getResults())))
      return failure();
  }
  return success();
}

static LogicalResult importMomentum(Binder &b) {
  FailureOr<Group> group = readGroup(b, 3);
  if (failed(group))
    return failure();
  StringRef mode = b.stringAttr("mode", "");
  if (mode != "standard" && mode != "nesterov")
    return b.fail() << "expected mode standard or nesterov, got '" << mode << "'";
  for (unsigned i = 0, n = group->count; i < n; ++i) {
    auto update =
        MomentumOp::create(b.builder, b.loc, b.in(2 + i), b.in(2 + n + i), group->rate, group->step,
                           b.in(2 + 2 * n + i), b.f64(b.floatAttr("alpha", 0)), b.f64(b.floatAttr("beta", 1)),
                           b.builder.getBoolAttr(mode == "nesterov"), b.f64(b.floatAttr("norm_coefficient", 0)));
    if (failed(setGroup(b, *group, i, update->getResults())))
      return failure();
  }
  return success();
}

static LogicalResult importAdagrad(Binder &b) {
  FailureOr<Group> group = readGroup(b, 3);
  if (failed(group))
    return failure();
  // Core counts steps from 1, ONNX from 0.
  Value step = b.add(group->step, b.scalar(b.builder.getI64Type(), 1));
  for (unsigned i = 0, n = group->count; i < n; ++i) {
    auto update = AdagradOp::create(b.builder, b.loc, b.in(2 + i), b.in(2 + n + i), group->rate, step,
                                    b.in(2 + 2 * n + i), b.f64(b.floatAttr("decay_factor", 0)),
                                    b.f64(b.floatAttr("epsilon", 1e-6)), b.f64(b.floatAttr("norm_coefficient", 0)));
    if (failed(setGroup(b, *group, i, update->getResults())))
      return failure();
  }
  return success();
}

/// Integers and flags have no gradients to stop.
static LogicalResult importStopGradient(Binder &b) {
  if (!b.isFloat(0))
    return b.done(b.in(0));
  auto op = CustomGradientOp::create(b.builder, b.loc, ValueRange{b.in(0)}, ValueRange(), ValueRange(), ValueRange());
  return b.done(op.getResult(0));
}

static LogicalResult importCotangent(Binder &b) { return b.done(b.make<CotangentOp>(b.in(0))); }

/// Operands: a value and then a cotangent for each result; inputs, and then as many gradients.
static LogicalResult importCustomGradient(Binder &b) {
  unsigned values = b.resultCount(), count = b.operandCount();
  if (count < 2 * values || count % 2)
    return b.fail() << "expected a value and a cotangent for each of " << values
                    << " results, then inputs and as many gradients, got " << count << " operands";
  if (failed(b.needFloat(count, 0)))
    return failure();
  SmallVector<Value> operands;
  for (unsigned i = 0; i < count; ++i)
    operands.push_back(b.in(i));
  ArrayRef<Value> all(operands);
  size_t inputs = count / 2 - values;
  ArrayRef<Value> cotangents = all.slice(values, values);
  for (auto [value, cotangent] : llvm::zip_equal(all.take_front(values), cotangents))
    if (value.getType() != cotangent.getType())
      return b.fail() << "expected a cotangent of type " << value.getType() << ", got " << cotangent.getType();
  for (auto [input, gradient] : llvm::zip_equal(all.slice(2 * values, inputs), all.take_back(inputs)))
    if (tensorType(input).getShape() != tensorType(gradient).getShape())
      return b.fail() << "expected a gradient of the shape of " << input.getType() << ", got " << gradient.getType();
  auto op = CustomGradientOp::create(b.builder, b.loc, all.take_front(values), cotangents,
                                     all.slice(2 * values, inputs), all.take_back(inputs));
  for (unsigned i = 0; i < values; ++i)
    if (failed(b.set(i, op.getResult(i))))
      return failure();
  return success();
}

void mpt::addTrainingRules(RuleTable &t) {
  constexpr StringLiteral domain = "ai.onnx.preview.training";
  t.onDomain(domain, "Gradient", importGradient, NumericClass::Pinned);
  t.onDomain(domain, "Adam", importAdam, NumericClass::Pinned);
  t.onDomain(domain, "Adagrad", importAdagrad, NumericClass::Pinned);
  t.onDomain(domain, "Momentum", importMomentum, NumericClass::Pinned);
  // Gradients that a model states itself (docs/onnx.md).
  t.onDomain("mpt", "StopGradient", takes(1, importStopGradient), NumericClass::Movement);
  t.onDomain("mpt", "Cotangent", takesFloats(1, 0, importCotangent), NumericClass::Movement);
  t.onDomain("mpt", "CustomGradient", importCustomGradient, NumericClass::Movement);
}
