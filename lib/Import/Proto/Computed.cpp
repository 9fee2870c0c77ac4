// SPDX-License-Identifier: Apache-2.0
// Parameters that an exporter's optimizer has folded away: exp(t) of a trained t is in the file as one number.
#include "Computed.h"

#include "Proto.h"
#include "Roles.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

proto::ComputedTensors::ComputedTensors(const ::onnx::GraphProto &graph) {
  std::optional<llvm::StringSet<>> parameters = exportedParameters(graph);
  if (!parameters)
    return;
  for (const auto &[name, origins] : foldedFrom(graph, /*all=*/true)) {
    bool computed = isMadeInCode(name) || llvm::any_of(origins, isMadeInCode);
    for (const std::string &origin : origins)
      if (parameters->contains(origin))
        byParameter[origin].push_back({name.str(), computed});
  }
}

/// Tensors of the file that ops of the module read, and whether they train.
static llvm::StringMap<bool> tensorsOf(ModuleOp module) {
  llvm::StringMap<bool> trains;
  for (auto state : module.getOps<train::StateOp>())
    trains[state.getTensorName()] = state.getRole() == train::Role::parameter && !state.getFrozen();
  module.walk([&](mpt::ConstantOp constant) {
    if (auto name = dyn_cast<NameLoc>(constant.getLoc()))
      trains.try_emplace(name.getName(), false);
  });
  return trains;
}

static std::string listed(ArrayRef<StringRef> names) {
  constexpr size_t most = 4;
  std::string text;
  for (StringRef name : names.take_front(most))
    text += (text.empty() ? "'" : ", '") + name.str() + "'";
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

void proto::ComputedTensors::warn(ModuleOp module, Location loc) const {
  constexpr StringLiteral advice = "; export with optimize=False, or give the module itself to mpt.compile";
  llvm::StringMap<bool> trains = tensorsOf(module);
  llvm::SetVector<StringRef> gone, numbers, trained, stale;
  for (const auto &[parameter, values] : byParameter) {
    auto own = trains.find(parameter);
    if (own != trains.end() && !own->second) // held, which is said elsewhere
      continue;
    for (const Folded &value : values) {
      auto known = trains.find(value.name);
      if (known == trains.end() || (known->second && (own != trains.end() || !value.computed)))
        continue;
      (own == trains.end() ? gone : trained).insert(parameter);
      (own == trains.end() ? numbers : stale).insert(value.name);
    }
  }
  if (!gone.empty())
    emitWarning(loc) << listed(gone.getArrayRef()) << ": of these parameters of the exporter's module the file has no "
                     << "more than what was computed from them (" << listed(numbers.getArrayRef())
                     << "), so that they do not train as they are" << advice;
  if (!stale.empty())
    emitWarning(loc) << listed(stale.getArrayRef()) << ": computed from " << listed(trained.getArrayRef())
                     << " by the exporter, and the same numbers for ever while these train" << advice;
}
