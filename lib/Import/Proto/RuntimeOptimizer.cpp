// SPDX-License-Identifier: Apache-2.0
// Optimizer models of ONNX Runtime, and the optimizer's state in its checkpoints.
#include "Artifacts.h"

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

static float numberOf(const NodeProto &node, StringRef name, float otherwise) {
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.type() == AttributeProto::INT ? static_cast<float>(attribute.i()) : attribute.f();
  return otherwise;
}

/// AdamWOptimizer as --optimizer says it. Mode 0 is torch.optim.AdamW; mode 1 adds epsilon to the second moment before
/// its correction and decays the new parameter (orttraining/training_ops/cpu/optimizer/adamw).
static std::string adamText(const NodeProto &node) {
  bool hat = numberOf(node, "adam_mode", 0) != 0, corrects = numberOf(node, "correct_bias", 1) != 0;
  auto text = [&](StringRef name, float otherwise) { return proto::numberText(numberOf(node, name, otherwise)); };
  return "adamw,lr=0.001,betas=" + text("alpha", 0.9f) + ":" + text("beta", 0.999f) + (hat ? ",eps-hat=" : ",eps=") +
         text("epsilon", 1e-8f) + ",weight-decay=" + text("weight_decay", 1e-2f) +
         (corrects ? "" : ",bias-correction=false");
}

LogicalResult proto::takeOptimizer(const ImportOptions &options, JointRoles &roles, Location loc) {
  if (options.optimizerModel.empty())
    return success();
  auto file = openFile("optimizer model", options.optimizerModel, loc);
  if (failed(file))
    return failure();
  Location at = namedLoc(loc.getContext(), options.optimizerModel);
  ModelProto model;
  if (failed(parseModel((*file)->getBuffer(), model, at)))
    return failure();
  std::string clipping;
  for (const NodeProto &node : model.graph().node()) {
    if (node.op_type() == "SGDOptimizerV2")
      roles.optimizer = "sgd,lr=0.001";
    if (node.op_type() == "AdamWOptimizer")
      roles.optimizer = adamText(node);
    if (node.op_type() != "InplaceClipGradNorm")
      continue;
    float norm = numberOf(node, "max_norm", 1);
    if (!(norm > 0))
      return emitError(namedLoc(loc.getContext(), nodeName(node)))
             << "expected a positive max_norm, got " << numberText(norm);
    roles.clipNorm = norm;
    clipping = ", gradients clipped to norm " + numberText(norm);
  }
  if (roles.optimizer.empty())
    return emitError(at) << "expected AdamWOptimizer or SGDOptimizerV2 in the optimizer model, got neither; give "
                            "--optimizer";
  roles.form.optimizer = roles.optimizer + clipping;
  return success();
}

LogicalResult proto::addOptimizerState(ModuleOp module, std::vector<CheckpointOptimizer> &groups, JointRoles &roles) {
  MLIRContext *context = module.getContext();
  llvm::StringMap<train::StateOp> states;
  for (auto state : module.getOps<train::StateOp>())
    states[state.getTensorName()] = state;
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (auto state : module.getOps<train::StateOp>())
    builder.setInsertionPointAfter(state);
  auto symbolOf = train::TrainDialect::symbolOf;
  auto add = [&](StringRef name, train::Role role, StringRef of, ElementsAttr value) {
    train::StateOp::create(builder, namedLoc(context, name), symbolOf(name),
                           cast<RankedTensorType>(value.getShapedType()), role,
                           of.empty() ? StringAttr() : builder.getStringAttr(symbolOf(of)), value, /*frozen=*/false,
                           /*from=*/StringAttr());
  };
  size_t tensors = 0;
  int64_t step = 0;
  for (CheckpointOptimizer &group : groups) {
    step = std::max(step, group.step);
    for (auto &[parameter, moments] : group.moments) {
      train::StateOp state = states.lookup(parameter);
      if (!state || state.getRole() != train::Role::parameter || state.getFrozen())
        continue;
      for (auto [i, moment] : llvm::enumerate(moments)) {
        std::string name = parameter + ".moment" + std::to_string(i + 1);
        FailureOr<ElementsAttr> value = tensorAttr(moment, /*folder=*/"", namedLoc(context, name));
        if (failed(value))
          return failure();
        if (value->getShapedType() != state.getType())
          return emitError(namedLoc(context, name))
                 << "expected a moment of type " << state.getType() << " for parameter '" << parameter
                 << "' in the checkpoint, got " << value->getShapedType();
        add(name, train::Role::slot, parameter, *value);
        ++tensors;
      }
    }
  }
  if (tensors == 0)
    return success();
  auto type = RankedTensorType::get({}, builder.getI64Type());
  add(train::TrainDialect::kSteps, train::Role::counter, "", DenseElementsAttr::get(type, step));
  roles.form.state =
      "of the optimizer in " + std::to_string(tensors) + " tensors after " + std::to_string(step) + " steps";
  return success();
}
