// SPDX-License-Identifier: Apache-2.0
// Parameters that a file stores in 16 bits or fewer: training keeps them in FP32, and policies decide on narrow copies.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "mlir/IR/DialectResourceBlobManager.h"

#include <cstring>

using namespace mlir;
using namespace mpt;

/// Constants of up to this many elements are attributes, larger ones resources.
static constexpr int64_t smallConstant = 1024;

static ElementsAttr widened(ElementsAttr value, FloatType from, RankedTensorType wide) {
  std::vector<float> elements;
  elements.reserve(wide.getNumElements());
  auto add = [&](APFloat element) {
    bool loses;
    element.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &loses);
    elements.push_back(element.convertToFloat());
  };
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    for (const APFloat &element : dense.getValues<APFloat>())
      add(element);
  } else {
    auto resource = dyn_cast<DenseResourceElementsAttr>(value);
    AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
    size_t bytes = from.getWidth() / 8;
    if (!blob || blob->getData().size() != bytes * static_cast<size_t>(wide.getNumElements()))
      return {};
    for (size_t i = 0; i < blob->getData().size(); i += bytes) {
      uint64_t bits = 0;
      memcpy(&bits, blob->getData().data() + i, bytes);
      add(APFloat(from.getFloatSemantics(), APInt(from.getWidth(), bits)));
    }
  }
  if (wide.getNumElements() <= smallConstant)
    return DenseElementsAttr::get(wide, ArrayRef<float>(elements));
  Attribute large = DenseF32ResourceElementsAttr::get(
      wide, "wide", HeapAsmResourceBlob::allocateAndCopyInferAlign(ArrayRef<float>(elements)));
  return cast<ElementsAttr>(large);
}

LogicalResult mpt::widenParameters(ModuleOp module) {
  llvm::StringMap<RankedTensorType> narrow;
  for (auto state : module.getOps<train::StateOp>()) {
    auto type = cast<RankedTensorType>(state.getType());
    auto element = dyn_cast<FloatType>(type.getElementType());
    if (state.getRole() != train::Role::parameter || state.getFrozen() || !element || element.getWidth() >= 32)
      continue;
    RankedTensorType wide = type.clone(Float32Type::get(module.getContext()));
    if (ElementsAttr value = state.getValueAttr()) {
      ElementsAttr converted = widened(value, element, wide);
      if (!converted)
        return state.emitError() << "expected the contents of '" << state.getSymName() << "' as " << type;
      state.setValueAttr(converted);
    }
    state.setType(wide);
    narrow[state.getSymName()] = type;
  }
  if (narrow.empty())
    return success();
  SmallVector<train::ReadOp> reads;
  module.walk([&](train::ReadOp read) { reads.push_back(read); });
  for (train::ReadOp read : reads)
    if (RankedTensorType type = narrow.lookup(read.getState())) {
      OpBuilder builder(read);
      GraphBuilder b(builder, read.getLoc());
      Value wide = train::ReadOp::create(builder, read.getLoc(), type.clone(builder.getF32Type()), read.getStateAttr());
      read.replaceAllUsesWith(b.cast(wide, type.getElementType()));
      read.erase();
    }
  return success();
}
