// SPDX-License-Identifier: Apache-2.0
// Parameters are what the file declares, or else found by use: what feeds a weight, bias or scale operand.
// Matcher: nodes of a file by their type, and what their subgraphs yield.
#include "Roles.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;

namespace {
/// Constants of up to this many elements are ops in the function, larger ones are states.
constexpr int64_t smallConstant = 64;

struct Use {
  bool weight = false;    // a weight, bias or scale operand
  bool statistic = false; // mean or variance of a batch normalization
  bool classes = false;   // weights of a loss's classes, which have no gradient
};
} // namespace

/// True when operand `index` of the op is one that training changes.
static bool isWeightOperand(onnx::NodeOp node, unsigned index) {
  if (node.getDomain() == "com.microsoft")
    return llvm::StringSwitch<bool>(node.getOpType())
        .Cases({"BiasGelu", "FastGelu", "BiasSplitGelu", "BiasAdd"}, index == 1)
        .Cases({"LayerNormalization", "SimplifiedLayerNormalization", "GroupNorm", "Attention"},
               index == 1 || index == 2)
        .Cases({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}, index >= 2)
        .Case("MultiHeadAttention", index == 3)
        .Case("EmbedLayerNormalization", index >= 2 && index <= 6)
        .Case("FusedMatMul", true)
        .Cases({"LSTMTraining", "GRUTraining"}, (index >= 1 && index <= 3) || index == 7)
        .Case("BatchNormInternal", index == 1 || index == 2)
        .Default(false);
  return llvm::StringSwitch<bool>(node.getOpType())
      .Cases({"Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization"},
             index == 1 || index == 2)
      .Cases({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"}, index == 1 || index == 2)
      .Cases({"LSTM", "GRU", "RNN"}, (index >= 1 && index <= 3) || index == 7)
      .Cases({"Gemm", "MatMul", "Einsum", "Add", "Mul", "Sub", "Div"}, true)
      .Case("PRelu", index == 1)
      .Cases({"Gather", "GatherND", "GatherElements"}, index == 0)
      .Default(false);
}

/// Ops whose result is the operand's values in another place or type.
static bool isMovement(onnx::NodeOp node) {
  return llvm::StringSwitch<bool>(node.getOpType())
      .Cases({"Identity", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Cast", "CastLike"}, true)
      .Cases({"Slice", "Split", "Concat", "Expand", "Pad", "Tile", "SplitToSequence", "SequenceAt"}, true)
      .Default(false);
}

/// True when `value` is `argument`, perhaps under other names.
static bool isSame(Value value, Value argument) {
  while (auto node = value.getDefiningOp<onnx::NodeOp>()) {
    if (node.getOpType() != "Identity" || node.getInputs().size() != 1)
      return false;
    value = node.getInputs().front();
  }
  return value == argument;
}

/// Where a loop has its operand `index`, or slices of it: as an argument of its body, and as a result where it is
/// carried unchanged. A carried value that changes from step to step is a state, as the first one of a recurrence is,
/// and leads nowhere.
static SmallVector<Value> throughLoop(onnx::NodeOp node, unsigned index) {
  bool loop = node.getOpType() == "Loop", scan = node.getOpType() == "Scan";
  if (!node.getDomain().empty() || !(loop || scan) || node.getBodies().size() != 1)
    return {};
  Block &body = node.getBodies().front().front();
  unsigned operands = node.getInputs().size(), arguments = body.getNumArguments();
  unsigned lengths = operands - std::min(arguments, operands); // Scan-8 has an operand for them, and its body none
  unsigned argument = index - lengths;
  if (index < lengths || argument >= arguments || (loop && argument < 2))
    return {};
  Value inside = body.getArgument(argument);
  auto scanned = node.getAttrs().getAs<IntegerAttr>("num_scan_inputs");
  if (scan && scanned && argument + scanned.getInt() >= arguments)
    return {inside};
  // A loop's body is given a counter and a condition, and yields a condition.
  OperandRange yielded = cast<onnx::YieldOp>(body.getTerminator()).getValues();
  unsigned next = argument - loop, result = argument - 2 * loop;
  if (next >= yielded.size() || result >= node.getNumResults() || !isSame(yielded[next], inside))
    return {};
  return {inside, node.getResult(result)};
}

/// The values that have what `operand` has, in another place, type or graph.
static SmallVector<Value> movedTo(OpOperand &operand) {
  if (auto yield = dyn_cast<onnx::YieldOp>(operand.getOwner())) {
    auto node = dyn_cast<onnx::NodeOp>(yield->getParentOp());
    if (!node || node.getOpType() != "If" || operand.getOperandNumber() >= node.getNumResults())
      return {};
    return {node.getResult(operand.getOperandNumber())};
  }
  auto node = dyn_cast<onnx::NodeOp>(operand.getOwner());
  if (!node)
    return {};
  if (isMovement(node) && (operand.getOperandNumber() == 0 || node.getOpType() == "Concat"))
    return SmallVector<Value>(node.getResults());
  return throughLoop(node, operand.getOperandNumber());
}

/// How `value` is used, through chains of movements of any length, in and out of subgraphs.
static Use usesOf(Value start) {
  Use use;
  SmallPtrSet<void *, 8> seen{start.getAsOpaquePointer()};
  SmallVector<Value> work{start};
  while (!work.empty())
    for (OpOperand &operand : work.pop_back_val().getUses()) {
      for (Value value : movedTo(operand))
        if (seen.insert(value.getAsOpaquePointer()).second)
          work.push_back(value);
      auto node = dyn_cast<onnx::NodeOp>(operand.getOwner());
      if (!node)
        continue;
      unsigned index = operand.getOperandNumber();
      bool norm = llvm::is_contained({"BatchNormalization", "BatchNormInternal"}, node.getOpType());
      use.statistic |= norm && index >= 3;
      use.classes |=
          index == 2 && llvm::is_contained({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}, node.getOpType());
      use.weight |= isWeightOperand(node, index);
    }
  return use;
}

static FailureOr<SmallVector<llvm::Regex>> compile(const std::vector<std::string> &expressions, Location loc) {
  SmallVector<llvm::Regex> result;
  for (const std::string &text : expressions) {
    result.emplace_back("^(" + text + ")$");
    std::string error;
    if (!result.back().isValid(error))
      return emitError(loc) << "expected a regular expression, got '" << text << "': " << error;
  }
  return result;
}

static bool matches(MutableArrayRef<llvm::Regex> expressions, StringRef name) {
  return llvm::any_of(expressions, [&](llvm::Regex &regex) { return regex.match(name); });
}

/// Names that torch's exporters give to what they lift or fold: those of operators, with a number.
static bool isGenerated(StringRef name) {
  name = name.rtrim("0123456789");
  while (name.consume_back("_cast") || name.consume_back("_default") || name.consume_back("_"))
    name = name.rtrim("0123456789");
  return llvm::StringSwitch<bool>(name)
      .Cases({"", "val", "lifted_tensor", "c_lifted_tensor", "_tensor_constant", "tensor_constant", "constant"}, true)
      .Cases({"scalar_tensor", "lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "copy", "_to_copy"}, true)
      .Cases({"min_val", "max_val", "convert_element_type", "arange", "full", "full_like", "zeros", "ones"}, true)
      .Cases({"zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like", "new_empty"}, true)
      .Cases({"eye", "linspace", "logspace", "triu", "tril", "tri", "diag", "outer", "one_hot", "meshgrid"}, true)
      .Cases({"view", "reshape", "expand", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "repeat"}, true)
      .Cases({"cat", "stack", "slice", "select", "index", "getitem", "gather", "roll", "flip", "tile", "pad"}, true)
      .Cases({"add", "sub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "reciprocal", "abs"}, true)
      .Cases({"sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "where", "masked_fill"}, true)
      .Cases({"rsub", "floor", "ceil", "round", "trunc", "sign", "square", "fmod", "remainder", "log1p", "exp2"}, true)
      .Cases({"minimum", "maximum", "clamp_min", "clamp_max", "type_as", "contiguous", "repeat_interleave"}, true)
      .Cases({"scatter", "scatter_add", "index_put", "index_select", "select_scatter", "slice_scatter"}, true)
      .Cases({"diagonal", "diag_embed", "split", "chunk", "unbind", "unfold", "floor_divide"}, true)
      .Cases({"sum", "mean", "prod", "cumsum", "cumprod", "matmul", "mm", "bmm", "einsum", "clamp", "to"}, true)
      .Default(false);
}

/// The frameworks' names of trained tensors are paths, of a model's own tensors ("cls_token") without a dot; what their
/// exporters add ("val_3", "onnx::Mul_12") is not. Buffers have paths too: these are the customary names of statistics,
/// rotary tables, schedules of noise and masks.
static bool isTorchPath(StringRef name) {
  StringRef last = name.substr(name.rfind('.') + 1);
  bool buffer = llvm::StringSwitch<bool>(last)
                    .Cases({"running_mean", "running_var", "num_batches_tracked"}, true)
                    .Cases({"cos", "sin", "cos_cached", "sin_cached", "inv_freq", "position_ids"}, true)
                    .Cases({"betas", "alphas", "alphas_cumprod", "sqrt_alphas_cumprod"}, true)
                    .Cases({"mask", "attn_mask", "causal_mask", "masked_bias", "relative_position_index"}, true)
                    .Default(false);
  // Tensors in the code of a module are lifted to it.
  buffer |= llvm::is_contained({"lifted_tensor_", "_tensor_constant"}, last.rtrim("0123456789"));
  // Slashes are of a node's result that an optimizer has folded.
  bool plain = !name.contains('/') && !name.contains("::");
  return !last.empty() && !buffer && plain && (name.contains('.') || !isGenerated(name));
}

/// What is added to scores before a softmax so that some count nothing: 0 and one number far below.
static bool isMask(train::StateOp state) {
  auto holds = [](auto values) {
    bool masks = false;
    for (double value : values) {
      if (value != 0 && !(value <= -1e3))
        return false;
      masks |= value != 0;
    }
    return masks;
  };
  auto type = cast<RankedTensorType>(state.getType());
  auto values = dyn_cast_or_null<DenseFPElementsAttr>(state.getValueAttr());
  if (values && values.isSplat()) // of any extents: nobody wrote so many elements
    return type.getNumElements() > 1 && holds(ArrayRef(values.getSplatValue<APFloat>().convertToDouble()));
  if (values)
    return type.getNumElements() > 1 && holds(llvm::map_range(values.getValues<APFloat>(), [](const APFloat &value) {
             return value.convertToDouble();
           }));
  auto resource = dyn_cast_or_null<DenseResourceElementsAttr>(state.getValueAttr());
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  return blob && type.getElementType().isF32() && holds(blob->getDataAs<float>());
}

static llvm::StringSet<> namesIn(const llvm::StringMap<std::string> &map) {
  llvm::StringSet<> names;
  for (const auto &entry : map)
    names.insert(entry.getValue());
  return names;
}

/// Whether one of the operations reads the state.
static bool isReadFor(const DenseSet<Operation *> &behind, train::ReadOp read) {
  return llvm::any_of(read->getUsers(),
                      [&](Operation *user) { return behind.contains(read->getBlock()->findAncestorOpInBlock(*user)); });
}

/// The operations that the result `name` of the module's graph is computed by.
static DenseSet<Operation *> operationsBehind(ModuleOp module, StringRef name) {
  DenseSet<Operation *> behind;
  auto main = module.lookupSymbol<func::FuncOp>("main");
  SmallVector<Value> work;
  for (auto [i, value] : llvm::enumerate(main.getBody().front().getTerminator()->getOperands()))
    if (auto given = getResultAttr<MPTDialect::NameAttrHelper>(main, i); given && given.getValue() == name)
      work.push_back(value);
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp(); op && behind.insert(op).second) {
      llvm::append_range(work, op->getOperands());
      op->walk([&](Operation *nested) { llvm::append_range(work, nested->getOperands()); });
    }
  return behind;
}

/// Says which weights are not trained since they are initializers of a subgraph in a function: each call has its copy.
static void warnOfInnerWeights(ModuleOp module, bool torch) {
  module.walk([&](mpt::ConstantOp constant) {
    auto node = dyn_cast<onnx::NodeOp>(constant->getParentOp());
    auto name = dyn_cast<NameLoc>(constant.getLoc());
    auto type = cast<RankedTensorType>(constant.getType());
    if (!node || !name || !isa<FloatType>(type.getElementType()) || type.getRank() == 0 ||
        (torch && !isTorchPath(name.getName())) || !usesOf(constant.getResult()).weight)
      return;
    emitWarning(node.getLoc()) << "'" << name.getName().getValue() << "' is not trained, as it is an initializer of a "
                               << "subgraph in a function; make it an input of the function";
  });
}

LogicalResult mpt::assignRoles(ModuleOp module, const ImportOptions &options, const proto::JointRoles &roles,
                               const proto::DeclaredParameters &declared) {
  auto train = compile(options.train, module.getLoc()), freeze = compile(options.freeze, module.getLoc());
  if (failed(train) || failed(freeze))
    return failure();
  auto producer = getAttr<mpt::onnx::ONNXDialect::ProducerAttrHelper>(module);
  bool torch = producer && producer.getValue().starts_with("pytorch");
  warnOfInnerWeights(module, torch);
  llvm::StringSet<> trained = namesIn(roles.gradients), renewed = namesIn(roles.next);
  // What the file trains, also where its backward pass is made anew.
  bool fileSays = roles.any() && (!roles.own || !trained.empty());
  // What only a backward pass reads are numbers of its formulas.
  DenseSet<Operation *> forward = operationsBehind(module, fileSays ? StringRef(roles.loss) : StringRef());
  llvm::StringMap<train::ReadOp> reads;
  module.walk([&](train::ReadOp read) { reads[read.getState()] = read; });
  for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>())) {
    StringRef name = state.getTensorName();
    train::ReadOp read = reads.lookup(state.getSymName());
    Use use = read ? usesOf(read.getValue()) : Use();
    auto type = cast<RankedTensorType>(state.getType());
    auto said = declared.find(name);
    bool counts = said != declared.end() ? said->second : torch ? isTorchPath(name) : use.weight && type.getRank() >= 1;
    bool parameter = read && !read->use_empty() && !use.statistic && !use.classes && counts && !isMask(state) &&
                     (forward.empty() || isReadFor(forward, read));
    bool frozen = matches(*freeze, name);
    // Who says what is trained says all of it.
    if (!train->empty())
      parameter = matches(*train, name);
    parameter |= frozen;
    bool changes = false; // a state that is no parameter
    if (fileSays) {
      bool wanted = trained.contains(name), unnamed = !train->empty() && !parameter;
      changes = renewed.contains(name) && !wanted && (!trained.empty() || !parameter);
      frozen |= wanted ? unnamed : parameter && !renewed.contains(name);
      parameter |= wanted;
    } else {
      changes = renewed.contains(name) && !parameter && !trained.contains(name);
    }
    bool isCounter = changes && !isa<FloatType>(type.getElementType());
    train::Role role = isCounter       ? train::Role::counter
                       : changes       ? train::Role::statistic
                       : parameter     ? train::Role::parameter
                       : use.statistic ? train::Role::statistic
                                       : train::Role::constant;
    state.setRoleAttr(train::RoleAttr::get(module.getContext(), role));
    state.setFrozen(frozen);
    if (role != train::Role::constant || type.getNumElements() > smallConstant || !read)
      continue;
    OpBuilder builder(read);
    Value value = mpt::ConstantOp::create(builder, read.getLoc(), *state.getValue());
    read.replaceAllUsesWith(value);
    read.erase();
    state.erase();
  }
  return success();
}

LogicalResult mpt::freezeParameters(ModuleOp module, const ImportOptions &options) {
  auto freeze = compile(options.freeze, module.getLoc());
  if (failed(freeze))
    return failure();
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::parameter && matches(*freeze, state.getTensorName()))
      state.setFrozen(true);
  return success();
}
