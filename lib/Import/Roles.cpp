// SPDX-License-Identifier: Apache-2.0
// Parameters are declared by the file, or else found by use: tensors that feed a weight, bias or scale operand.
// Matcher: nodes of a file by their type, and the values that their subgraphs yield.
#include "mpt/Import/Roles.h"

#include "ExporterNames.h"
#include "Uses.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FixedTensors.h"
#include "mpt/Support/NearNames.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;
using onnx::Declared;
using onnx::kTrainingRoles;
using onnx::ONNXDialect;

namespace {
/// Constants of up to this many elements are ops in the function, larger ones are states.
constexpr int64_t smallConstant = 64;

} // namespace

/// The expressions of `flag`, each of which has to match one of the names.
static FailureOr<SmallVector<llvm::Regex>> compile(StringRef flag, ArrayRef<std::string> expressions,
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

/// What no declaration makes a parameter; empty where one may.
static StringRef whyNeverTrained(train::StateOp state, const TensorUse &use) {
  if (use.classes)
    return "weights of a loss's classes";
  if (use.quantizes)
    return "scale of a quantization";
  if (isMask(state.getValueAttr()))
    return "mask";
  return use.angle ? "feeds an angle" : "";
}

/// The reason where neither declaration nor use nor name makes the tensor a parameter.
static std::string whyConstant(train::StateOp state, const TensorUse &use) {
  if (use.initialState)
    return "initial state";
  // Exporters fold look-ups in a table of zeros, as one of relative positions is before training.
  bool isList = cast<RankedTensorType>(state.getType()).getRank() >= 1;
  if (use.either && isList && isZero(state.getValueAttr()))
    return "zeros: a mask, or a table before training";
  return use.either ? "constant of arithmetic" : use.reader.empty() ? "moved only" : "operand of " + use.reader.str();
}

/// Why the tensor is no parameter; empty for one. The exporter's declaration comes first, then values and uses, and
/// names decide the cases that these leave open. A tensor that the file's step has renewed is no number of a formula.
static std::string whyHeld(train::StateOp state, const TensorUse &use, bool torch, bool isRenewed) {
  StringRef name = state.getTensorName();
  auto declared = getAttr<ONNXDialect::DeclaredAttrHelper>(state);
  auto isDeclared = [&](Declared kind) { return declared && declared.getValue() == kind; };
  bool isList = cast<RankedTensorType>(state.getType()).getRank() >= 1;
  if (StringRef why = whyNeverTrained(state, use); !why.empty())
    return why.str();
  // Folded from a weight, bias or token by a movement, it is one. Other tools drop the exporter's declaration of that.
  Made made = madeByTools(withoutNumber(name));
  bool folds = use.weight || use.beside || use.token;
  bool isFolded = declared ? isDeclared(Declared::Folded) : folds && made == Made::ByMovement;
  if (isDeclared(Declared::Other) || (declared && isFolded && !folds))
    return use.initialState ? "initial state" : "no parameter of the exporter's module";
  StringRef meaning = fixedMeaning(state.getValueAttr(), use.weight);
  if (isDeclared(Declared::Parameter) || (isDeclared(Declared::Moved) && meaning.empty()))
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
  return (torch ? isTorchPath(name) : isParameter) ? "" : whyConstant(state, use);
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
static void noteSeparated(ModuleOp module) {
  NamedAttrList entries, manifest(getAttr<MPTDialect::ManifestAttrHelper>(module));
  for (auto state : module.getOps<train::StateOp>())
    if (auto from = getAttr<ONNXDialect::SeparatedFromAttrHelper>(state);
        from && state.getRole() == train::Role::parameter)
      entries.set(state.getTensorName(), from);
  if (entries.empty())
    return;
  manifest.set("separated", entries.getDictionary(module.getContext()));
  setAttr<MPTDialect::ManifestAttrHelper>(module, manifest.getDictionary(module.getContext()));
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

namespace {
/// The roles that the outputs of a joint graph give to states (mpt/Dialect/ONNX/TrainingRoles.h).
struct JointOutputs {
  explicit JointOutputs(ModuleOp module) {
    auto roles = module->getAttrOfType<DictionaryAttr>(kTrainingRoles);
    if (!roles)
      return;
    auto take = [&](StringRef kind, llvm::StringSet<> &states) {
      for (NamedAttribute entry : roles.getAs<DictionaryAttr>(kind))
        states.insert(cast<FlatSymbolRefAttr>(entry.getValue()).getValue());
    };
    take("gradients", trained);
    take("next", renewed);
    loss = roles.getAs<StringAttr>("loss").getValue();
    // The file names the trained tensors, also where its backward pass is made anew.
    bool isDerived = roles.getAs<StringAttr>("backward").getValue() == "derived";
    decide = !trained.empty() || (!renewed.empty() && !isDerived);
  }

  llvm::StringSet<> trained, renewed; ///< symbols of states
  StringRef loss;
  bool decide = false;
};

/// The role of a state, and why it does not train.
struct Decision {
  train::Role role;
  bool frozen;
  std::string why;
};

class RoleAssigner {
public:
  RoleAssigner(ModuleOp module, SmallVector<llvm::Regex> train, SmallVector<llvm::Regex> freeze)
      : module(module), train(std::move(train)), freeze(std::move(freeze)), joint(module) {
    auto producer = getAttr<ONNXDialect::ProducerAttrHelper>(module);
    torch = producer && producer.getValue().starts_with("pytorch");
    // Tensors that only a backward pass reads are numbers of its formulas.
    forward = operationsBehind(module, joint.decide ? joint.loss : StringRef());
  }

  void run() {
    warnOfInnerWeights(module, torch);
    llvm::StringMap<train::ReadOp> reads;
    module.walk([&](train::ReadOp read) { reads[read.getState()] = read; });
    // Of tensors that are one in the file each keeps its values, whatever trains.
    llvm::StringSet<> parts;
    for (auto state : module.getOps<train::StateOp>())
      if (auto from = getAttr<ONNXDialect::SeparatedFromAttrHelper>(state))
        parts.insert_range(std::initializer_list<StringRef>{from.getValue(), state.getTensorName()});
    for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>())) {
      train::ReadOp read = reads.lookup(state.getSymName());
      assign(state, read);
      if (read && state.getRole() == train::Role::constant && !parts.contains(state.getTensorName()) &&
          cast<RankedTensorType>(state.getType()).getNumElements() <= smallConstant)
        putInPlace(state, read);
    }
    noteHeld(module, held);
    noteSeparated(module);
    for (auto state : module.getOps<train::StateOp>()) {
      removeAttr<ONNXDialect::DeclaredAttrHelper>(state);
      removeAttr<ONNXDialect::SeparatedFromAttrHelper>(state);
    }
  }

private:
  void assign(train::StateOp state, train::ReadOp read) {
    TensorUse use = read ? usesOf(read.getValue()) : TensorUse();
    StringRef name = state.getTensorName();
    auto [role, frozen, why] = decide(state, read, use);
    state.setRoleAttr(train::RoleAttr::get(module.getContext(), role));
    state.setFrozen(frozen);
    if (frozen && role == train::Role::parameter)
      held.emplace_back(name.str(), matches(freeze, name) ? "--freeze" : "the file's step leaves it");
    else if (role == train::Role::constant && read && !isReadForStatistics(read.getValue()) &&
             isWorthSaying(name, cast<RankedTensorType>(state.getType()), use, torch))
      held.emplace_back(name.str(), why);
  }

  Decision decide(train::StateOp state, train::ReadOp read, const TensorUse &use) {
    StringRef name = state.getTensorName(), symbol = state.getSymName();
    bool isRenewed = joint.renewed.contains(symbol), hasGradient = joint.trained.contains(symbol);
    std::string why = read ? whyHeld(state, use, torch, isRenewed) : "not read";
    bool parameter =
        read && !read->use_empty() && !use.statistic && why.empty() && (forward.empty() || isReadFor(forward, read));
    bool frozen = matches(freeze, name) && !use.statistic; // which move without gradients
    // --train names all trained tensors.
    if (!train.empty()) {
      bool wanted = matches(train, name);
      if (parameter && !wanted)
        why = "not in --train";
      parameter = wanted;
    }
    parameter |= frozen;
    bool changes = isRenewed && !hasGradient && (!parameter || (joint.decide && !joint.trained.empty()));
    if (joint.decide) {
      bool isUnnamed = !train.empty() && !parameter;
      frozen |= hasGradient ? isUnnamed : parameter && !isRenewed;
      parameter |= hasGradient;
    }
    bool isFloat = isa<FloatType>(cast<RankedTensorType>(state.getType()).getElementType());
    train::Role role = changes         ? isFloat ? train::Role::statistic : train::Role::counter
                       : parameter     ? train::Role::parameter
                       : use.statistic ? train::Role::statistic
                                       : train::Role::constant;
    return {role, frozen, std::move(why)};
  }

  /// A small constant is an op in the function.
  static void putInPlace(train::StateOp state, train::ReadOp read) {
    OpBuilder builder(read);
    read.replaceAllUsesWith(mpt::ConstantOp::create(builder, read.getLoc(), *state.getValue()).getResult());
    read.erase();
    state.erase();
  }

  ModuleOp module;
  SmallVector<llvm::Regex> train, freeze;
  JointOutputs joint;
  bool torch;
  DenseSet<Operation *> forward; ///< that the loss is computed by; all, where it is empty
  SmallVector<std::pair<std::string, std::string>> held;
};
} // namespace

LogicalResult mpt::assignRoles(ModuleOp module, const RoleOptions &options) {
  auto train = compile("--train", options.train, tensorNames(module, /*constants=*/false), module.getLoc());
  auto freeze = compile("--freeze", options.freeze, tensorNames(module, /*constants=*/true), module.getLoc());
  if (failed(train) || failed(freeze))
    return failure();
  RoleAssigner(module, std::move(*train), std::move(*freeze)).run();
  return success();
}

LogicalResult mpt::freezeParameters(ModuleOp module, ArrayRef<std::string> expressions) {
  auto freeze = compile("--freeze", expressions, tensorNames(module, /*constants=*/true), module.getLoc());
  if (failed(freeze))
    return failure();
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::parameter && matches(*freeze, state.getTensorName()))
      state.setFrozen(true);
  return success();
}
