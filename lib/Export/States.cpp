// SPDX-License-Identifier: Apache-2.0
// The states of a module in an ONNX file: initializers, and what the file says of them.
#include "States.h"

#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mpt;

/// FP32 elements in another float type, each rounded to nearest even; null for contents that cannot be read.
static ElementsAttr convert(ElementsAttr value, RankedTensorType type) {
  auto target = dyn_cast<FloatType>(type.getElementType());
  if (!target || !value.getElementType().isF32())
    return {};
  auto round = [&](float number) {
    APFloat result(number);
    bool loses;
    result.convert(target.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return result;
  };
  if (auto dense = dyn_cast<DenseElementsAttr>(value); dense && dense.isSplat())
    return DenseElementsAttr::get(type, round(dense.getSplatValue<float>()));
  SmallVector<APFloat> numbers;
  auto resource = dyn_cast<DenseF32ResourceElementsAttr>(value);
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    for (float number : dense.getValues<float>())
      numbers.push_back(round(number));
  else if (auto contents = resource ? resource.tryGetAsArrayRef() : std::nullopt)
    for (float number : *contents)
      numbers.push_back(round(number));
  else
    return {};
  return DenseElementsAttr::get(type, ArrayRef<APFloat>(numbers));
}

FailureOr<OnnxValue> States::get(StringRef name) {
  auto [known, isNew] = values.try_emplace(name);
  if (!isNew)
    return known->second;
  auto state = module.lookupSymbol<train::StateOp>(name);
  auto type = cast<RankedTensorType>(state.getType());
  ElementsAttr value = initialValue(state);
  if (!value)
    return state.emitOpError() << "expected an initial value to export";
  // Narrowing to 16 bits happens while the file is written.
  bool streams = value.getElementType() == type.getElementType() ||
                 (value.getElementType().isF32() && (type.getElementType().isF16() || type.getElementType().isBF16()));
  if (!streams && !(value = convert(value, type)))
    return state.emitOpError() << "expected readable FP32 contents to store as " << type.getElementType();
  return known->second = writer.initializer(value, state.getTensorName(), type.getElementType());
}

std::string States::toJSON(const llvm::StringMap<OnnxValue> &updates) {
  llvm::json::Object all;
  for (auto state : module.getOps<train::StateOp>()) {
    auto found = values.find(state.getSymName());
    if (found == values.end())
      continue;
    llvm::json::Object entry{{"role", train::stringifyRole(state.getRole())}};
    if (state.getOf())
      entry["of"] = train::TrainDialect::tensorName(*state.getOf());
    if (state.getFrozen())
      entry["frozen"] = true;
    if (found->second != state.getTensorName())
      entry["initializer"] = found->second;
    if (auto next = updates.find(state.getSymName()); next != updates.end())
      entry["next"] = next->second;
    all[state.getTensorName()] = std::move(entry);
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(all));
  return text;
}

ElementsAttr States::initialValue(train::StateOp state) {
  if (ElementsAttr value = state.getValueAttr())
    return value;
  auto type = cast<RankedTensorType>(state.getType());
  if (StringAttr from = state.getFromAttr())
    if (auto source = module.lookupSymbol<train::StateOp>(from.getValue()); source && source.getValueAttr())
      return source.getValueAttr();
  if (state.getRole() == train::Role::slot || state.getRole() == train::Role::accumulator)
    return cast<ElementsAttr>(Builder(state.getContext()).getZeroAttr(type));
  return {};
}
