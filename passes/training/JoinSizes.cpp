// SPDX-License-Identifier: Apache-2.0
// --training-join-sizes: one module of a model's functions in several sizes, over one state.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Sizes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/training/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringMap.h"

namespace mpt {
#define GEN_PASS_DEF_JOINSIZES
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Whether two initial values are the same numbers; blobs of two imports have names of their own.
bool isSame(train::StateOp a, train::StateOp b) {
  Attribute one = a.getValueAttr(), other = b.getValueAttr();
  if (one == other)
    return true;
  auto left = dyn_cast_if_present<DenseResourceElementsAttr>(one);
  auto right = dyn_cast_if_present<DenseResourceElementsAttr>(other);
  AsmResourceBlob *first = left ? left.getRawHandle().getBlob() : nullptr;
  AsmResourceBlob *second = right ? right.getRawHandle().getBlob() : nullptr;
  return first && second && first->getData() == second->getData();
}

/// Whether two functions of the same inputs compute alike, as far as operations and types say it.
bool isAlike(func::FuncOp a, func::FuncOp b) {
  auto shapeOf = [](func::FuncOp function) {
    SmallVector<std::pair<OperationName, TypeRange>> ops;
    function.getBody().walk([&](Operation *op) { ops.push_back({op->getName(), op->getResultTypes()}); });
    return ops;
  };
  return a.getFunctionType() == b.getFunctionType() && shapeOf(a) == shapeOf(b);
}

struct JoinSizes : mpt::impl::JoinSizesBase<JoinSizes> {
  void runOnOperation() override {
    SmallVector<ModuleOp> sizes(getOperation().getOps<ModuleOp>());
    if (sizes.empty())
      return;
    SmallVector<StringRef> names;
    for (ModuleOp size : sizes) {
      if (!size.getSymName()) {
        size.emitError() << "expected a module a size with the size as its name, got one without a name";
        return signalPassFailure();
      }
      names.push_back(*size.getSymName());
    }
    for (NamedAttribute attribute : sizes.front()->getDiscardableAttrs())
      getOperation()->setAttr(attribute.getName(), attribute.getValue());
    setSizes(getOperation(), names);
    for (auto [i, size] : llvm::enumerate(sizes)) {
      first = names.front();
      if (failed(i ? join(size) : take(size)))
        return signalPassFailure();
      size.erase();
    }
  }

private:
  /// The first size keeps all its names.
  LogicalResult take(ModuleOp size) {
    for (auto function : size.getOps<func::FuncOp>())
      variants[function.getSymName()].push_back(function);
    getOperation().getBody()->getOperations().splice(getOperation().getBody()->end(), size.getBody()->getOperations());
    return success();
  }

  LogicalResult rename(Operation *symbol, ModuleOp size) {
    StringAttr name =
        StringAttr::get(&getContext(), nameInSize(SymbolTable::getSymbolName(symbol), *size.getSymName()));
    if (failed(SymbolTable::replaceAllSymbolUses(symbol, name, size)))
      return symbol->emitError() << "expected uses of @" << SymbolTable::getSymbolName(symbol)
                                 << " that can be renamed";
    SymbolTable::setSymbolName(symbol, name);
    return success();
  }

  LogicalResult join(ModuleOp size) {
    for (auto state : llvm::make_early_inc_range(size.getOps<train::StateOp>()))
      if (failed(share(state, size)))
        return failure();
    bool differs = false;
    for (auto function : llvm::make_early_inc_range(size.getOps<func::FuncOp>())) {
      SmallVector<func::FuncOp> &known = variants[function.getSymName()];
      auto twin = llvm::find_if(known, [&](func::FuncOp other) {
        return function.isPublic() && other.getArgumentTypes() == function.getArgumentTypes();
      });
      if (twin != known.end()) {
        if (!isAlike(*twin, function))
          return function.emitError() << "expected inputs of @" << function.getSymName()
                                      << " that tell the sizes apart, got the same ones for '" << *size.getSymName()
                                      << "' as for another size, and other operations on them";
        function.erase();
        continue;
      }
      differs |= function.isPublic();
      known.push_back(function);
      if (failed(rename(function, size)))
        return failure();
      ++functions;
    }
    if (!differs)
      return size.emitError() << "expected a size that changes an input, got the inputs of '" << first
                              << "' or another size again for '" << *size.getSymName() << "'";
    getOperation().getBody()->getOperations().splice(getOperation().getBody()->end(), size.getBody()->getOperations());
    return success();
  }

  /// One state serves all sizes; a constant that hangs on the size is one a size.
  LogicalResult share(train::StateOp state, ModuleOp size) {
    auto known = getOperation().lookupSymbol<train::StateOp>(state.getSymName());
    if (!known)
      return success();
    bool same = known.getType() == state.getType() && known.getRole() == state.getRole();
    if (state.getRole() == train::Role::constant && !(same && isSame(known, state)))
      return rename(state, size);
    if (!same)
      return state.emitError() << "expected state '" << state.getSymName() << "' of the same type in all sizes, got "
                               << known.getType() << " and, for '" << *size.getSymName() << "', " << state.getType();
    state.erase();
    return success();
  }

  StringRef first; ///< name of the first size
  llvm::StringMap<SmallVector<func::FuncOp>> variants;
};

} // namespace
