// SPDX-License-Identifier: Apache-2.0
// Reads the tables of a program off its module.
#include "Program.h"

#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"
#include "mpt/Memory/Plan.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

LogicalResult describe(Operation *at, ShapedType type, TensorInfo &info) {
  info.shape.assign(type.getShape().begin(), type.getShape().end());
  info.element = type.getElementType();
  info.dtype = rt::runtimeType(info.element);
  if (!info.dtype)
    return at->emitOpError() << "expected an element type that the runtime knows for '" << info.name << "', got "
                             << info.element;
  info.bytes = memory::elementCount(info.shape) * memory::elementBytes(info.element);
  return success();
}

/// SHA-256 of names, shapes and types: states that agree in them are interchangeable. A parameter that is read rounded
/// counts as the master and the narrow copy that other libraries of the model have: each reads the state of the other.
std::string fingerprintOf(const Program &program) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (const auto &entry : program.state) {
    const TensorInfo &info = entry.second;
    auto line = [&](const llvm::Twine &name, int64_t dtype, int64_t role) {
      out << name << '\0' << dtype << ' ' << role << ' ';
      llvm::interleave(info.divided ? info.wholeShape : info.shape, out, "x");
      out << '\n';
    };
    // A state serves the same model with other parameters frozen.
    int64_t role = info.role == MPT_ROLE_FROZEN ? MPT_ROLE_PARAMETER : info.role;
    auto narrow = getAttr<library::LibraryDialect::PackedAttrHelper>(info.state);
    if (narrow)
      line(entry.first + ".master", info.dtype, MPT_ROLE_MASTER);
    line(entry.first, narrow ? rt::runtimeType(narrow.getValue()) : info.dtype, role);
  }
  llvm::SHA256 hash;
  hash.update(text);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

/// The checks of argument `i`, which is input `input`.
void readIndices(func::FuncOp function, unsigned i, int64_t input, FunctionInfo &info) {
  ArrayAttr checks = getArgAttr<rt::RTDialect::IndicesAttrHelper>(function, i);
  if (!checks)
    return;
  for (auto check : checks.getAsRange<rt::IndexCheckAttr>())
    info.indices.push_back(
        {input, check.getNode().str(), check.getOffset(), llvm::to_vector<4>(check.getShape().asArrayRef()),
         llvm::to_vector<4>(check.getStrides().asArrayRef()), llvm::to_vector<4>(check.getRanges().asArrayRef())});
}

/// Lays out the states, those of every replica first: the shard of replica k lies k shards behind them.
LogicalResult readStates(ModuleOp module, Program &program) {
  for (auto state : module.getOps<train::StateOp>()) {
    TensorInfo info;
    info.name = state.getTensorName().str();
    info.of = train::TrainDialect::tensorName(state.getOf().value_or("")).str();
    info.role = state.getFrozen() ? MPT_ROLE_FROZEN : static_cast<int64_t>(state.getRole());
    info.state = state;
    auto type = cast<RankedTensorType>(state.getType());
    if (std::optional<int64_t> elements = dist::shardOf(state)) {
      info.divided = true;
      info.wholeShape.assign(type.getShape().begin(), type.getShape().end());
      type = type.clone(*elements);
    }
    if (failed(describe(state, type, info)))
      return failure();
    int64_t &end = info.divided ? program.shardBytes : program.stateBytes;
    info.offset = end;
    end += llvm::alignTo(info.bytes, 64);
    program.state.insert({state.getSymName(), info});
  }
  for (auto &[name, info] : program.state)
    if (info.divided)
      info.offset += program.stateBytes;
  program.stateBytes += program.shardBytes;
  return success();
}

/// Argument `i` as an input or output of its function.
LogicalResult readArgument(func::FuncOp function, unsigned i, FunctionInfo &info) {
  Type type = function.getArgumentTypes()[i];
  auto memref = dyn_cast<MemRefType>(type);
  if (!memref)
    return function.emitOpError() << "expected buffers, got an argument of type " << type
                                  << "; run --memory-bufferize and --lowering-emit-kernels first";
  bool output = bool(getArgAttr<MPTDialect::OutputAttrHelper>(function, i));
  auto &table = output ? info.outputs : info.inputs;
  TensorInfo tensor;
  if (auto given = getArgAttr<MPTDialect::NameAttrHelper>(function, i))
    tensor.name = given.str();
  else
    tensor.name = (output ? "output" : "input") + std::to_string(table.size());
  auto role = getArgAttr<train::TrainDialect::RoleAttrHelper>(function, i);
  tensor.role = role ? static_cast<int64_t>(role.getValue()) : output ? MPT_ROLE_OUTPUT : MPT_ROLE_INPUT;
  if (failed(describe(function, memref, tensor)))
    return failure();
  if (!output)
    readIndices(function, i, static_cast<int64_t>(table.size()), info);
  table.push_back(std::move(tensor));
  return success();
}

FailureOr<FunctionInfo> readFunction(func::FuncOp function) {
  FunctionInfo info;
  info.name = function.getSymName().str();
  info.op = function;
  auto arena = getAttr<MPTDialect::ArenaBytesAttrHelper>(function);
  if (!arena)
    return function.emitOpError() << "expected a memory plan; run --memory-plan first";
  info.arenaBytes = arena.getInt();
  if (auto phase = getAttr<dist::DistDialect::PhaseAttrHelper>(function))
    info.phase = phase.getInt();
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (failed(readArgument(function, i, info)))
      return failure();
  return info;
}

} // namespace

FailureOr<Program> Program::read(ModuleOp module, StringRef name, const Target &target) {
  Program program;
  program.name = name.str();
  program.target = target.name().str();
  program.runtime = target.runtimeLibrary().str();
  if (failed(readStates(module, program)))
    return failure();
  for (auto function : module.getOps<func::FuncOp>()) {
    if (hasAttr<MPTDialect::KernelAttrHelper>(function)) {
      program.kernels.push_back(function);
      continue;
    }
    if (function.isPrivate())
      continue;
    FailureOr<FunctionInfo> info = readFunction(function);
    if (failed(info))
      return failure();
    program.functions.push_back(std::move(*info));
  }
  if (program.functions.empty())
    return module.emitError() << "expected a function to emit, found none";
  program.fingerprint = fingerprintOf(program);
  return program;
}

LogicalResult mpt::target::streamBytes(ElementsAttr value, function_ref<void(ArrayRef<char>)> sink) {
  Type element = value.getElementType();
  int64_t count = value.getNumElements(), bytes = memory::elementBytes(element);
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    if (!blob || int64_t(blob->getData().size()) < count * bytes)
      return failure();
    sink(blob->getData().take_front(count * bytes));
    return success();
  }
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense)
    return failure();
  if (element.isInteger(1)) {
    for (bool bit : dense.getValues<bool>()) {
      char byte = bit;
      sink(byte);
    }
    return success();
  }
  ArrayRef<char> raw = dense.getRawData();
  if (!dense.isSplat()) {
    sink(raw);
    return success();
  }
  // A splat, in pieces of some thousand elements.
  int64_t piece = std::min<int64_t>(count, 4096);
  SmallVector<char> repeated;
  for (int64_t i = 0; i < piece; ++i)
    repeated.append(raw.begin(), raw.begin() + bytes);
  for (int64_t done = 0; done < count; done += piece)
    sink(ArrayRef<char>(repeated).take_front(std::min(piece, count - done) * bytes));
  return success();
}
