// SPDX-License-Identifier: Apache-2.0
// Parameters are declared by the file, or else found by use: tensors that feed a weight, bias or scale operand.
// Matcher: nodes of a file by their type, and the values that their subgraphs yield.
#include "Roles.h"

#include "Uses.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FixedTensors.h"
#include "mpt/Support/NearNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;

namespace {
/// Constants of up to this many elements are ops in the function, larger ones are states.
constexpr int64_t smallConstant = 64;

} // namespace

/// The expressions of `flag`, each of which has to match one of the names.
static FailureOr<SmallVector<llvm::Regex>> compile(StringRef flag, const std::vector<std::string> &expressions,
                                                   ArrayRef<StringRef> names, Location loc) {
  SmallVector<llvm::Regex> result;
  for (const std::string &text : expressions) {
    llvm::Regex &regex = result.emplace_back("^(" + text + ")$");
    std::string error;
    if (!regex.isValid(error))
      return emitError(loc) << "expected a regular expression, got '" << text << "': " << error;
    if (llvm::none_of(names, [&](StringRef name) { return regex.match(name); }))
      return emitError(loc) << flag << ": expected an expression that matches a whole name, got '" << text
                            << "', which no tensor of the file has; " << whatThereIs(text, names) << " [mpt-no-match]";
  }
  return result;
}

/// Names of states, and with `constants` of tensors that are none.
static SmallVector<StringRef> tensorNames(ModuleOp module, bool constants) {
  SmallVector<StringRef> names;
  for (auto state : module.getOps<train::StateOp>())
    names.push_back(state.getTensorName());
  module.walk([&](mpt::ConstantOp constant) {
    if (auto name = dyn_cast<NameLoc>(constant.getLoc()); name && constants)
      names.push_back(name.getName());
  });
  return names;
}

static bool matches(MutableArrayRef<llvm::Regex> expressions, StringRef name) {
  return llvm::any_of(expressions, [&](llvm::Regex &regex) { return regex.match(name); });
}

namespace {
/// Whether and how a tool made a value, by its name: the name of an operator, with a number.
enum class Made { No, Somehow, ByMovement };
} // namespace

/// By torch's exporters, of values that they lift or fold.
static Made madeByTorch(StringRef name) {
  name = name.rtrim("0123456789");
  while (name.consume_back("_cast") || name.consume_back("_default") || name.consume_back("_"))
    name = name.rtrim("0123456789");
  return llvm::StringSwitch<Made>(name)
      .Cases({"", "val", "lifted_tensor", "c_lifted_tensor", "_tensor_constant", "tensor_constant", "constant"},
             Made::Somehow)
      .Cases({"scalar_tensor", "min_val", "max_val", "convert_element_type", "arange", "full", "full_like", "zeros"},
             Made::Somehow)
      .Cases({"ones", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like"},
             Made::Somehow)
      .Cases({"new_empty", "eye", "linspace", "logspace", "triu", "tril", "tri", "diag", "outer", "one_hot"},
             Made::Somehow)
      .Cases({"add", "sub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "reciprocal", "abs"},
             Made::Somehow)
      .Cases({"sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "where", "masked_fill"}, Made::Somehow)
      .Cases({"softplus", "gelu", "silu", "mish", "elu", "expm1", "erf", "linalg_vector_norm"}, Made::Somehow)
      .Cases({"rsub", "floor", "ceil", "round", "trunc", "sign", "square", "fmod", "remainder", "log1p", "exp2"},
             Made::Somehow)
      .Cases({"minimum", "maximum", "clamp_min", "clamp_max", "scatter", "scatter_add", "index_put", "meshgrid"},
             Made::Somehow)
      .Cases({"select_scatter", "slice_scatter", "diag_embed", "floor_divide", "clamp", "to", "pad"}, Made::Somehow)
      .Cases({"sum", "mean", "prod", "cumsum", "cumprod", "matmul", "mm", "bmm", "einsum", "linear"}, Made::Somehow)
      .Cases({"view", "reshape", "expand", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "repeat"},
             Made::ByMovement)
      .Cases({"cat", "stack", "slice", "select", "index", "getitem", "gather", "roll", "flip", "tile"},
             Made::ByMovement)
      .Cases({"lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "copy", "_to_copy", "type_as"},
             Made::ByMovement)
      .Cases({"contiguous", "repeat_interleave", "index_select", "diagonal", "split", "chunk", "unbind", "unfold"},
             Made::ByMovement)
      .Default(Made::No);
}

/// By torch's exporters, or by the operator whose result an optimizer has folded: /block/Transpose_1_output_0. A module
/// may call a parameter head_output_bias.
static Made madeByTools(StringRef name) {
  auto [node, result] = name.rsplit("_output_");
  if (result.empty() || !llvm::all_of(result, llvm::isDigit) || !node.contains('/'))
    return madeByTorch(name);
  StringRef op = node.substr(node.rfind('/') + 1);
  if (op.rtrim("0123456789").ends_with("_"))
    op = op.rtrim("0123456789").drop_back();
  return moves("", op) && op != "Constant" ? Made::ByMovement : Made::Somehow; // a number in the code of a module
}

/// Tensors that were one have the same name with a number behind it.
static StringRef withoutNumber(StringRef name) {
  auto [first, number] = name.rsplit('.');
  return !number.empty() && llvm::all_of(number, llvm::isDigit) && !first.contains('.') ? first : name;
}

bool mpt::isGeneratedName(StringRef name) { return madeByTools(withoutNumber(name)) != Made::No; }

/// Values of a module's code are named after the operation that makes them; a number tells nothing.
bool mpt::isMadeInCode(StringRef name) {
  name = withoutNumber(name);
  StringRef last = name.substr(name.rfind('.') + 1), word = last.rtrim("0123456789");
  return madeByTools(last) == Made::Somehow && !word.empty() && word != "val_" && word != "val";
}

bool mpt::isBufferName(StringRef name) {
  StringRef last = name.substr(name.rfind('.') + 1), word = last.substr(last.rfind('_') + 1);
  return word == "cos" || word == "sin" ||
         llvm::StringSwitch<bool>(last)
             .Cases({"running_mean", "running_var", "num_batches_tracked"}, true)
             .Cases({"cos_cached", "sin_cached", "inv_freq", "position_ids"}, true)
             .Cases({"betas", "alphas", "alphas_cumprod", "sqrt_alphas_cumprod"}, true)
             .Cases({"mask", "attn_mask", "causal_mask", "masked_bias", "relative_position_index"}, true)
             .Default(false);
}

/// The frameworks' names of trained tensors are paths, of a model's own tensors ("cls_token") without a dot; the names
/// that their exporters add ("val_3", "onnx::Mul_12") are not. Buffers have paths too.
static bool isTorchPath(StringRef name) {
  StringRef last = name.substr(name.rfind('.') + 1);
  // Tensors in the code of a module are lifted to it.
  bool buffer =
      isBufferName(name) || llvm::is_contained({"lifted_tensor_", "_tensor_constant"}, last.rtrim("0123456789"));
  // Slashes are of a node's result that an optimizer has folded.
  bool plain = !name.contains('/') && !name.contains("::");
  return !last.empty() && !buffer && plain && (name.contains('.') || !isGeneratedName(name));
}

/// Why the tensor is no parameter; empty for one. The exporter's declaration comes first, then values and uses, and
/// names decide the cases that these leave open. A tensor that the file's step has renewed is no number of a formula.
static std::string whyHeld(train::StateOp state, const TensorUse &use, const proto::Declared *declared, bool torch,
                           bool isRenewed) {
  StringRef name = state.getTensorName();
  bool isList = cast<RankedTensorType>(state.getType()).getRank() >= 1;
  if (use.classes)
    return "weights of a loss's classes";
  if (use.quantizes)
    return "scale of a quantization";
  if (isMask(state.getValueAttr()))
    return "mask";
  if (use.angle)
    return "feeds an angle";
  // Folded from a weight, bias or token by a movement, it is one. Other tools drop the exporter's declaration of that.
  Made made = madeByTools(withoutNumber(name));
  bool folds = use.weight || use.beside || use.token;
  bool isFolded = declared ? *declared == proto::Declared::Folded : folds && made == Made::ByMovement;
  if (declared && (*declared == proto::Declared::Other || (isFolded && !folds)))
    return use.initialState ? "initial state" : "no parameter of the exporter's module";
  StringRef meaning = fixedMeaning(state.getValueAttr(), use.weight);
  if (declared && (*declared == proto::Declared::Parameter || (*declared == proto::Declared::Moved && meaning.empty())))
    return "";
  if (isBufferName(name))
    return "called like a buffer";
  if (!meaning.empty())
    return meaning.str();
  // Hard swish adds 3 to the result of a layer, and recurrences begin with a zero that is expanded.
  bool hasWord = name.contains('.') && !llvm::all_of(name.substr(name.rfind('.') + 1), llvm::isDigit); // fc.bias
  bool isNumber = !isRenewed && isNumberOfFormula(state.getValueAttr()) && !(isTorchPath(name) && (torch || hasWord));
  bool isWeight = use.weight && (isList || (isTorchPath(name) && !isNumber));
  if (isFolded || isWeight || (use.beside && !isNumber && !isMadeInCode(name)))
    return "";
  if (use.standardizes)
    return "standardizes an input";
  // A view of a parameter was folded.
  bool isFunction = use.function && isList && cast<RankedTensorType>(state.getType()).getNumElements() > 1;
  if (torch && made == Made::No && (isFunction || use.logarithm))
    return "";
  // Rows beside a layer's result are a token, or the zeros of a padding.
  bool isToken = use.token && name.contains('.') && !isZero(state.getValueAttr());
  bool isParameter = (use.either || isToken) && isList && made == Made::No && !isNumber;
  if (torch ? isTorchPath(name) : isParameter)
    return "";
  if (use.initialState)
    return "initial state";
  // Exporters fold look-ups in a table of zeros, as one of relative positions is before training.
  if (use.either && isList && isZero(state.getValueAttr()))
    return "zeros: a mask, or a table before training";
  return use.either ? "constant of arithmetic" : use.reader.empty() ? "moved only" : "operand of " + use.reader.str();
}

/// Numbers of formulas are not told: who would train them?
static bool isWorthSaying(StringRef name, RankedTensorType type, const TensorUse &use, bool torch) {
  return !use.statistic && (type.getNumElements() > 1 || (torch && isTorchPath(name)));
}

/// For the compiler's line, the manifest and reports: tensors that do not train, with the reason.
static void noteHeld(ModuleOp module, ArrayRef<std::pair<std::string, std::string>> held) {
  Builder builder(module.getContext());
  NamedAttrList entries, manifest(getAttr<MPTDialect::ManifestAttrHelper>(module));
  for (const auto &[name, why] : held)
    if (!name.empty())
      entries.set(name, builder.getStringAttr(why));
  manifest.set("held", entries.getDictionary(module.getContext()));
  setAttr<MPTDialect::ManifestAttrHelper>(module, manifest.getDictionary(module.getContext()));
}

/// The same of parameters that the file has as one.
static void noteSeparated(ModuleOp module, const llvm::StringMap<std::string> &separated) {
  NamedAttrList entries, manifest(getAttr<MPTDialect::ManifestAttrHelper>(module));
  for (auto state : module.getOps<train::StateOp>())
    if (auto of = separated.find(state.getTensorName());
        of != separated.end() && state.getRole() == train::Role::parameter)
      entries.set(of->getKey(), StringAttr::get(module.getContext(), of->getValue()));
  if (entries.empty())
    return;
  manifest.set("separated", entries.getDictionary(module.getContext()));
  setAttr<MPTDialect::ManifestAttrHelper>(module, manifest.getDictionary(module.getContext()));
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
        (torch && !isTorchPath(name.getName())))
      return;
    TensorUse use = usesOf(constant.getResult());
    if (!use.weight && !use.beside && !use.either)
      return;
    emitWarning(node.getLoc()) << "'" << name.getName().getValue() << "' is not trained, as it is an initializer of a "
                               << "subgraph in a function; make it an input of the function";
  });
}

LogicalResult mpt::assignRoles(ModuleOp module, const ImportOptions &options, const proto::JointRoles &roles,
                               const proto::DeclaredParameters &declared,
                               const llvm::StringMap<std::string> &separated) {
  auto train = compile("--train", options.train, tensorNames(module, /*constants=*/false), module.getLoc());
  auto freeze = compile("--freeze", options.freeze, tensorNames(module, /*constants=*/true), module.getLoc());
  if (failed(train) || failed(freeze))
    return failure();
  auto producer = getAttr<mpt::onnx::ONNXDialect::ProducerAttrHelper>(module);
  bool torch = producer && producer.getValue().starts_with("pytorch");
  warnOfInnerWeights(module, torch);
  llvm::StringSet<> trained = namesIn(roles.gradients), renewed = namesIn(roles.next);
  // The file names the trained tensors, also where its backward pass is made anew.
  bool fileSays = roles.any() && (!roles.own || !trained.empty());
  // Tensors that only a backward pass reads are numbers of its formulas.
  DenseSet<Operation *> forward = operationsBehind(module, fileSays ? StringRef(roles.loss) : StringRef());
  llvm::StringSet<> parts = namesIn(separated);
  SmallVector<std::pair<std::string, std::string>> held;
  llvm::StringMap<train::ReadOp> reads;
  module.walk([&](train::ReadOp read) { reads[read.getState()] = read; });
  for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>())) {
    StringRef name = state.getTensorName();
    train::ReadOp read = reads.lookup(state.getSymName());
    TensorUse use = read ? usesOf(read.getValue()) : TensorUse();
    auto type = cast<RankedTensorType>(state.getType());
    auto said = declared.find(name);
    std::string why =
        read ? whyHeld(state, use, said == declared.end() ? nullptr : &said->second, torch, renewed.contains(name))
             : "not read";
    bool parameter =
        read && !read->use_empty() && !use.statistic && why.empty() && (forward.empty() || isReadFor(forward, read));
    bool frozen = matches(*freeze, name) && !use.statistic; // which move without gradients
    // --train names all trained tensors.
    if (!train->empty()) {
      bool wanted = matches(*train, name);
      if (parameter && !wanted)
        why = "not in --train";
      parameter = wanted;
    }
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
    if (frozen && role == train::Role::parameter)
      held.emplace_back(name.str(), matches(*freeze, name) ? "--freeze" : "the file's step leaves it");
    else if (role == train::Role::constant && read && !isReadForStatistics(read.getValue()) &&
             isWorthSaying(name, type, use, torch))
      held.emplace_back(name.str(), why);
    state.setFrozen(frozen);
    // Of tensors that are one in the file each keeps its values, whatever trains.
    bool isSeparated = separated.contains(name) || parts.contains(name);
    if (role != train::Role::constant || type.getNumElements() > smallConstant || !read || isSeparated)
      continue;
    OpBuilder builder(read);
    Value value = mpt::ConstantOp::create(builder, read.getLoc(), *state.getValue());
    read.replaceAllUsesWith(value);
    read.erase();
    state.erase();
  }
  noteHeld(module, held);
  noteSeparated(module, separated);
  return success();
}

LogicalResult mpt::freezeParameters(ModuleOp module, const ImportOptions &options) {
  auto freeze = compile("--freeze", options.freeze, tensorNames(module, /*constants=*/true), module.getLoc());
  if (failed(freeze))
    return failure();
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::parameter && matches(*freeze, state.getTensorName()))
      state.setFrozen(true);
  return success();
}
