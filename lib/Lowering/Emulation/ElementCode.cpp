// SPDX-License-Identifier: Apache-2.0
// Emits an elementwise op for one element, and runs the arithmetic that came out for all of them.
// Matcher: the operations of arith and math that MathBuilder and ValueBuilder emit on scalars.
#include "mpt/Lowering/Emulation/ElementCode.h"

#include "mpt/Evaluation/FloatFormat.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>
#include <functional>

using namespace mlir;
using namespace mpt;

namespace {

/// A number in a register: floats as the FP64 number that they are, integers with their sign.
union Slot {
  double real;
  int64_t whole;
};
using Slots = std::vector<Slot>;
using Step = std::function<void(Slots &)>;

/// The scalar code of one op.
class Program {
public:
  bool compile(Operation *op);
  double run(ArrayRef<double> operands);

private:
  unsigned slotOf(Value value) {
    auto [entry, fresh] = numbers.try_emplace(value, slots.size());
    if (fresh)
      slots.emplace_back();
    return entry->second;
  }
  Step stepOf(Operation &op);
  /// FP32 and FP64 arithmetic, rounded once.
  template <typename Fn> Step real(Operation &op, Fn fn);
  template <typename Fn> Step whole(Operation &op, Fn fn);
  Step compare(arith::CmpFOp op);
  Step compare(arith::CmpIOp op);
  Step constant(arith::ConstantOp op);

  llvm::DenseMap<Value, unsigned> numbers;
  Slots slots;
  std::vector<Step> steps;
  unsigned result = 0;
};

double asFloat(double x) { return static_cast<double>(static_cast<float>(x)); }

template <typename Fn> Step Program::real(Operation &op, Fn fn) {
  unsigned to = slotOf(op.getResult(0)), a = slotOf(op.getOperand(0)), b = slotOf(op.getOperands().back());
  unsigned middle = op.getNumOperands() > 2 ? slotOf(op.getOperand(1)) : a;
  Type type = op.getResult(0).getType();
  if (type.isF64())
    return [=](Slots &s) { s[to].real = fn(s[a].real, s[middle].real, s[b].real); };
  if (type.isF32())
    return [=](Slots &s) {
      s[to].real = static_cast<double>(
          fn(static_cast<float>(s[a].real), static_cast<float>(s[middle].real), static_cast<float>(s[b].real)));
    };
  return {};
}

template <typename Fn> Step Program::whole(Operation &op, Fn fn) {
  unsigned to = slotOf(op.getResult(0)), a = slotOf(op.getOperand(0)), b = slotOf(op.getOperands().back());
  unsigned spare = 64 - op.getResult(0).getType().getIntOrFloatBitWidth();
  return [=](Slots &s) {
    auto bits = static_cast<uint64_t>(fn(static_cast<uint64_t>(s[a].whole), static_cast<uint64_t>(s[b].whole), spare));
    s[to].whole = static_cast<int64_t>(bits << spare) >> spare;
  };
}

Step Program::compare(arith::CmpFOp op) {
  using P = arith::CmpFPredicate;
  unsigned to = slotOf(op), a = slotOf(op.getLhs()), b = slotOf(op.getRhs());
  // Bits of the predicate: unordered, less, greater, equal.
  auto accepts = [](P p) -> unsigned {
    switch (p) {
    case P::OEQ:
      return 1;
    case P::OGT:
      return 2;
    case P::OGE:
      return 3;
    case P::OLT:
      return 4;
    case P::OLE:
      return 5;
    case P::ONE:
      return 6;
    case P::ORD:
      return 7;
    case P::UNO:
      return 8;
    case P::UEQ:
      return 9;
    case P::UGT:
      return 10;
    case P::UGE:
      return 11;
    case P::ULT:
      return 12;
    case P::ULE:
      return 13;
    case P::UNE:
      return 14;
    case P::AlwaysTrue:
      return 15;
    case P::AlwaysFalse:
      return 0;
    }
    llvm_unreachable("unknown predicate");
  };
  unsigned accepted = accepts(op.getPredicate());
  return [=](Slots &s) {
    double x = s[a].real, y = s[b].real;
    unsigned found = x == y ? 1 : x > y ? 2 : x < y ? 4 : 8;
    s[to].whole = (accepted & found) != 0 ? -1 : 0;
  };
}

Step Program::compare(arith::CmpIOp op) {
  unsigned to = slotOf(op), a = slotOf(op.getLhs()), b = slotOf(op.getRhs());
  arith::CmpIPredicate predicate = op.getPredicate();
  return [=](Slots &s) {
    bool holds = arith::applyCmpPredicate(predicate, APInt(64, static_cast<uint64_t>(s[a].whole)),
                                          APInt(64, static_cast<uint64_t>(s[b].whole)));
    s[to].whole = holds ? -1 : 0;
  };
}

Step Program::constant(arith::ConstantOp op) {
  unsigned to = slotOf(op);
  if (auto number = dyn_cast<FloatAttr>(op.getValue()))
    slots[to].real = number.getValueAsDouble();
  else if (auto number = dyn_cast<IntegerAttr>(op.getValue()))
    slots[to].whole = number.getValue().getSExtValue();
  else
    return {};
  return [](Slots &) {};
}

/// Larger and smaller numbers, where NaN wins and 0 is above -0.
template <typename T> T larger(T x, T y) {
  if (std::isnan(x) || std::isnan(y))
    return x + y;
  return x > y || (x == y && std::signbit(y)) ? x : y;
}

Step Program::stepOf(Operation &op) {
  using U = uint64_t;
  auto convert = [&](auto fn) -> Step {
    unsigned to = slotOf(op.getResult(0)), from = slotOf(op.getOperand(0));
    return [=](Slots &s) { fn(s[from], s[to]); };
  };
  Type type = op.getNumResults() ? op.getResult(0).getType() : Type();
  Type source = op.getNumOperands() ? op.getOperand(0).getType() : Type();
  return TypeSwitch<Operation *, Step>(&op)
      .Case<arith::ConstantOp>([&](auto c) { return constant(c); })
      .Case<arith::AddFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return x + y; }); })
      .Case<arith::SubFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return x - y; }); })
      .Case<arith::MulFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return x * y; }); })
      .Case<arith::DivFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return x / y; }); })
      .Case<arith::RemFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return std::fmod(x, y); }); })
      .Case<arith::MaximumFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return larger(x, y); }); })
      .Case<arith::MinimumFOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return -larger(-x, -y); }); })
      .Case<math::FmaOp>([&](auto) { return real(op, [](auto x, auto y, auto z) { return std::fma(x, y, z); }); })
      .Case<math::CopySignOp>([&](auto) { return real(op, [](auto x, auto, auto y) { return std::copysign(x, y); }); })
      .Case<arith::NegFOp>([&](auto) { return real(op, [](auto x, auto, auto) { return -x; }); })
      .Case<math::AbsFOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::fabs(x); }); })
      .Case<math::SqrtOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::sqrt(x); }); })
      .Case<math::FloorOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::floor(x); }); })
      .Case<math::CeilOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::ceil(x); }); })
      .Case<math::RoundEvenOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::nearbyint(x); }); })
      .Case<math::ErfOp>([&](auto) { return real(op, [](auto x, auto, auto) { return std::erf(x); }); })
      .Case<arith::AddIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x + y; }); })
      .Case<arith::SubIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x - y; }); })
      .Case<arith::AndIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x & y; }); })
      .Case<arith::OrIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x | y; }); })
      .Case<arith::XOrIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x ^ y; }); })
      .Case<arith::ShLIOp>([&](auto) { return whole(op, [](U x, U y, unsigned) { return x << y; }); })
      .Case<arith::ShRSIOp>(
          [&](auto) { return whole(op, [](U x, U y, unsigned) { return U(static_cast<int64_t>(x) >> y); }); })
      .Case<arith::ShRUIOp>(
          [&](auto) { return whole(op, [](U x, U y, unsigned spare) { return (x << spare >> spare) >> y; }); })
      .Case<arith::CmpFOp, arith::CmpIOp>([&](auto c) { return compare(c); })
      .Case<arith::SelectOp>([&](arith::SelectOp select) -> Step {
        unsigned to = slotOf(select), which = slotOf(select.getCondition()), a = slotOf(select.getTrueValue()),
                 b = slotOf(select.getFalseValue());
        return [=](Slots &s) { s[to] = s[which].whole ? s[a] : s[b]; };
      })
      .Case<arith::SIToFPOp>([&](auto) -> Step {
        return convert([wide = type.isF64()](Slot from, Slot &to) {
          to.real = wide ? static_cast<double>(from.whole) : static_cast<double>(static_cast<float>(from.whole));
        });
      })
      .Case<arith::FPToSIOp>([&](auto) -> Step {
        return convert([](Slot from, Slot &to) { to.whole = static_cast<int64_t>(from.real); });
      })
      .Case<arith::ExtFOp>([&](auto) -> Step { return convert([](Slot from, Slot &to) { to = from; }); })
      .Case<arith::TruncFOp>([&](auto) -> Step {
        if (type.isF32())
          return convert([](Slot from, Slot &to) { to.real = asFloat(from.real); });
        return convert(
            [format = FloatFormat(cast<FloatType>(type))](Slot from, Slot &to) { to.real = format.round(from.real); });
      })
      .Case<arith::BitcastOp>([&](auto) -> Step {
        if (source.isF32() && type.isInteger(32))
          return convert([](Slot from, Slot &to) {
            to.whole = static_cast<int32_t>(llvm::bit_cast<uint32_t>(static_cast<float>(from.real)));
          });
        if (source.isInteger(32) && type.isF32())
          return convert([](Slot from, Slot &to) {
            to.real = static_cast<double>(llvm::bit_cast<float>(static_cast<int32_t>(from.whole)));
          });
        if (type.getIntOrFloatBitWidth() == 64)
          return convert([](Slot from, Slot &to) { to = from; });
        return {};
      })
      .Default([](Operation *) { return Step(); });
}

bool Program::compile(Operation *op) {
  auto emitter = dyn_cast<LoopLowering>(op);
  auto isShort = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && isa<FloatType>(tensor.getElementType()) && computeType(tensor.getElementType()).isF32();
  };
  if (!emitter || op->getNumResults() != 1 || !llvm::all_of(op->getOperandTypes(), isShort) ||
      !llvm::all_of(op->getResultTypes(), isShort))
    return false;
  Location loc = op->getLoc();
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
  Type f32 = builder.getF32Type();
  SmallVector<Type> types(op->getNumOperands(), f32);
  auto function = func::FuncOp::create(builder, loc, "element", builder.getFunctionType(types, {}));
  ImplicitLocOpBuilder b(loc, op->getContext());
  b.setInsertionPointToEnd(function.addEntryBlock());
  KernelTarget target;
  ElementEmitter e(b, target, /*probe=*/false);
  SmallVector<IndexExpr> at(cast<RankedTensorType>(op->getResult(0).getType()).getRank(), 0);
  for (auto [operand, argument] : llvm::zip_equal(op->getOperands(), function.getArguments())) {
    slotOf(argument);
    if (!e.knows(operand, at))
      e.define(operand, at, argument);
  }
  Value value = emitter.emitElement(e, 0, at);
  if (!value || e.failed() || value.getType() != f32)
    return false;
  for (Operation &inner : function.getBody().front()) {
    Step step = stepOf(inner);
    if (!step)
      return false;
    if (!isa<arith::ConstantOp>(inner))
      steps.push_back(std::move(step));
  }
  result = slotOf(value);
  numbers.clear(); // of values that go with the module
  return true;
}

double Program::run(ArrayRef<double> operands) {
  for (auto [i, operand] : llvm::enumerate(operands))
    slots[i].real = operand;
  for (const Step &step : steps)
    step(slots);
  return slots[result].real;
}

class EmittedElements : public ElementCode {
public:
  bool compute(Operation *op, InterpreterFrame &frame) override {
    Program program;
    if (!program.compile(op))
      return false;
    SmallVector<ArrayRef<double>> operands;
    for (Value operand : op->getOperands())
      operands.push_back(frame.get(operand).reals());
    Tensor y = InterpreterFrame::zeros(op->getResult(0));
    SmallVector<double> element(operands.size());
    for (auto [i, out] : llvm::enumerate(y.writeReals())) {
      for (auto [value, operand] : llvm::zip_equal(element, operands))
        value = operand[i];
      out = program.run(element);
    }
    frame.set(op->getResult(0), std::move(y));
    return true;
  }
};

} // namespace

std::unique_ptr<ElementCode> mpt::createElementCode() { return std::make_unique<EmittedElements>(); }
