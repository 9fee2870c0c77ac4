// SPDX-License-Identifier: Apache-2.0
// Compilation and execution of single kernels for the tests.
#include "KernelRunner.h"

#include "DeviceKernels.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Lowering/Models/Models.h"
#include "mpt/Target/Ptx.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/ExecutionEngine/ExecutionEngine.h"
#include "mlir/ExecutionEngine/OptUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/All.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/TargetSelect.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace mlir;
using namespace mpt;

KernelTarget testTarget = KernelTarget::host();
bool testDevice = false;

int64_t TestTensor::count() const {
  int64_t n = 1;
  for (int64_t extent : shape)
    n *= extent;
  return n;
}
double TestTensor::operator()(std::vector<int64_t> at) const {
  int64_t linear = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    linear = linear * shape[i] + at[i];
  return values[linear];
}

namespace {

unsigned bytesOf(Type type) { return type.isInteger(1) ? 1 : type.getIntOrFloatBitWidth() / 8; }

void put(char *at, Type type, double value) {
  uint64_t bits;
  if (auto real = dyn_cast<FloatType>(type)) {
    llvm::APFloat number(value);
    bool lost;
    number.convert(real.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
    bits = number.bitcastToAPInt().getZExtValue();
  } else {
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  std::memcpy(at, &bits, bytesOf(type));
}
double get(const char *at, Type type) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytesOf(type));
  if (auto real = dyn_cast<FloatType>(type)) {
    llvm::APFloat number(real.getFloatSemantics(), llvm::APInt(real.getWidth(), bits));
    bool lost;
    number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
    return number.convertToDouble();
  }
  if (type.isInteger(1))
    return static_cast<double>(bits);
  return static_cast<double>(llvm::SignExtend64(bits, type.getIntOrFloatBitWidth()));
}

std::vector<int64_t> rowMajor(ArrayRef<int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

/// A buffer of `type` with 64-byte alignment, and the way into it by row-major position.
struct Buffer {
  Buffer(RankedTensorType type, std::vector<int64_t> strides) : type(type), strides(std::move(strides)) {
    if (this->strides.empty())
      this->strides = rowMajor(type.getShape());
    int64_t size = 1;
    for (auto [extent, stride] : llvm::zip(type.getShape(), this->strides))
      size += (extent - 1) * stride;
    size_t bytes = (size * bytesOf(type.getElementType()) + 127) / 64 * 64;
    data = static_cast<char *>(std::aligned_alloc(64, bytes));
    std::memset(data, 0x5a, bytes);
  }
  char *at(int64_t position) {
    int64_t offset = 0;
    for (int64_t i = static_cast<int64_t>(strides.size()) - 1; i >= 0; --i) {
      offset += position % type.getDimSize(i) * strides[i];
      position /= type.getDimSize(i);
    }
    return data + offset * bytesOf(type.getElementType());
  }
  MemRefType memref() const {
    auto layout = StridedLayoutAttr::get(type.getContext(), 0, strides);
    return strides == rowMajor(type.getShape()) ? MemRefType::get(type.getShape(), type.getElementType())
                                                : MemRefType::get(type.getShape(), type.getElementType(), layout);
  }
  RankedTensorType type;
  std::vector<int64_t> strides;
  char *data;
};

FusionOp wrap(func::FuncOp function) {
  Block &block = function.getBody().front();
  Operation *end = block.getTerminator();
  OpBuilder builder(end);
  auto fusion = FusionOp::create(builder, function.getLoc(), end->getOperandTypes(), block.getArguments());
  Block &body = fusion.getBody().emplaceBlock();
  IRMapping mapping;
  for (BlockArgument argument : block.getArguments())
    mapping.map(argument, body.addArgument(argument.getType(), argument.getLoc()));
  builder.setInsertionPointToEnd(&body);
  for (Operation &op : block)
    if (&op != end && &op != fusion)
      builder.clone(op, mapping);
  SmallVector<Value> values;
  for (Value value : end->getOperands())
    values.push_back(mapping.lookup(value));
  YieldOp::create(builder, function.getLoc(), values);
  return fusion;
}

} // namespace

std::vector<TestTensor> runKernel(const std::string &text, const std::vector<TestTensor> &inputs,
                                  const std::vector<std::vector<int64_t>> &outputStrides, int pieces) {
  static bool ready = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)ready;
  DialectRegistry registry;
  registry.insert<MPTDialect, train::TrainDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect,
                  scf::SCFDialect, memref::MemRefDialect, vector::VectorDialect, LLVM::LLVMDialect>();
  registerLoopLoweringModels(registry);
  registerAllToLLVMIRTranslations(registry);
  cuda::registerPtxDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return {};
  auto source = module->lookupSymbol<func::FuncOp>("f");
  FusionOp fusion = wrap(source);

  std::vector<Buffer> buffers;
  SmallVector<MemRefType> inTypes, outTypes;
  for (auto [input, value] : llvm::zip_equal(inputs, fusion.getInputs())) {
    Buffer buffer(cast<RankedTensorType>(value.getType()), input.strides);
    inTypes.push_back(buffer.memref());
    buffers.push_back(buffer);
  }
  for (auto [i, value] : llvm::enumerate(fusion.getOutputs())) {
    Buffer buffer(cast<RankedTensorType>(value.getType()),
                  i < outputStrides.size() ? outputStrides[i] : std::vector<int64_t>());
    outTypes.push_back(buffer.memref());
    buffers.push_back(buffer);
  }
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  FailureOr<KernelInfo> info = failure();
  std::vector<char> scratch;
  if (testDevice) {
    int64_t scratchBytes = 0;
    info = emitForDevice(builder, fusion, inTypes, outTypes, scratchBytes);
    scratch.assign(scratchBytes + 64, 0x5a);
  } else {
    info = emitKernel(builder, fusion, inTypes, outTypes, "kernel", testTarget);
  }
  if (failed(info))
    return {};
  int64_t extent = info->extent;
  info->function.setPublic();
  source->erase();
  if (std::getenv("MPT_TEST_PRINT"))
    module->dump();
  if (failed(verify(*module)))
    return {};
  PassManager manager(&context);
  buildKernelToLLVMPipeline(manager);
  if (failed(manager.run(*module)))
    return {};
  ExecutionEngineOptions options;
  auto optimize = makeOptimizingTransformer(2, 0, nullptr);
  options.transformer = optimize;
  auto engine = ExecutionEngine::create(*module, options);
  if (!engine) {
    llvm::errs() << engine.takeError() << "\n";
    return {};
  }
  auto fill = [&](size_t i) {
    for (int64_t k = 0; k < inputs[i].count(); ++k)
      put(buffers[i].at(k), buffers[i].type.getElementType(), inputs[i].values[k]);
  };
  for (size_t i = 0; i < inputs.size(); ++i)
    fill(i);
  // Runs the kernel; argument `written` shares the buffer of argument `read`.
  auto run = [&](size_t read, size_t written) {
    for (int piece = 0; piece < pieces; ++piece) {
      int64_t begin = extent * piece / pieces, end = extent * (piece + 1) / pieces;
      std::vector<void *> pointers;
      for (Buffer &buffer : buffers)
        pointers.push_back(buffer.data);
      pointers[written] = pointers[read];
      if (scratch.size() > 64)
        pointers.push_back(scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64));
      std::vector<void *> arguments;
      for (void *&pointer : pointers)
        arguments.push_back(&pointer);
      arguments.push_back(&begin);
      arguments.push_back(&end);
      if (llvm::Error error = (*engine)->invokePacked("kernel", arguments)) {
        llvm::errs() << error << "\n";
        return false;
      }
    }
    return true;
  };
  if (!run(0, 0))
    return {};
  std::vector<TestTensor> results;
  for (Buffer &buffer : MutableArrayRef(buffers).drop_front(inputs.size())) {
    TestTensor result{std::vector<int64_t>(buffer.type.getShape()), {}};
    for (int64_t i = 0; i < result.count(); ++i)
      result.values.push_back(get(buffer.at(i), buffer.type.getElementType()));
    results.push_back(std::move(result));
  }
  auto same = [](double a, double b) { return a == b || (a != a && b != b); };
  for (auto [read, written] : info->inPlace) {
    if (!run(read, written))
      return {};
    for (size_t r = 0; r < results.size(); ++r) {
      size_t argument = inputs.size() + r;
      Buffer &buffer = buffers[argument == written ? read : argument];
      for (int64_t i = 0; i < results[r].count(); ++i)
        if (!same(results[r].values[i], get(buffer.at(i), buffer.type.getElementType()))) {
          std::printf("argument %u as argument %u: element %lld of result %zu differs\n", written, read,
                      static_cast<long long>(i), r);
          return {};
        }
    }
    fill(read);
  }
  for (Buffer &buffer : buffers)
    std::free(buffer.data);
  return results;
}
