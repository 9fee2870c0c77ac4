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

/// A context with the dialects that kernels are written in and lowered to.
class KernelContext {
public:
  KernelContext() : context(registry(), MLIRContext::Threading::DISABLED) {
    static bool ready = [] {
      llvm::InitializeNativeTarget();
      llvm::InitializeNativeTargetAsmPrinter();
      return true;
    }();
    (void)ready;
    context.loadAllAvailableDialects();
  }
  MLIRContext context;

private:
  static DialectRegistry registry() {
    DialectRegistry registry;
    registry.insert<MPTDialect, train::TrainDialect, func::FuncDialect, arith::ArithDialect, math::MathDialect,
                    scf::SCFDialect, memref::MemRefDialect, vector::VectorDialect, LLVM::LLVMDialect>();
    registerLoopLoweringModels(registry);
    registerAllToLLVMIRTranslations(registry);
    cuda::registerPtxDialects(registry);
    return registry;
  }
};

/// One kernel: its buffers, its machine code, its calls.
class KernelRun {
public:
  KernelRun(ModuleOp module, const std::vector<TestTensor> &inputs) : module(module), inputs(inputs) {}
  ~KernelRun() {
    for (Buffer &buffer : buffers)
      std::free(buffer.data);
  }

  /// Emits the kernel of function f and compiles it.
  LogicalResult build(const std::vector<std::vector<int64_t>> &outputStrides);
  /// Runs the kernel in `pieces`; argument `written` shares the buffer of argument `read`.
  LogicalResult call(int pieces, size_t read = 0, size_t written = 0);
  std::vector<TestTensor> results();
  /// Runs the kernel with each pair of arguments that it may hold in one place, and compares with `expected`.
  LogicalResult checkInPlace(int pieces, const std::vector<TestTensor> &expected);

private:
  void addBuffers(FusionOp fusion, const std::vector<std::vector<int64_t>> &outputStrides);
  LogicalResult compile();
  void fill(size_t input);
  bool isSame(Buffer &buffer, const TestTensor &expected, unsigned read, unsigned written, size_t result);

  ModuleOp module;
  const std::vector<TestTensor> &inputs;
  std::vector<Buffer> buffers;
  SmallVector<MemRefType> inTypes, outTypes;
  FailureOr<KernelInfo> info = failure();
  std::vector<char> scratch;
  std::unique_ptr<ExecutionEngine> engine;
};

void KernelRun::addBuffers(FusionOp fusion, const std::vector<std::vector<int64_t>> &outputStrides) {
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
}

LogicalResult KernelRun::build(const std::vector<std::vector<int64_t>> &outputStrides) {
  auto source = module.lookupSymbol<func::FuncOp>("f");
  FusionOp fusion = wrap(source);
  addBuffers(fusion, outputStrides);
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  if (testDevice) {
    int64_t scratchBytes = 0;
    info = emitForDevice(builder, fusion, inTypes, outTypes, scratchBytes);
    scratch.assign(scratchBytes + 64, 0x5a);
  } else {
    info = emitKernel(builder, fusion, inTypes, outTypes, "kernel", testTarget);
  }
  if (failed(info))
    return failure();
  info->function.setPublic();
  source->erase();
  if (std::getenv("MPT_TEST_PRINT"))
    module->dump();
  if (failed(verify(module)) || failed(compile()))
    return failure();
  for (size_t i = 0; i < inputs.size(); ++i)
    fill(i);
  return success();
}

/// The conversion that code calls for single bf16 values on processors without one, as emitted libraries define it. By
/// bits, since a cast here would be that call.
static __bf16 roundToBFloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = value != value ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
  auto half = static_cast<uint16_t>(rounded >> 16);
  __bf16 result;
  memcpy(&result, &half, sizeof result);
  return result;
}

static llvm::orc::SymbolMap conversions(llvm::orc::MangleAndInterner interner) {
  llvm::orc::SymbolMap symbols;
  symbols[interner("__truncsfbf2")] = {llvm::orc::ExecutorAddr::fromPtr(&roundToBFloat16),
                                       llvm::JITSymbolFlags::Exported};
  return symbols;
}

LogicalResult KernelRun::compile() {
  PassManager manager(module.getContext());
  buildKernelToLLVMPipeline(manager);
  if (failed(manager.run(module)))
    return failure();
  ExecutionEngineOptions options;
  auto optimize = makeOptimizingTransformer(2, 0, nullptr);
  options.transformer = optimize;
  auto made = ExecutionEngine::create(module, options);
  if (!made) {
    llvm::errs() << made.takeError() << "\n";
    return failure();
  }
  engine = std::move(*made);
  engine->registerSymbols(conversions);
  return success();
}

void KernelRun::fill(size_t input) {
  for (int64_t k = 0; k < inputs[input].count(); ++k)
    put(buffers[input].at(k), buffers[input].type.getElementType(), inputs[input].values[k]);
}

LogicalResult KernelRun::call(int pieces, size_t read, size_t written) {
  for (int piece = 0; piece < pieces; ++piece) {
    int64_t begin = info->extent * piece / pieces, end = info->extent * (piece + 1) / pieces;
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
    if (llvm::Error error = engine->invokePacked("kernel", arguments)) {
      llvm::errs() << error << "\n";
      return failure();
    }
  }
  return success();
}

std::vector<TestTensor> KernelRun::results() {
  std::vector<TestTensor> results;
  for (Buffer &buffer : MutableArrayRef(buffers).drop_front(inputs.size())) {
    TestTensor result{std::vector<int64_t>(buffer.type.getShape()), {}};
    for (int64_t i = 0; i < result.count(); ++i)
      result.values.push_back(get(buffer.at(i), buffer.type.getElementType()));
    results.push_back(std::move(result));
  }
  return results;
}

bool KernelRun::isSame(Buffer &buffer, const TestTensor &expected, unsigned read, unsigned written, size_t result) {
  for (int64_t i = 0; i < expected.count(); ++i) {
    double a = expected.values[i], b = get(buffer.at(i), buffer.type.getElementType());
    if (a == b || (a != a && b != b))
      continue;
    std::printf("argument %u as argument %u: element %lld of result %zu differs\n", written, read,
                static_cast<long long>(i), result);
    return false;
  }
  return true;
}

LogicalResult KernelRun::checkInPlace(int pieces, const std::vector<TestTensor> &expected) {
  for (auto [read, written] : info->inPlace) {
    if (failed(call(pieces, read, written)))
      return failure();
    for (size_t r = 0; r < expected.size(); ++r) {
      size_t argument = inputs.size() + r;
      if (!isSame(buffers[argument == written ? read : argument], expected[r], read, written, r))
        return failure();
    }
    fill(read);
  }
  return success();
}

} // namespace

std::vector<TestTensor> runKernel(const std::string &text, const std::vector<TestTensor> &inputs,
                                  const std::vector<std::vector<int64_t>> &outputStrides, int pieces) {
  KernelContext kernels;
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &kernels.context);
  if (!module)
    return {};
  KernelRun run(*module, inputs);
  if (failed(run.build(outputStrides)) || failed(run.call(pieces)))
    return {};
  std::vector<TestTensor> results = run.results();
  return succeeded(run.checkInPlace(pieces, results)) ? results : std::vector<TestTensor>();
}
