// SPDX-License-Identifier: Apache-2.0
// precision-master-weights: narrow parameters, and wide masters for the optimizer.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/OptimizerUpdate.h"
#include "mpt/Library/RoundedReads.h"
#include "mpt/Precision/Constants.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/RoundingCasts.h"
#include "mpt/Precision/StepRules.h"
#include "mpt/Support/Refusal.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

namespace mpt {
#define GEN_PASS_DEF_MASTERWEIGHTS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "precision-master-weights"

namespace {
struct Accesses {
  SmallVector<train::ReadOp> reads;
  SmallVector<train::WriteOp> writes;
};

class MasterWeights : public mpt::impl::MasterWeightsBase<MasterWeights> {
public:
  using MasterWeightsBase::MasterWeightsBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    llvm::StringMap<Accesses> accesses;
    module.walk([&](train::ReadOp read) { accesses[read.getState()].reads.push_back(read); });
    module.walk([&](train::WriteOp write) { accesses[write.getState()].writes.push_back(write); });
    settings = PrecisionSettings::of(module);
    casts.emplace(module);
    for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>())) {
      Accesses &found = accesses[state.getSymName()];
      Type narrower = narrowerStorage(state, found);
      if (narrower) {
        if (failed(isCode(narrower) ? storeAsCodes(state, found) : storeAs(state, narrower, found)))
          return signalPassFailure();
        continue;
      }
      auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(state);
      Type type = decision ? decision.resultType(0) : Type();
      auto tensor = cast<RankedTensorType>(state.getType());
      if (!type || type == tensor.getElementType())
        continue;
      RankedTensorType narrow = tensor.clone(type);
      if (found.writes.empty())
        storeNarrow(state, narrow, found);
      else if (isPacked(state, narrow, found))
        setAttr<library::LibraryDialect::PackedAttrHelper>(state, TypeAttr::get(type));
      else if (failed(addMaster(state, narrow, found)))
        return signalPassFailure();
    }
    if (packsSome &&
        llvm::none_of(module.getOps<train::StateOp>(), hasAttr<library::LibraryDialect::PackedAttrHelper>)) {
      module.emitError() << "expected a parameter whose readers all round it for --masters=packed, got none: leave the "
                            "flag out, --debug-only=" DEBUG_TYPE " says why";
      signalPassFailure();
    }
    if (settings.slotsAreAsked && numNarrowSlots == 0) {
      StringRef type = settings.slots.isBF16() ? "bf16" : settings.slots.isF16() ? "f16" : isCodeOfMap() ? "i8" : "f8";
      module.emitError() << "expected optimizer slots that may be " << type << " for --slots=" << type
                         << ", got none: choose an optimizer with such slots, or leave the flag out";
      if (isCode(settings.slots))
        mlir::emitRemark(module.getLoc())
            << "8 bits are for slots of " << kFewest << " elements and more, a multiple of " << kBlock
            << ", that an update reads element by element";
      signalPassFailure();
    }
  }

private:
  /// As torchao has them: elements that share a scale, and the fewest of a tensor that are worth one.
  static constexpr int64_t kBlock = 256, kFewest = 4096;

  /// The narrow type in which the policy keeps the states that optimizers update: parameters without masters, and
  /// optimizer state that may be narrow. Null for the rest.
  Type narrowerStorage(train::StateOp state, const Accesses &found) {
    auto type = cast<RankedTensorType>(state.getType());
    if (!type.getElementType().isF32() || found.writes.empty())
      return Type();
    if (state.getRole() == train::Role::parameter)
      return settings.master.isF32() ? Type() : settings.master;
    if (state.getRole() != train::Role::slot || settings.slots.isF32())
      return Type();
    if (isCode(settings.slots))
      return isCodable(state, found) ? settings.slots : Type();
    // BF16 has FP32's range, so that it holds whatever an optimizer's update keeps; averages of parameters are read
    // otherwise.
    bool isUpdates = settings.slots.isBF16() && llvm::any_of(found.reads, [](train::ReadOp read) {
                       return llvm::any_of(read->getUsers(), llvm::IsaPred<OptimizerUpdate>);
                     });
    return isUpdates || hasAttr<MPTDialect::StorableAttrHelper>(state) ? settings.slots : Type();
  }

  /// Numbers that have a scale beside them.
  static bool isCode(Type type) { return type.getIntOrFloatBitWidth() == 8; }
  bool isCodeOfMap() const { return settings.slots.isInteger(8); }

  /// The update that reads an optimizer state and nobody else does; null without one.
  static OptimizerUpdate onlyUpdate(const Accesses &found) {
    OptimizerUpdate update;
    for (train::ReadOp read : found.reads)
      for (Operation *user : read->getUsers()) {
        update = dyn_cast<OptimizerUpdate>(user);
        if (!update || !update.isElementwise())
          return {};
      }
    return update;
  }

  /// Whether an optimizer state may be 8-bit codes: one kernel has to decode, update and encode it.
  bool isCodable(train::StateOp state, const Accesses &found) const {
    int64_t elements = cast<RankedTensorType>(state.getType()).getNumElements();
    if (elements < kFewest || elements % kBlock != 0)
      return refuse(DEBUG_TYPE, state) << "not in 8 bits: expected " << kFewest << " elements and more in blocks of "
                                       << kBlock << ", got " << elements;
    if (!onlyUpdate(found))
      return refuse(DEBUG_TYPE, state) << "not in 8 bits: expected an update that reads it element by element alone";
    // Zeros have no magnitude, so that their scale and their codes are 0 in any type.
    auto value = dyn_cast_or_null<DenseFPElementsAttr>(state.getValueAttr());
    if (state.getValueAttr() && !(value && value.isSplat() && value.getSplatValue<APFloat>().isZero()))
      return refuse(DEBUG_TYPE, state) << "not in 8 bits: expected a slot that starts at 0, got another value";
    return true;
  }

  /// Codes in the state's place, and their scales in a state beside it.
  LogicalResult storeAsCodes(train::StateOp state, Accesses &found) {
    std::string name = (state.getSymName() + ".scale").str();
    if (SymbolTable::lookupSymbolIn(getOperation(), name))
      return state.emitOpError() << "expected no state named " << name << ", which the scales of its codes need";
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(state);
    auto wide = cast<RankedTensorType>(state.getType());
    auto scales = RankedTensorType::get({wide.getNumElements() / kBlock}, wide.getElementType());
    RankedTensorType codes = wide.clone(isCodeOfMap() ? builder.getIntegerType(8, /*isSigned=*/false) : settings.slots);
    train::StateOp::create(builder, state.getLoc(), name, scales, train::Role::slot, state.getOfAttr(), ElementsAttr(),
                           /*frozen=*/false, StringAttr());
    OptimizerUpdate update = onlyUpdate(found);
    bool isSigned =
        llvm::none_of(found.reads, [&](train::ReadOp read) { return update.holdsSquares(read.getValue()); });
    state.setType(codes);
    state.removeValueAttr();
    ++numNarrowStates;
    ++numNarrowSlots;
    for (train::ReadOp read : found.reads) {
      builder.setInsertionPoint(read);
      Location loc = read.getLoc();
      Value stored = train::ReadOp::create(builder, loc, codes, read.getStateAttr());
      Value factors = train::ReadOp::create(builder, loc, scales, name);
      read.getValue().replaceAllUsesWith(DecodeBlocksOp::create(builder, loc, wide, stored, factors, isSigned));
      read.erase();
    }
    for (train::WriteOp write : found.writes) {
      builder.setInsertionPoint(write);
      auto encoded = EncodeBlocksOp::create(builder, write.getLoc(), codes, scales, write.getValue(), isSigned);
      write.getValueMutable().assign(encoded.getCodes());
      train::WriteOp::create(builder, write.getLoc(), name, encoded.getScales(), write.getCondition());
    }
    return success();
  }

  /// Readers widen, writers round as the policy says for masters.
  LogicalResult storeAs(train::StateOp state, Type element, Accesses &found) {
    auto narrow = cast<RankedTensorType>(state.getType()).clone(element);
    if (ElementsAttr value = state.getValueAttr()) {
      NarrowedConstant converted = narrowConstant(value, cast<FloatType>(element));
      if (!converted.value)
        return state.emitOpError() << "expected readable contents to store as " << element;
      state.setValueAttr(converted.value);
      if (!converted.note.empty())
        setAttr<MPTDialect::RangeAttrHelper>(state, StringAttr::get(&getContext(), converted.note));
    }
    state.setType(narrow);
    ++numNarrowStates;
    bool isSlot = state.getRole() == train::Role::slot;
    numNarrowSlots += isSlot;
    bool compensated = !isSlot && settings.masters.compensated;
    DenseSet<Operation *> updates;
    if (compensated) {
      if (failed(addRemainder(state, narrow)))
        return failure();
      for (train::WriteOp write : found.writes)
        addUpdate(write, updates);
    }
    for (train::ReadOp read : found.reads) {
      redirect(read, narrow);
      if (!read->use_empty()) {
        OpBuilder builder(read);
        Value stored = train::ReadOp::create(builder, read.getLoc(), narrow, read.getStateAttr());
        Value wide = GraphBuilder(builder, read.getLoc()).widen(stored);
        auto isUpdates = [&](OpOperand &use) { return updates.contains(use.getOwner()); };
        if (llvm::any_of(read->getUses(), isUpdates))
          read.getValue().replaceUsesWithIf(withRemainder(builder, read, wide), isUpdates);
        read.getValue().replaceAllUsesWith(wide);
      }
      read.erase();
    }
    for (train::WriteOp write : found.writes) {
      OpBuilder builder(write);
      Value next = write.getValue();
      write.getValueMutable().assign(
          casts->cast(builder, write.getLoc(), next, element, isSlot ? settings.slotCasts : settings.masters));
      if (compensated)
        writeRemainder(write, next);
    }
    return success();
  }

  /// Adds a state for the rounding errors of `state`, zeros at first.
  LogicalResult addRemainder(train::StateOp state, RankedTensorType narrow) {
    std::string name = remainderOf(state.getSymName());
    if (SymbolTable::lookupSymbolIn(getOperation(), name))
      return state.emitOpError() << "expected no state named " << name << ", which the rest of each rounding needs";
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(state);
    train::StateOp::create(builder, state.getLoc(), name, narrow, train::Role::slot, state.getSymNameAttr(),
                           ElementsAttr(), /*frozen=*/false, StringAttr());
    return success();
  }

  /// Notes the ops from the gradient to the new value: the forward pass reads the parameter alone.
  static void addUpdate(train::WriteOp write, DenseSet<Operation *> &ops) {
    bool tensor = tensorType(write.getValue()).getRank() > 0;
    SmallVector<Value> work{write.getValue()};
    while (!work.empty()) {
      Value value = work.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!op || isa<train::GradientOp>(op) || (tensor && tensorType(value).getRank() == 0) || !ops.insert(op).second)
        continue;
      llvm::append_range(work, op->getOperands());
    }
  }

  /// `wide` with the rest of its last rounding. A rest of more than half a unit is of another value, in whose place the
  /// parameter was set or loaded since: it does not count.
  static Value withRemainder(OpBuilder &builder, train::ReadOp read, Value wide) {
    GraphBuilder b(builder, read.getLoc());
    auto type = cast<RankedTensorType>(read.getType());
    auto narrow = cast<train::StateOp>(SymbolTable::lookupNearestSymbolFrom(read, read.getStateAttr())).getType();
    Value kept = train::ReadOp::create(builder, b.loc, narrow, remainderOf(read.getState()));
    Value rest = b.widen(kept);
    auto element = cast<FloatType>(cast<RankedTensorType>(narrow).getElementType());
    double half = std::ldexp(1.0, -static_cast<int>(llvm::APFloat::semanticsPrecision(element.getFloatSemantics())));
    Value fits = b.compare(Predicate::le, b.make<AbsOp>(type, rest), b.mul(b.make<AbsOp>(type, wide), half));
    return b.select(fits, b.add(wide, rest), wide);
  }

  void writeRemainder(train::WriteOp write, Value next) {
    OpBuilder builder(write->getContext());
    builder.setInsertionPointAfter(write);
    GraphBuilder b(builder, write.getLoc());
    Value rest = b.sub(next, b.widen(write.getValue()));
    Value kept = casts->cast(builder, b.loc, rest, tensorType(write.getValue()).getElementType(), RoundingMode());
    train::WriteOp::create(builder, b.loc, remainderOf(write.getState()), kept, write.getCondition());
  }

  /// Readers that cast to `narrow` read the narrow state; the rest of the readers keep `read`.
  void redirect(train::ReadOp read, RankedTensorType narrow) {
    Value direct;
    for (Operation *user : llvm::make_early_inc_range(read->getUsers())) {
      auto cast = dyn_cast<CastOp>(user);
      if (!cast || cast.getY().getType() != narrow || cast.getRounding() == Rounding::Stochastic)
        continue;
      if (!direct) {
        OpBuilder builder(read);
        auto added = train::ReadOp::create(builder, read.getLoc(), narrow, read.getStateAttr());
        if (auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(read))
          setAttr<MPTDialect::PrecisionAttrHelper>(added, decision);
        direct = added;
      }
      addLossyCasts(cast, -1);
      cast.getY().replaceAllUsesWith(direct);
      cast.erase();
    }
  }

  /// Whether all narrow readers round the parameter by themselves, so that it needs no narrow copy.
  bool isPacked(train::StateOp state, RankedTensorType narrow, const Accesses &found) const {
    bool rounds = llvm::any_of(packed, [&](StringRef type) {
      return type == (narrow.getElementType().isF16() ? "f16" : narrow.getElementType().isBF16() ? "bf16" : "");
    });
    // Conversion to 8 bits is a kernel of its own, which had better read 16 bits.
    if (!rounds || settings.quantizes() || narrow.getNumElements() < packedFrom)
      return refuse(DEBUG_TYPE, state) << "not packed: expected GEMMs that round to " << narrow.getElementType()
                                       << ", and " << int64_t(packedFrom) << " elements";
    for (train::ReadOp read : found.reads)
      for (Operation *user : read->getUsers()) {
        auto cast = dyn_cast<CastOp>(user);
        if (!cast || cast.getY().getType() != narrow)
          continue;
        if (!library::isRoundedF32(cast.getY()))
          return refuse(DEBUG_TYPE, state) << "not packed: expected rounding to nearest";
        if (Operation *reader = library::readerOfCopy(cast.getY()))
          return refuse(DEBUG_TYPE, state)
                 << "not packed: expected readers that round by themselves, got " << reader->getName();
      }
    return true;
  }

  LogicalResult addMaster(train::StateOp state, RankedTensorType narrow, Accesses &found) {
    OpBuilder builder(state);
    auto wide = cast<RankedTensorType>(state.getType());
    std::string name = (state.getSymName() + ".master").str();
    if (SymbolTable::lookupSymbolIn(getOperation(), name))
      return mlir::emitError(state.getLoc()) << "expected no parameter named '" << name << "', as the FP32 master of '"
                                             << state.getSymName() << "' is called: rename it [mpt-name-taken]";
    auto master = train::StateOp::create(builder, state.getLoc(), name, wide, train::Role::master,
                                         builder.getStringAttr(state.getSymName()), state.getValueAttr(),
                                         /*frozen=*/false, StringAttr());
    ++numMasters;
    state.setType(narrow);
    state.removeValueAttr();
    state.setFrom(name);
    auto masterName = FlatSymbolRefAttr::get(master.getSymNameAttr());
    for (train::ReadOp read : found.reads) {
      redirect(read, narrow);
      if (read->use_empty()) {
        read.erase();
        continue;
      }
      read.setStateAttr(masterName);
      removeAttr<MPTDialect::PrecisionAttrHelper>(read);
    }
    for (train::WriteOp write : found.writes) {
      builder.setInsertionPointAfter(write);
      Value copy = CastOp::create(builder, write.getLoc(), write.getValue(), narrow.getElementType());
      train::WriteOp::create(builder, write.getLoc(), write.getStateAttr(), copy, write.getCondition());
      addLossyCasts(copy.getDefiningOp(), 1);
      write.setStateAttr(masterName);
    }
    return success();
  }

  PrecisionSettings settings;
  std::optional<RoundingCasts> casts;
  int64_t numNarrowSlots = 0;

  /// Nobody updates it: no master is needed, unless someone reads it wide.
  void storeNarrow(train::StateOp state, RankedTensorType narrow, Accesses &found) {
    NarrowedConstant value;
    if (state.getValueAttr())
      value = narrowConstant(state.getValueAttr(), cast<FloatType>(narrow.getElementType()));
    for (train::ReadOp read : found.reads)
      for (Operation *user : read->getUsers())
        if (auto cast = dyn_cast<CastOp>(user); !cast || cast.getY().getType() != narrow) {
          refuse(DEBUG_TYPE, state) << "not stored narrow: expected readers of " << narrow << ", got "
                                    << user->getName();
          return;
        }
    if (!value.value) {
      refuse(DEBUG_TYPE, state) << "not stored narrow: expected an initial value in memory, got "
                                << (state.getValueAttr() ? "a blob" : "none");
      return;
    }
    state.setType(narrow);
    state.setValueAttr(value.value);
    if (!value.note.empty())
      setAttr<MPTDialect::RangeAttrHelper>(state, StringAttr::get(&getContext(), value.note));
    for (train::ReadOp read : found.reads) {
      redirect(read, narrow);
      read.erase();
    }
  }
};
} // namespace
