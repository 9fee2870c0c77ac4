// SPDX-License-Identifier: Apache-2.0
// Test cases, and single functions on tensors from files.
#include "mpt/Reference/RunTool.h"

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Reference/ErrorModel.h"
#include "mpt/Reference/Interpreter.h"
#include "mpt/Support/SafeTensors.h"

#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Runs every public function without arguments, each on fresh state.
LogicalResult runCases(ModuleOp module, EvaluationMode mode, const TensorCore *core) {
  bool ok = true;
  int64_t count = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.getNumArguments() != 0)
      continue;
    ++count;
    Interpreter interpreter(module, mode);
    interpreter.multiplyOn(core);
    ok &= succeeded(interpreter.initialize()) && succeeded(interpreter.call(function, {})) &&
          interpreter.failedChecks() == 0;
  }
  if (count == 0)
    return module.emitError() << "expected a public function without arguments: name one with --function";
  return success(ok);
}

LogicalResult report(ModuleOp module, llvm::Error error) {
  return module.emitError() << llvm::toString(std::move(error));
}

/// The tensor of a file as `type`, or failure when it is of another shape or kind. Oracle mode takes F64 data
/// unrounded.
FailureOr<Tensor> load(ModuleOp module, StringRef name, SafeTensor entry, RankedTensorType type, EvaluationMode mode) {
  if (entry.type.getShape() != type.getShape() ||
      isa<FloatType>(entry.type.getElementType()) != isa<FloatType>(type.getElementType()))
    return module.emitError() << "expected a tensor like " << type << " for " << name << ", got " << entry.type;
  return Tensor::fromBytes(entry.type, entry.bytes).as(type, /*rounds=*/mode == EvaluationMode::Exact);
}

LogicalResult save(ModuleOp module, StringRef path, const std::map<std::string, Tensor> &tensors, EvaluationMode mode) {
  if (path.empty())
    return success();
  std::map<std::string, std::vector<char>> bytes;
  std::map<std::string, SafeTensor> entries;
  for (const auto &[name, tensor] : tensors) {
    Tensor value = tensor;
    if (mode == EvaluationMode::Oracle && value.isFloat())
      value.retype(value.getType().clone(Float64Type::get(module.getContext())));
    bytes[name] = value.toBytes();
    entries[name] = {value.getType(), bytes[name]};
  }
  if (llvm::Error error = writeSafeTensors(path, entries))
    return report(module, std::move(error));
  return success();
}

LogicalResult loadState(ModuleOp module, StringRef path, Interpreter &interpreter, EvaluationMode mode) {
  auto file = SafeTensorsFile::open(path, module.getContext());
  if (!file)
    return report(module, file.takeError());
  for (auto state : module.getOps<train::StateOp>()) {
    SafeTensor entry = file->find(state.getTensorName());
    if (!entry.type)
      continue;
    FailureOr<Tensor> value = load(module, state.getTensorName(), entry, cast<RankedTensorType>(state.getType()), mode);
    if (failed(value))
      return failure();
    interpreter.state()[state.getSymName().str()] = std::move(*value);
  }
  return success();
}

FailureOr<SmallVector<Tensor>> loadInputs(ModuleOp module, func::FuncOp function, StringRef path, EvaluationMode mode) {
  SmallVector<Tensor> inputs;
  int64_t replicas = std::max<int64_t>(1, dist::replicasOf(module).value_or(1));
  SmallVector<bool> given;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    RankedTensorType global = globalType(function, i, dist::hasCollectives(function) ? replicas : 1);
    given.push_back(bool(global));
    inputs.push_back(Tensor(global ? global : cast<RankedTensorType>(type)));
  }
  if (path.empty())
    return inputs;
  auto file = SafeTensorsFile::open(path, module.getContext());
  if (!file)
    return report(module, file.takeError());
  for (auto [i, input] : llvm::enumerate(inputs)) {
    std::string name = argumentName(function, i);
    if (!given[i])
      continue;
    SafeTensor entry = file->find(name);
    if (!entry.type)
      return module.emitError() << "expected input " << name << " in " << path << ", found none";
    FailureOr<Tensor> value = load(module, name, entry, input.getType(), mode);
    if (failed(value))
      return failure();
    input = std::move(*value);
  }
  return inputs;
}

double magnitudeOf(ArrayRef<Tensor> tensors) {
  double magnitude = 0.0;
  for (const Tensor &tensor : tensors)
    magnitude = std::max(magnitude, largestMagnitude(tensor));
  return magnitude;
}

/// Writes the tolerances of `compare`, one FP64 number a result.
LogicalResult saveTolerances(func::FuncOp function, StringRef path, ArrayRef<Tensor> inputs,
                             const std::map<std::string, Tensor> &outputs, const TensorCore *core) {
  if (path.empty())
    return success();
  ErrorModel model = ErrorModel::of(function, core);
  auto type = RankedTensorType::get({}, Float64Type::get(function.getContext()));
  std::map<std::string, Tensor> tolerances;
  for (const auto &[name, expected] : outputs) {
    double tolerance = model.tolerance(expected, magnitudeOf(inputs));
    tolerances.emplace(name, Tensor::fromBytes(type, {reinterpret_cast<const char *>(&tolerance), sizeof tolerance}));
  }
  return save(function->getParentOfType<ModuleOp>(), path, tolerances, EvaluationMode::Exact);
}

/// Compares results from elsewhere with the interpreter's; integers must be equal, NaN and infinities meet themselves.
LogicalResult compare(func::FuncOp function, StringRef path, ArrayRef<Tensor> inputs,
                      const std::map<std::string, Tensor> &outputs, const TensorCore *core) {
  auto file = SafeTensorsFile::open(path, function.getContext());
  if (!file)
    return emitError(function.getLoc()) << llvm::toString(file.takeError());
  ErrorModel model = ErrorModel::of(function, core);
  const double inputMagnitude = magnitudeOf(inputs);
  bool ok = true;
  for (const auto &[name, expected] : outputs) {
    SafeTensor entry = file->find(name);
    if (!entry.type || entry.type.getShape() != expected.shape() ||
        isa<FloatType>(entry.type.getElementType()) != expected.isFloat())
      return emitError(function.getLoc())
             << "expected result " << name << " of type " << expected.getType() << " in " << path;
    Tensor actual = Tensor::fromBytes(entry.type, entry.bytes);
    double tolerance = model.tolerance(expected, inputMagnitude);
    for (int64_t i = 0; i < expected.size(); ++i) {
      double a = actual.number(i), e = expected.number(i);
      if (a == e || (std::isnan(a) && std::isnan(e)) || std::fabs(a - e) <= tolerance)
        continue;
      std::string text;
      llvm::raw_string_ostream(text) << llvm::format("expected %.9g within %.3g, got %.9g", e, tolerance, a);
      emitError(function.getLoc()) << text << " at element " << i << " of result " << name;
      ok = false;
      break;
    }
  }
  return success(ok);
}

} // namespace

LogicalResult mpt::runModule(ModuleOp module, const RunOptions &options) {
  EvaluationMode mode = options.oracle ? EvaluationMode::Oracle : EvaluationMode::Exact;
  if (options.function.empty())
    return runCases(module, mode, options.core);
  auto function = module.lookupSymbol<func::FuncOp>(options.function);
  if (!function)
    return module.emitError() << "expected a function named " << options.function << ", found none";
  Interpreter interpreter(module, mode);
  interpreter.computeBy(options.elements);
  interpreter.multiplyOn(options.core);
  if (!options.state.empty() && failed(loadState(module, options.state, interpreter, mode)))
    return failure();
  if (failed(interpreter.initialize()))
    return failure();
  FailureOr<SmallVector<Tensor>> inputs = loadInputs(module, function, options.inputs, mode);
  if (failed(inputs))
    return failure();
  std::map<std::string, Tensor> outputs;
  for (int64_t step = 0; step < options.steps; ++step) {
    FailureOr<SmallVector<Tensor>> results = interpreter.call(function, *inputs);
    if (failed(results))
      return failure();
    for (auto [i, result] : llvm::enumerate(*results))
      outputs[resultName(function, i)] = result;
  }
  if (!options.expect.empty() && failed(compare(function, options.expect, *inputs, outputs, options.core)))
    return failure();
  // Without a file, scalars are shown.
  if (options.outputs.empty())
    for (const auto &[name, tensor] : outputs)
      if (tensor.size() == 1)
        llvm::outs() << name << " = " << llvm::format("%.9g", tensor.number(0)) << "\n";
  std::map<std::string, Tensor> newState;
  for (const auto &[symbol, tensor] : interpreter.state())
    newState[train::TrainDialect::tensorName(symbol).str()] = tensor;
  return success(succeeded(save(module, options.outputs, outputs, mode)) &&
                 succeeded(saveTolerances(function, options.tolerances, *inputs, outputs, options.core)) &&
                 succeeded(save(module, options.newState, newState, mode)) && interpreter.failedChecks() == 0);
}
