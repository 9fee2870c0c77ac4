// SPDX-License-Identifier: Apache-2.0
// Enumerates and makes mutants.
#include "Mutants.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/Numerics.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::mutants;

namespace {

std::vector<Operation *> opsOf(ModuleOp module) {
  std::vector<Operation *> ops;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) { ops.push_back(op); });
  return ops;
}

/// The names of ops after Kind::rename.
StringRef otherName(Operation *op) {
  static const llvm::StringMap<StringRef> names = {
      {"mpt.and", "mpt.or"},  {"mpt.or", "mpt.and"},  {"mpt.min", "mpt.max"},
      {"mpt.max", "mpt.min"}, {"mpt.mul", "mpt.div"}, {"mpt.div", "mpt.mul"},
      {"mpt.add", "mpt.sub"}, {"mpt.sub", "mpt.add"}, {"train.unscale", "train.scale_loss"}};
  auto found = names.find(op->getName().getStringRef());
  return found == names.end() ? StringRef() : found->second;
}

bool isScalarConstant(Operation *op) {
  auto constant = dyn_cast<ConstantOp>(op);
  return constant && isa<FloatType>(constant.getType().getElementType()) && constant.getType().getNumElements() == 1;
}

class Enumeration {
public:
  Enumeration(ModuleOp module, unsigned each, uint64_t seed) : module(module), each(each), random(seed) {
    std::vector<Operation *> ops = opsOf(module);
    for (auto [i, op] : llvm::enumerate(ops))
      positions[op] = i;
  }

  std::vector<Mutation> all() {
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && (computesGradients(function) || hasFusedWrites(function)))
        visit(function.getBody().front());
    return std::move(mutations);
  }

private:
  static bool computesGradients(func::FuncOp function) { return !function.getOps<train::GradientOp>().empty(); }
  /// Behind stage fusion gradients have no marks.
  static bool hasFusedWrites(func::FuncOp function) {
    return !function.getOps<FusionOp>().empty() && !function.getOps<train::WriteOp>().empty();
  }

  void visit(Block &block) {
    known.clear();
    for (Operation &op : block) {
      if (!op.hasTrait<OpTrait::IsTerminator>())
        visit(&op);
      for (Value result : op.getResults())
        known[result.getType()].push_back(result);
    }
    for (auto fusion : block.getOps<FusionOp>())
      visit(fusion.getBody().front());
  }

  void add(Kind kind, Operation *op, unsigned operand = 0, unsigned otherOp = 0, unsigned otherResult = 0) {
    mutations.push_back({kind, positions[op], operand, otherOp, otherResult});
  }

  void visit(Operation *op) {
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      if (op->getNumResults() > 0 && op->getResult(0).getType() == operand.getType()) {
        add(Kind::drop, op, i);
        add(Kind::twice, op, i);
      }
      exchange(op, i);
      if (i > 0 && operand.getType() == op->getOperand(0).getType() && operand != op->getOperand(0))
        add(Kind::swap, op, i);
      if (op->getNumOperands() > 1 && op->getName().getStringRef() == "train.all_finite")
        add(Kind::omit, op, i);
    }
    if (!otherName(op).empty())
      add(Kind::rename, op);
    if (auto write = dyn_cast<train::WriteOp>(op)) {
      if (write.getCondition()) {
        add(Kind::always, op);
        add(Kind::constant, op, 0, 0);
        add(Kind::constant, op, 0, 1);
      }
      add(Kind::forget, op);
      redirect(op, write.getStateAttr().getAttr());
    }
    if (auto read = dyn_cast<train::ReadOp>(op))
      redirect(op, read.getStateAttr().getAttr());
    for (auto [i, attribute] : llvm::enumerate(op->getAttrs()))
      if (isa<train::TrainDialect>(op->getDialect()) && isa<FloatAttr, IntegerAttr>(attribute.getValue()))
        add(Kind::number, op, i);
    if (isScalarConstant(op))
      add(Kind::number, op, ~0u);
    if (op->hasAttr("numerics")) {
      add(Kind::accumulator, op, 0);
      add(Kind::accumulator, op, 1);
    }
  }

  void exchange(Operation *op, unsigned operand) {
    SmallVector<Value> &others = known[op->getOperand(operand).getType()];
    for (unsigned i = 0; i < each && others.size() > 1; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      Value other = others[(random >> 33) % others.size()];
      if (other != op->getOperand(operand))
        add(Kind::exchange, op, operand, positions[other.getDefiningOp()], cast<OpResult>(other).getResultNumber());
    }
  }

  void redirect(Operation *op, StringAttr name) {
    auto own = module.lookupSymbol<train::StateOp>(name);
    unsigned found = 0;
    for (auto state : module.getOps<train::StateOp>())
      if (own && state != own && state.getType() == own.getType() && found++ < each)
        add(Kind::redirect, op, 0, positions[state]);
  }

  ModuleOp module;
  unsigned each;
  uint64_t random;
  DenseMap<Operation *, unsigned> positions;
  DenseMap<Type, SmallVector<Value>> known; ///< so far in the block
  std::vector<Mutation> mutations;
};

void halve(Operation *op, unsigned which) {
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    double value = cast<DenseFPElementsAttr>(constant.getValue()).getSplatValue<APFloat>().convertToDouble();
    APFloat half(value / 2);
    bool loses = false;
    half.convert(cast<FloatType>(constant.getType().getElementType()).getFloatSemantics(), APFloat::rmNearestTiesToEven,
                 &loses);
    constant.setValueAttr(DenseElementsAttr::get(constant.getType(), half));
    return;
  }
  NamedAttribute attribute = op->getAttrs()[which];
  if (auto real = dyn_cast<FloatAttr>(attribute.getValue()))
    op->setAttr(attribute.getName(), FloatAttr::get(real.getType(), real.getValueAsDouble() / 2));
  else if (auto integer = cast<IntegerAttr>(attribute.getValue()); !integer.getType().isInteger(1))
    op->setAttr(attribute.getName(), IntegerAttr::get(integer.getType(), integer.getInt() + 1));
}

void narrowSum(Operation *op, bool drops) {
  auto numerics = op->getAttrOfType<NumericsAttr>("numerics");
  if (drops || !numerics)
    op->removeAttr("numerics");
  else
    op->setAttr("numerics", NumericsAttr::get(op->getContext(), numerics.getIn(), numerics.getIn(), numerics.getOut()));
}

void rename(Operation *op) {
  OperationState state(op->getLoc(), otherName(op));
  state.addOperands(op->getOperands());
  state.addTypes(op->getResultTypes());
  OpBuilder builder(op);
  Operation *other = builder.create(state);
  op->replaceAllUsesWith(other);
  op->erase();
}

void setCondition(train::WriteOp write, bool value) {
  OpBuilder builder(write);
  auto type = cast<RankedTensorType>(write.getCondition().getType());
  auto constant = ConstantOp::create(builder, write.getLoc(), DenseElementsAttr::get(type, value));
  write.getConditionMutable().assign(constant);
}

void twice(Operation *op, unsigned operand) {
  Operation *second = op->clone();
  op->getBlock()->getOperations().insertAfter(op->getIterator(), second);
  op->replaceAllUsesWith(second);
  second->setOperand(operand, op->getResult(0));
}

} // namespace

StringRef mutants::name(Kind kind) {
  static constexpr StringRef names[] = {"drop",   "twice",    "exchange", "swap",     "omit",   "rename",
                                        "always", "constant", "forget",   "redirect", "number", "accumulator"};
  return names[static_cast<unsigned>(kind)];
}

std::vector<Mutation> mutants::mutationsOf(ModuleOp module, unsigned each, uint64_t seed) {
  return Enumeration(module, each, seed).all();
}

OwningOpRef<ModuleOp> mutants::apply(ModuleOp module, const Mutation &mutation) {
  OwningOpRef<ModuleOp> clone(module.clone());
  std::vector<Operation *> ops = opsOf(*clone);
  Operation *op = ops[mutation.op];
  switch (mutation.kind) {
  case Kind::drop:
    op->getResult(0).replaceAllUsesWith(op->getOperand(mutation.operand));
    break;
  case Kind::twice:
    twice(op, mutation.operand);
    break;
  case Kind::exchange:
    op->setOperand(mutation.operand, ops[mutation.otherOp]->getResult(mutation.otherResult));
    break;
  case Kind::swap: {
    Value first = op->getOperand(0);
    op->setOperand(0, op->getOperand(mutation.operand));
    op->setOperand(mutation.operand, first);
    break;
  }
  case Kind::omit:
    op->eraseOperand(mutation.operand);
    break;
  case Kind::rename:
    rename(op);
    break;
  case Kind::always:
    cast<train::WriteOp>(op).getConditionMutable().clear();
    break;
  case Kind::constant:
    setCondition(cast<train::WriteOp>(op), mutation.otherOp != 0);
    break;
  case Kind::forget:
    op->erase();
    break;
  case Kind::redirect:
    op->setAttr("state", FlatSymbolRefAttr::get(cast<train::StateOp>(ops[mutation.otherOp]).getSymNameAttr()));
    break;
  case Kind::number:
    halve(op, mutation.operand);
    break;
  case Kind::accumulator:
    narrowSum(op, mutation.operand == 0);
    break;
  }
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  return succeeded(verify(*clone)) ? std::move(clone) : nullptr;
}

std::string mutants::describe(ModuleOp module, const Mutation &mutation) {
  std::vector<Operation *> ops = opsOf(module);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << name(mutation.kind) << " " << mutation.operand << " of ";
  OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(4).skipRegions().useLocalScope();
  ops[mutation.op]->print(os, flags);
  if (mutation.kind == Kind::exchange || mutation.kind == Kind::redirect) {
    os << " -> ";
    ops[mutation.otherOp]->print(os, flags);
  }
  return text;
}
