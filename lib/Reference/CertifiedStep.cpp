// SPDX-License-Identifier: Apache-2.0
// Subjects of a validation: a module in the interpreter, or an emitted library by way of its C interface.
#include "NamedCall.h"

#include "mpt-c/runtime.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/Support/DynamicLibrary.h"

using namespace mlir;
using namespace mpt;

FailureOr<NamedTensors> mpt::callByName(Interpreter &interpreter, func::FuncOp function, const Batch &batch,
                                        bool rounds) {
  FailureOr<SmallVector<Tensor>> inputs = bindInputs(function, batch, rounds);
  if (failed(inputs))
    return failure();
  FailureOr<SmallVector<Tensor>> results = interpreter.call(function, *inputs);
  if (failed(results))
    return failure();
  NamedTensors named;
  for (auto [i, result] : llvm::enumerate(*results))
    named[resultName(function, i)] = result;
  return named;
}

namespace {

class InterpretedStep : public CertifiedStep {
public:
  InterpretedStep(ModuleOp module, const TensorCore *core) : module(module), interpreter(module) {
    interpreter.multiplyOn(core);
  }
  LogicalResult initialize() { return interpreter.initialize(); }
  FailureOr<NamedTensors> state() override { return interpreter.state(); }
  FailureOr<NamedTensors> call(StringRef name, const Batch &batch) override {
    return callByName(interpreter, module.lookupSymbol<func::FuncOp>(name), batch, /*rounds=*/true);
  }

private:
  ModuleOp module;
  Interpreter interpreter;
};

/// The C interface, looked up in a runtime library: programs of the compiler do not link one.
struct Runtime {
  decltype(&mpt_last_error) lastError = nullptr;
  decltype(&mpt_model_load) load = nullptr;
  decltype(&mpt_model_destroy) destroyModel = nullptr;
  decltype(&mpt_model_input) input = nullptr;
  decltype(&mpt_trainer_create) create = nullptr;
  decltype(&mpt_trainer_destroy) destroy = nullptr;
  decltype(&mpt_trainer_run) run = nullptr;
  decltype(&mpt_trainer_output_at) output = nullptr;
  decltype(&mpt_trainer_state) state = nullptr;
  decltype(&mpt_trainer_read) read = nullptr;

  /// Returns an error message that names the missing library or symbol; empty without one.
  std::string open(const std::string &path) {
    std::string error;
    llvm::sys::DynamicLibrary library = llvm::sys::DynamicLibrary::getPermanentLibrary(path.c_str(), &error);
    if (!library.isValid())
      return "cannot load the runtime library '" + path + "': " + error;
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.getAddressOfSymbol(name));
      if (!function && error.empty())
        error = "expected " + std::string(name) + " in '" + path + "', found none";
    };
    find(lastError, "mpt_last_error");
    find(load, "mpt_model_load");
    find(destroyModel, "mpt_model_destroy");
    find(input, "mpt_model_input");
    find(create, "mpt_trainer_create");
    find(destroy, "mpt_trainer_destroy");
    find(run, "mpt_trainer_run");
    find(output, "mpt_trainer_output_at");
    find(state, "mpt_trainer_state");
    find(read, "mpt_trainer_read");
    return error;
  }
};

/// Types come from the module, which the library was made of.
class EmittedStep : public CertifiedStep {
public:
  EmittedStep(ModuleOp module, Runtime runtime) : module(module), runtime(runtime) {
    for (auto state : module.getOps<train::StateOp>())
      stateTypes[state.getSymName()] = cast<RankedTensorType>(state.getType());
  }
  ~EmittedStep() override {
    runtime.destroy(trainer);
    runtime.destroyModel(model);
  }

  LogicalResult load(StringRef folder) {
    return success(succeeded(done(runtime.load(folder.str().c_str(), &model))) &&
                   succeeded(done(runtime.create(model, nullptr, &trainer))));
  }

  FailureOr<NamedTensors> state() override {
    NamedTensors values;
    mpt_tensor tensor;
    for (int64_t i = 0; runtime.state(trainer, i, &tensor, nullptr) == MPT_OK; ++i) {
      std::string symbol = train::TrainDialect::symbolOf(tensor.name);
      RankedTensorType type = stateTypes.lookup(symbol);
      // Runtime counters and the like that are no state of the module's.
      if (!type)
        continue;
      if (failed(expectType(tensor, type)))
        return failure();
      std::vector<char> bytes(Tensor::byteSize(type));
      if (failed(done(runtime.read(trainer, i, bytes.data(), static_cast<int64_t>(bytes.size())))))
        return failure();
      values[symbol] = Tensor::fromBytes(type, bytes);
    }
    return values;
  }

  FailureOr<NamedTensors> call(StringRef name, const Batch &batch) override {
    auto function = module.lookupSymbol<func::FuncOp>(name);
    FailureOr<SmallVector<Tensor>> bound = bindInputs(function, batch, /*rounds=*/true);
    if (failed(bound))
      return failure();
    std::map<std::string, std::vector<char>> bytes;
    for (auto [i, tensor] : llvm::enumerate(*bound))
      bytes[argumentName(function, i)] = tensor.toBytes();
    std::vector<mpt_tensor> inputs;
    mpt_tensor tensor;
    for (int64_t i = 0; runtime.input(model, name.str().c_str(), i, &tensor) == MPT_OK; ++i) {
      auto found = bytes.find(tensor.name);
      if (found == bytes.end())
        continue; // has a default
      tensor.data = found->second.data();
      inputs.push_back(tensor);
    }
    if (failed(done(
            runtime.run(trainer, name.str().c_str(), inputs.data(), static_cast<int64_t>(inputs.size()), nullptr))))
      return failure();
    return outputsOf(function);
  }

private:
  FailureOr<NamedTensors> outputsOf(func::FuncOp function) {
    std::map<std::string, RankedTensorType> types;
    for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
      types[resultName(function, i)] = cast<RankedTensorType>(type);
    NamedTensors results;
    mpt_tensor tensor;
    for (int64_t i = 0; runtime.output(trainer, function.getSymName().str().c_str(), i, &tensor) == MPT_OK; ++i) {
      auto type = types.find(tensor.name);
      if (type == types.end())
        continue;
      if (failed(expectType(tensor, type->second)))
        return failure();
      results[tensor.name] = Tensor::fromBytes(
          type->second, {static_cast<const char *>(tensor.data), static_cast<size_t>(Tensor::byteSize(type->second))});
    }
    return results;
  }

  LogicalResult expectType(const mpt_tensor &tensor, RankedTensorType type) {
    ArrayRef<int64_t> shape(tensor.shape, tensor.shape ? tensor.rank : 0);
    if (rt::runtimeType(type.getElementType()) == tensor.dtype && shape == type.getShape())
      return success();
    return module.emitError() << "expected " << type << " for '" << tensor.name
                              << "' in the library, got another type: emit it with the same flags";
  }

  LogicalResult done(mpt_status status) {
    return status == MPT_OK || status == MPT_STALLED ? success()
                                                     : LogicalResult(module.emitError() << runtime.lastError());
  }

  ModuleOp module;
  Runtime runtime;
  mpt_model *model = nullptr;
  mpt_trainer *trainer = nullptr;
  llvm::StringMap<RankedTensorType> stateTypes;
};

} // namespace

FailureOr<std::unique_ptr<CertifiedStep>> mpt::interpretedStep(ModuleOp module, const TensorCore *core) {
  auto step = std::make_unique<InterpretedStep>(module, core);
  if (failed(step->initialize()))
    return failure();
  return FailureOr<std::unique_ptr<CertifiedStep>>(std::move(step));
}

FailureOr<std::unique_ptr<CertifiedStep>> mpt::emittedStep(ModuleOp module, StringRef folder, StringRef path) {
  Runtime runtime;
  if (std::string error = runtime.open(path.str()); !error.empty())
    return module.emitError() << error;
  auto step = std::make_unique<EmittedStep>(module, runtime);
  if (failed(step->load(folder)))
    return failure();
  return FailureOr<std::unique_ptr<CertifiedStep>>(std::move(step));
}
