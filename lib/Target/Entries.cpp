// SPDX-License-Identifier: Apache-2.0
// Entry points: one LLVM function a program function, a straight line of runtime calls.
// Matcher: one case an op of dialect rt, whose translation to calls this is.
#include "Program.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/IR/IRBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

/// A constant of 64-bit words with the bytes of a descriptor.
template <typename T> llvm::GlobalVariable *descriptor(llvm::Module &module, const T &value) {
  static_assert(sizeof(T) % 8 == 0, "descriptors consist of 64-bit fields");
  uint64_t words[sizeof(T) / 8];
  std::memcpy(words, &value, sizeof(T));
  auto *data = llvm::ConstantDataArray::get(module.getContext(), ArrayRef<uint64_t>(words));
  auto *global = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data);
  global->setAlignment(llvm::Align(8));
  global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
  return global;
}

class EntryBuilder {
public:
  EntryBuilder(Program &program, FunctionInfo &info, llvm::Module &module, bool checks)
      : program(program), info(info), module(module), onDevice(program.numbersKernels), checks(checks),
        ir(module.getContext()), ptr(ir.getPtrTy()), i64(ir.getInt64Ty()), i32(ir.getInt32Ty()) {}

  LogicalResult build() {
    entry = llvm::Function::Create(llvm::FunctionType::get(i32, {ptr}, false), llvm::GlobalValue::InternalLinkage,
                                   "mpt_entry_" + info.name, module);
    // No vectors of pointers: looking for them takes time in the square of a step's calls.
    entry->addFnAttr(llvm::Attribute::NoImplicitFloat);
    ir.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", entry));
    exec = entry->getArg(0);
    state = field(0);
    arena = field(1);
    llvm::Value *inputs = field(3), *outputs = field(4);
    size_t slots = 1;
    info.op.walk([&](rt::LaunchOp launch) { slots = std::max(slots, launch.getBuffers().size()); });
    for (auto recurrence : info.op.getOps<rt::RecurrenceOp>())
      slots = std::max<size_t>(slots, recurrence.getNumOperands());
    arguments = ir.CreateAlloca(ptr, ir.getInt64(slots));
    unsigned nextInput = 0, nextOutput = 0;
    for (BlockArgument argument : info.op.getArguments()) {
      bool output = bool(getArgAttr<MPTDialect::OutputAttrHelper>(info.op, argument.getArgNumber()));
      llvm::Value *table = output ? outputs : inputs;
      unsigned index = output ? nextOutput++ : nextInput++;
      pointers[argument] = ir.CreateLoad(ptr, ir.CreateConstInBoundsGEP1_64(ptr, table, index));
    }
    llvm::DenseMap<Operation *, SmallVector<unsigned>> complete = completions();
    for (Operation &op : info.op.front()) {
      if (failed(emitCall(&op)))
        return failure();
      for (unsigned output : complete.lookup(&op))
        request("ready", {ir.getInt64(output)});
    }
    return success();
  }

private:
  /// After which op each output of a replica holds its values: communication starts there.
  llvm::DenseMap<Operation *, SmallVector<unsigned>> completions() {
    llvm::DenseMap<Operation *, SmallVector<unsigned>> complete;
    if (info.phase != 1)
      return complete;
    llvm::MapVector<Value, Operation *> last; // write of each output
    llvm::DenseMap<Value, Value> whole;       // of views
    for (BlockArgument argument : info.op.getArguments())
      if (getArgAttr<MPTDialect::OutputAttrHelper>(info.op, argument.getArgNumber()))
        last[argument] = nullptr;
    auto wholeOf = [&](Value buffer) { return whole.contains(buffer) ? whole.lookup(buffer) : buffer; };
    for (Operation &op : info.op.front()) {
      if (auto view = dyn_cast<rt::ViewOp>(op))
        whole[view.getView()] = wholeOf(view.getSource());
      auto effects = dyn_cast<MemoryEffectOpInterface>(op);
      if (!effects)
        continue;
      SmallVector<MemoryEffects::EffectInstance> found;
      effects.getEffects(found);
      for (const MemoryEffects::EffectInstance &effect : found)
        if (Value buffer = effect.getValue(); buffer && isa<MemoryEffects::Write>(effect.getEffect()))
          if (auto output = last.find(wholeOf(buffer)); output != last.end())
            output->second = &op;
    }
    for (auto [i, output] : llvm::enumerate(last))
      if (output.second)
        complete[output.second].push_back(i);
    return complete;
  }
  llvm::Value *field(unsigned index) { return ir.CreateLoad(ptr, ir.CreateConstInBoundsGEP1_64(ptr, exec, index)); }
  llvm::Value *at(llvm::Value *base, int64_t bytes) {
    return bytes ? ir.CreateConstInBoundsGEP1_64(ir.getInt8Ty(), base, bytes) : base;
  }
  llvm::Value *pointer(Value memref) {
    if (!memref)
      return llvm::ConstantPointerNull::get(ir.getPtrTy());
    return pointers.lookup(memref);
  }
  llvm::CallInst *call(StringRef name, llvm::Type *result, ArrayRef<llvm::Value *> operands) {
    SmallVector<llvm::Type *> types;
    for (llvm::Value *operand : operands)
      types.push_back(operand->getType());
    return ir.CreateCall(module.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false)), operands);
  }
  /// Returns from the entry point when a call's status is not zero.
  void check(llvm::Value *status) {
    auto &context = module.getContext();
    auto *failed = llvm::BasicBlock::Create(context, "", entry), *next = llvm::BasicBlock::Create(context, "", entry);
    ir.CreateCondBr(ir.CreateIsNotNull(status), failed, next);
    ir.SetInsertPoint(failed);
    ir.CreateRet(status);
    ir.SetInsertPoint(next);
  }
  llvm::Value *site() { return ir.getInt64(info.callSites++); }
  /// A call of the target's runtime; calls of a device have a status each.
  void request(StringRef name, SmallVector<llvm::Value *> operands) {
    operands.insert(operands.begin(), exec);
    std::string function = program.callPrefix + name.str();
    if (onDevice)
      check(call(function, i32, operands));
    else
      call(function, ir.getVoidTy(), operands);
  }
  /// The same of a library's routine: mpt_rt_gemm, mpt_cuda_gemm_chained.
  void library(StringRef name, SmallVector<llvm::Value *> operands) {
    operands.insert(operands.begin(), exec);
    check(call(program.callPrefix + name.str(), i32, operands));
  }
  /// All kernels that make up a launch, one after the other.
  LogicalResult launchOnDevice(rt::LaunchOp op) {
    callsMade = 0;
    for (std::string name = op.getCallee().str(); program.entryNumbers.count(name);
         name = (op.getCallee() + "_" + Twine(callsMade)).str()) {
      request("launch", {ir.getInt64(program.entryNumbers.lookup(name)), arguments});
      ++callsMade;
    }
    if (!callsMade)
      return op.emitOpError() << "expected a kernel for a GPU named " << op.getCalleeAttr();
    return success();
  }

  /// The op's calls, with their entries in the function's table.
  LogicalResult emitCall(Operation *op) {
    if (failed(emit(op)))
      return failure();
    if (checks)
      lookAtResults(op);
    if (std::optional<CallInfo> call = callOf(op))
      info.calls.insert(info.calls.end(), callsMade, *call);
    return success();
  }

  LogicalResult emit(Operation *op) {
    callsMade = 1;
    return TypeSwitch<Operation *, LogicalResult>(op)
        .Case<rt::StateOp, rt::ConstantOp, rt::AllocOp, rt::ViewOp, rt::LaunchOp, rt::RepeatOp>(
            [&](auto op) { return emit(op); })
        .Case<rt::GemmOp, rt::ConvOp>([&](auto op) {
          emit(op);
          return success();
        })
        .Case<rt::RecurrenceOp>([&](rt::RecurrenceOp op) {
          emit(op);
          return success();
        })
        .Case<rt::AttentionOp>([&](auto op) { return emitAttention("attention", op); })
        .Case<rt::AttentionGradientOp>([&](auto op) { return emitAttention("attention_gradient", op); })
        .Case<rt::CopyOp>([&](rt::CopyOp op) {
          int64_t bytes = memory::spanBytes(cast<MemRefType>(op.getSource().getType()));
          request("copy", {pointer(op.getTarget()), pointer(op.getSource()), ir.getInt64(bytes)});
          return success();
        })
        .Case<rt::ZeroOp>([&](rt::ZeroOp op) {
          int64_t bytes = memory::spanBytes(cast<MemRefType>(op.getTarget().getType()));
          request("zero", {pointer(op.getTarget()), ir.getInt64(bytes)});
          return success();
        })
        .Case<func::ReturnOp>([&](func::ReturnOp) {
          ir.CreateRet(ir.getInt32(0));
          return success();
        })
        .Default([](Operation *op) { return op->emitOpError() << "expected an op of the rt dialect"; });
  }

  LogicalResult emit(rt::StateOp op) {
    auto it = program.state.find(op.getState());
    if (it == program.state.end())
      return op.emitOpError() << "expected a train.state named " << op.getStateAttr() << ", found none";
    if (it->second.divided && !shard)
      shard = field(6);
    pointers[op.getBuffer()] = at(it->second.divided ? shard : state, it->second.offset);
    return success();
  }
  LogicalResult emit(rt::AllocOp op) {
    pointers[op.getBuffer()] = at(arena, op.getOffset().value_or(0));
    return success();
  }
  LogicalResult emit(rt::ViewOp op) {
    Type element = cast<MemRefType>(op.getView().getType()).getElementType();
    pointers[op.getView()] = at(pointer(op.getSource()), op.getOffset() * memory::elementBytes(element));
    return success();
  }
  LogicalResult emit(rt::LaunchOp op) {
    for (auto [i, buffer] : llvm::enumerate(op.getBuffers()))
      ir.CreateStore(pointer(buffer), ir.CreateConstInBoundsGEP1_64(ptr, arguments, i));
    if (onDevice)
      return launchOnDevice(op);
    auto *type = llvm::FunctionType::get(ir.getVoidTy(), {ptr, i64, i64}, false);
    auto kernel = module.getOrInsertFunction(("mpt_" + op.getCallee()).str(), type);
    cast<llvm::Function>(kernel.getCallee())->setVisibility(llvm::GlobalValue::HiddenVisibility);
    call(program.callPrefix + "parallel", ir.getVoidTy(),
         {exec, kernel.getCallee(), arguments, ir.getInt64(op.getExtent()), ir.getInt64(op.getGrain())});
    return success();
  }

  /// A loop. Its calls have one place each in the function's table, so every pass goes back to the first.
  LogicalResult emit(rt::RepeatOp op) {
    Block &body = op.getBody().front();
    llvm::BasicBlock *before = ir.GetInsertBlock();
    auto *loop = llvm::BasicBlock::Create(module.getContext(), "", entry);
    ir.CreateBr(loop);
    ir.SetInsertPoint(loop);
    llvm::PHINode *pass = ir.CreatePHI(i64, 2);
    pass->addIncoming(ir.getInt64(0), before);
    SmallVector<llvm::PHINode *> moving;
    for (BlockArgument argument : body.getArguments()) {
      llvm::Value *first = pointer(op.getBuffer(argument));
      moving.push_back(op.getAdvance(argument) ? ir.CreatePHI(ptr, 2) : nullptr);
      if (moving.back())
        moving.back()->addIncoming(first, before);
      pointers[argument] = moving.back() ? moving.back() : first;
    }
    request("repeat", {ir.getInt64(info.calls.size())});
    for (Operation &inner : body)
      if (failed(emitCall(&inner)))
        return failure();
    llvm::BasicBlock *last = ir.GetInsertBlock(), *next = llvm::BasicBlock::Create(module.getContext(), "", entry);
    for (BlockArgument argument : body.getArguments())
      if (llvm::PHINode *place = moving[argument.getArgNumber()]) {
        int64_t bytes = op.getAdvance(argument) * memory::elementBytes(getElementTypeOrSelf(argument));
        place->addIncoming(ir.CreateConstGEP1_64(ir.getInt8Ty(), place, bytes), last);
      }
    llvm::Value *done = ir.CreateAdd(pass, ir.getInt64(1));
    pass->addIncoming(done, last);
    ir.CreateCondBr(ir.CreateICmpULT(done, ir.getInt64(op.getCount())), loop, next);
    ir.SetInsertPoint(next);
    return success();
  }

  void emit(rt::GemmOp op) {
    Value vector = op.getBias() ? op.getBias() : op.getScale();
    SmallVector<llvm::Value *> operands{site(),
                                        descriptor(module, rt::describe(op)),
                                        pointer(op.getA()),
                                        pointer(op.getB()),
                                        pointer(vector),
                                        pointer(op.getD())};
    for (Value scale : op.getOperandScales())
      operands.push_back(pointer(scale));
    if (onDevice && rt::isChained(op)) {
      operands.resize(8, pointer(Value()));
      operands.append({pointer(op.getAux()), pointer(op.getSums())});
      return library("gemm_chained", operands);
    }
    library(op.getOperandScales().empty() ? "gemm" : "gemm_scaled", operands);
  }
  void emit(rt::ConvOp op) {
    mpt_conv_desc value = rt::describe(op, false);
    value.workspace_bytes = 0;
    if (op.getWorkspace())
      value.workspace_bytes = memory::spanBytes(cast<MemRefType>(op.getWorkspace().getType()));
    if (!op.getSums())
      return library("conv", {site(), descriptor(module, value), pointer(Value()), pointer(op.getX()),
                              pointer(op.getW()), pointer(op.getY()), pointer(op.getWorkspace())});
    SmallVector<llvm::Value *> operands{site(),
                                        descriptor(module, value),
                                        pointer(op.getX()),
                                        pointer(op.getW()),
                                        pointer(op.getY()),
                                        pointer(op.getSums())};
    for (Value part : op.getNorm())
      operands.push_back(pointer(part));
    library(op.getNorm().empty() ? "conv_sums" : "conv_norm_sums", operands);
  }
  void emit(rt::RecurrenceOp op) {
    size_t slot = 0;
    for (Value buffer : llvm::concat<Value>(op.getInputs(), op.getOutputs()))
      ir.CreateStore(pointer(buffer), ir.CreateConstInBoundsGEP1_64(ptr, arguments, slot++));
    library("recurrence", {site(), descriptor(module, rt::describe(op)), arguments, pointer(op.getWorkspace())});
  }
  template <typename Op> LogicalResult emitAttention(StringRef name, Op op) {
    SmallVector<llvm::Value *> operands{site(), descriptor(module, rt::describe(op))};
    if (op.getKey()) {
      mpt_attention_dropout dropout{op.getRatio().convertToDouble(), static_cast<int64_t>(op.getStream())};
      operands.append({descriptor(module, dropout), pointer(op.getKey())});
    }
    for (Value buffer : {op.getQ(), op.getK(), op.getV(), op.getBias()})
      operands.push_back(pointer(buffer));
    for (Value buffer : op->getOperands().drop_front(3 + (op.getBias() ? 1 : 0) + (op.getKey() ? 1 : 0)))
      operands.push_back(pointer(buffer));
    library(op.getKey() ? (name + "_dropout").str() : name.str(), operands);
    return success();
  }

  /// Has the runtime look at the float buffers that `op` writes.
  void lookAtResults(Operation *op) {
    SmallVector<Value> results;
    auto launch = dyn_cast<rt::LaunchOp>(op);
    if (launch) {
      llvm::append_range(results, launch.getBuffers().drop_front(launch.getNumInputs()));
    } else if (auto gemm = dyn_cast<rt::GemmOp>(op)) {
      results.push_back(gemm.getD());
      if (gemm.getSums())
        results.push_back(gemm.getSums());
    } else if (auto conv = dyn_cast<rt::ConvOp>(op)) {
      results.push_back(conv.getMade().get());
    } else if (auto attention = dyn_cast<rt::AttentionOp>(op)) {
      results.push_back(attention.getO());
    } else if (auto recurrence = dyn_cast<rt::RecurrenceOp>(op)) {
      llvm::append_range(results, recurrence.getOutputs());
    } else if (auto gradient = dyn_cast<rt::AttentionGradientOp>(op)) {
      llvm::append_range(results, gradient->getOperands().take_back(3));
    }
    for (Value result : results) {
      auto type = cast<MemRefType>(result.getType());
      memory::Sizes strides = memory::stridesOf(type);
      int64_t rank = type.getRank(), count = memory::elementCount(type.getShape());
      bool dense = memory::spanBytes(type) == count * memory::elementBytes(type.getElementType());
      if (!isa<FloatType>(type.getElementType()) || (!dense && rank > MPT_CHECK_RANK))
        continue;
      mpt_check_desc desc{};
      desc.call = static_cast<int64_t>(info.calls.size());
      desc.dtype = rt::runtimeType(type.getElementType());
      desc.flags = launch && launch.getInfinite() ? MPT_CHECK_INFINITIES_MEANT : 0;
      desc.rank = dense ? 1 : rank;
      for (int64_t i = 0; i < desc.rank; ++i) {
        desc.shape[i] = dense ? count : type.getDimSize(i);
        desc.strides[i] = dense ? 1 : strides[i];
      }
      request("check", {descriptor(module, desc), pointer(result)});
    }
  }

  LogicalResult emit(rt::ConstantOp op) {
    SmallVector<char> bytes;
    if (failed(streamBytes(op.getValue(), [&](ArrayRef<char> piece) { bytes.append(piece.begin(), piece.end()); })))
      return op.emitOpError() << "expected a constant whose bytes are known";
    auto *data = llvm::ConstantDataArray::getString(module.getContext(), StringRef(bytes.data(), bytes.size()), false);
    auto *global = new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data);
    global->setAlignment(llvm::Align(64));
    pointers[op.getBuffer()] = global;
    if (onDevice) {
      llvm::IRBuilder<> first(&entry->getEntryBlock(), entry->getEntryBlock().begin());
      llvm::Value *place = first.CreateAlloca(ptr);
      request("constant", {global, ir.getInt64(bytes.size()), place});
      pointers[op.getBuffer()] = ir.CreateLoad(ptr, place);
    }
    return success();
  }

  Program &program;
  FunctionInfo &info;
  llvm::Module &module;
  const bool onDevice, checks;
  unsigned callsMade = 1; // by the op that was emitted last
  llvm::IRBuilder<> ir;
  llvm::Type *ptr, *i64, *i32;
  llvm::Function *entry = nullptr;
  llvm::Value *exec = nullptr, *state = nullptr, *shard = nullptr, *arena = nullptr, *arguments = nullptr;
  llvm::DenseMap<Value, llvm::Value *> pointers;
};

} // namespace

LogicalResult mpt::target::buildEntries(Program &program, llvm::Module &out, bool checks) {
  for (FunctionInfo &info : program.functions) {
    if (failed(EntryBuilder(program, info, out, checks).build()))
      return failure();
    info.buffers = largestBuffers(info.op);
  }
  return success();
}
