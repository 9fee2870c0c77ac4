// SPDX-License-Identifier: Apache-2.0
// Lowers kernels to LLVM and gives each the calling convention of mpt_kernel.
#include "KernelCode.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Memory/Bufferize.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"
#include <mutex>

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

/// For each kernel, the arguments that no other argument of any launch overlaps while one of both is written.
llvm::StringMap<llvm::BitVector> findNoAlias(const Program &program) {
  llvm::StringMap<llvm::BitVector> result;
  for (const FunctionInfo &info : program.functions)
    info.op->walk([&](rt::LaunchOp launch) {
      auto owner = [](Value memref) {
        while (auto view = memref.getDefiningOp<rt::ViewOp>())
          memref = view.getSource();
        return memref;
      };
      size_t count = launch.getBuffers().size();
      auto &safe = result.try_emplace(launch.getCallee(), count, true).first->second;
      for (size_t i = 0; i < count; ++i)
        for (size_t j = std::max<size_t>(i + 1, launch.getNumInputs()); j < count; ++j) {
          Value a = owner(launch.getBuffers()[i]), b = owner(launch.getBuffers()[j]);
          auto stateA = a.getDefiningOp<rt::StateOp>(), stateB = b.getDefiningOp<rt::StateOp>();
          if (a == b || (stateA && stateB && stateA.getState() == stateB.getState())) {
            safe.reset(i);
            safe.reset(j);
          }
        }
    });
  return result;
}

/// void mpt_<name>(ptr args, i64 begin, i64 end): loads the buffers' addresses and runs the body, which is inlined.
void wrap(llvm::Function &body, const llvm::BitVector *noAlias) {
  llvm::Module &module = *body.getParent();
  llvm::IRBuilder<> ir(module.getContext());
  llvm::Type *ptr = ir.getPtrTy(), *i64 = ir.getInt64Ty();
  auto *wrapper = llvm::Function::Create(llvm::FunctionType::get(ir.getVoidTy(), {ptr, i64, i64}, false),
                                         llvm::GlobalValue::ExternalLinkage, "mpt_" + body.getName(), module);
  wrapper->setVisibility(llvm::GlobalValue::HiddenVisibility);
  ir.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", wrapper));
  SmallVector<llvm::Value *> operands;
  unsigned buffers = body.arg_size() - 2;
  for (unsigned i = 0; i < buffers; ++i) {
    operands.push_back(ir.CreateLoad(ptr, ir.CreateConstInBoundsGEP1_64(ptr, wrapper->getArg(0), i)));
    if (noAlias && noAlias->test(i))
      body.addParamAttr(i, llvm::Attribute::NoAlias);
  }
  operands.push_back(wrapper->getArg(1));
  operands.push_back(wrapper->getArg(2));
  ir.CreateCall(&body, operands);
  ir.CreateRetVoid();
  body.setLinkage(llvm::GlobalValue::InternalLinkage);
  body.addFnAttr(llvm::Attribute::AlwaysInline);
}

/// Defines the conversion that code generation calls for single bf16 values on processors without one: compilers'
/// support libraries have it in new versions only. To nearest even; a NaN becomes quiet.
void defineBFloat16Rounding(llvm::Module &module) {
  llvm::IRBuilder<> ir(module.getContext());
  llvm::Type *i32 = ir.getInt32Ty();
  auto *function = llvm::Function::Create(llvm::FunctionType::get(ir.getBFloatTy(), {ir.getFloatTy()}, false),
                                          llvm::GlobalValue::LinkOnceODRLinkage, "__truncsfbf2", module);
  function->setVisibility(llvm::GlobalValue::HiddenVisibility);
  ir.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", function));
  llvm::Value *x = function->getArg(0), *bits = ir.CreateBitCast(x, i32);
  llvm::Value *odd = ir.CreateAnd(ir.CreateLShr(bits, 16), 1);
  llvm::Value *up = ir.CreateAdd(bits, ir.CreateAdd(odd, ir.getInt32(0x7fff)));
  llvm::Value *rounded = ir.CreateSelect(ir.CreateFCmpUNO(x, x), ir.CreateOr(bits, 0x400000), up);
  ir.CreateRet(ir.CreateBitCast(ir.CreateTrunc(ir.CreateLShr(rounded, 16), ir.getInt16Ty()), ir.getBFloatTy()));
  llvm::appendToCompilerUsed(module, {function});
}

} // namespace

LogicalResult mpt::target::compileKernels(ModuleOp module, const Program &program, const Processor &processor,
                                          unsigned threads, SmallVectorImpl<Object> &objects, std::string *listing) {
  if (program.kernels.empty())
    return success();
  // Pieces of at least some kernels, so that small models do not pay for the split. Dealt round: costs even out.
  size_t pieces = std::clamp<size_t>(program.kernels.size() / 8, 1, 4 * std::max(1u, threads));
  OpBuilder builder(module.getContext());
  OwningOpRef<ModuleOp> whole = ModuleOp::create(module.getLoc());
  SmallVector<ModuleOp> parts;
  for (size_t i = 0; i < pieces; ++i) {
    builder.setInsertionPointToEnd(whole->getBody());
    parts.push_back(ModuleOp::create(builder, module.getLoc()));
  }
  for (auto [i, kernel] : llvm::enumerate(program.kernels)) {
    Operation *copy = kernel->clone();
    removeAttr<MPTDialect::KernelAttrHelper>(copy);
    removeAttr<MPTDialect::OpsAttrHelper>(copy);
    parts[i % pieces].push_back(copy);
    SymbolTable::setSymbolVisibility(copy, SymbolTable::Visibility::Public);
  }
  // Constant tables that kernels read.
  for (auto table : module.getOps<memref::GlobalOp>())
    for (ModuleOp part : parts)
      part.push_back(table->clone());
  PassManager passes(module.getContext(), ModuleOp::getOperationName());
  passes.enableVerifier(false);
  buildKernelToLLVMPipeline(passes.nest<ModuleOp>());
  if (failed(passes.run(*whole)))
    return module.emitError() << "kernels could not be lowered to LLVM";

  llvm::StringMap<llvm::BitVector> noAlias = findNoAlias(program);
  objects.resize(pieces);
  std::mutex mutex;
  std::string error;
  std::vector<std::string> listings(pieces); // in order, whoever is ready first
  auto compile = [&](size_t number) {
    llvm::LLVMContext context;
    std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(parts[number], context, "kernels");
    llvm::Expected<Machine> machine = Machine::create(processor);
    std::string problem;
    if (!code) {
      problem = "kernels could not be translated to LLVM IR";
    } else if (!machine) {
      problem = llvm::toString(machine.takeError());
    } else {
      SmallVector<llvm::Function *> bodies;
      for (llvm::Function &function : *code)
        if (!function.isDeclaration())
          bodies.push_back(&function);
      for (llvm::Function *body : bodies) {
        auto it = noAlias.find(body->getName());
        wrap(*body, it == noAlias.end() ? nullptr : &it->second);
      }
      defineBFloat16Rounding(*code);
      machine->adopt(*code);
      if (llvm::Error failed = machine->compile(*code, objects[number]))
        problem = llvm::toString(std::move(failed));
      else if (listing)
        llvm::raw_string_ostream(listings[number]) << *code;
    }
    std::lock_guard lock(mutex);
    if (!problem.empty())
      error = problem;
  };
  // Translation makes types and attributes, which only a context with threads guards.
  if (pieces == 1 || threads == 1 || !module.getContext()->isMultithreadingEnabled()) {
    for (size_t i = 0; i < pieces; ++i)
      compile(i);
  } else {
    llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
    for (size_t i = 0; i < pieces; ++i)
      pool.async([&, i] { compile(i); });
    pool.wait();
  }
  if (listing)
    *listing += llvm::join(listings, "");
  if (!error.empty())
    return module.emitError() << error;
  return success();
}
