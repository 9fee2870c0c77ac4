// SPDX-License-Identifier: Apache-2.0
// The optimizers of a step with all their settings, for readers of the manifest.
#include "OptimizerGroups.h"

#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mpt;

static DictionaryAttr settingsOf(Builder &builder, const OptimizerSpec &spec, ArrayRef<Attribute> parameters) {
  NamedAttrList settings;
  auto number = [&](StringRef name, double value) { settings.set(name, builder.getF64FloatAttr(value)); };
  settings.set("kind", builder.getStringAttr(stringifyOptimizerKind(spec.kind)));
  settings.set("parameters", builder.getArrayAttr(parameters));
  settings.set("scheduled", builder.getBoolAttr(!spec.schedule.isConstant()));
  number("lr", spec.lr);
  number("weight_decay", spec.weightDecay);
  switch (spec.kind) {
  case OptimizerKind::sgd:
    number("momentum", spec.momentum);
    number("dampening", spec.dampening);
    settings.set("nesterov", builder.getBoolAttr(spec.nesterov));
    break;
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
    settings.set("betas", builder.getF64ArrayAttr({spec.beta1, spec.beta2}));
    number("eps", spec.epsilon);
    settings.set("eps_hat", builder.getBoolAttr(spec.epsilonHat));
    settings.set("bias_correction", builder.getBoolAttr(spec.correctsBias));
    break;
  default: // the text has the settings of optimizers whose state nobody takes out
    break;
  }
  return settings.getDictionary(builder.getContext());
}

Attribute mpt::withGroups(ModuleOp module, Attribute optimizer) {
  auto entries = dyn_cast<DictionaryAttr>(optimizer);
  auto text = entries ? entries.getAs<StringAttr>("spec") : StringAttr();
  auto parsed = parseOptimizerSpecs(text ? text.getValue() : "");
  if (!parsed) {
    llvm::consumeError(parsed.takeError()); // a file's own update, which has no text
    return optimizer;
  }
  Builder builder(module.getContext());
  SmallVector<SmallVector<Attribute>> parameters(parsed->size());
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::parameter && !state.getFrozen())
      if (const OptimizerSpec *group = optimizerFor(*parsed, state.getTensorName()))
        parameters[group - parsed->data()].push_back(builder.getStringAttr(state.getTensorName()));
  SmallVector<Attribute> groups;
  for (auto [spec, names] : llvm::zip_equal(*parsed, parameters))
    groups.push_back(settingsOf(builder, spec, names));
  NamedAttrList result(entries);
  result.set("groups", builder.getArrayAttr(groups));
  return result.getDictionary(module.getContext());
}
