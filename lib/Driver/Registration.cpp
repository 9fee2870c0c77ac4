// SPDX-License-Identifier: Apache-2.0
// Dialects and external models of all layers.
#include "mpt/Driver/Registration.h"

#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/Indices.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Policy/PolicyDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"
#include "mpt/Library/Library.h"
#include "mpt/Lowering/Models/Models.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Precision/Models.h"
#include "mpt/Reference/Reference.h"
#include "mpt/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#define MPT_TARGET(name)                                                                                               \
  namespace mpt::name {                                                                                                \
  std::unique_ptr<target::Target> createTarget();                                                                      \
  }
#include "mpt/Target/Targets.def"
#undef MPT_TARGET

void mpt::registerTargets() {
#define MPT_TARGET(name) target::registerTarget(name::createTarget);
#include "mpt/Target/Targets.def"
#undef MPT_TARGET
}

void mpt::registerAll(mlir::DialectRegistry &registry) {
  registry
      .insert<mpt::MPTDialect, mpt::train::TrainDialect, mpt::onnx::ONNXDialect, mpt::check::CheckDialect,
              mpt::policy::PolicyDialect, mpt::library::LibraryDialect, mpt::rt::RTDialect, mpt::dist::DistDialect>();
  registry.insert<mlir::func::FuncDialect, mlir::arith::ArithDialect, mlir::math::MathDialect, mlir::scf::SCFDialect,
                  mlir::memref::MemRefDialect, mlir::bufferization::BufferizationDialect, mlir::vector::VectorDialect,
                  mlir::LLVM::LLVMDialect, mlir::shard::ShardDialect>();
  registerTargets();
  for (const std::unique_ptr<target::Target> &target : target::allTargets())
    target->registerDialects(registry);
  registerOperatorClasses(registry);
  registerIndexModels(registry);
  registerAutodiffModels(registry);
  registerPrecisionModels(registry);
  registerMeanings(registry);
  registerAccumulators(registry);
  registerReferenceModels(registry);
  registerLoopLoweringModels(registry);
  registerLibraryModels(registry);
  memory::registerMemoryModels(registry);
}
