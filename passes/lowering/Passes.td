// SPDX-License-Identifier: Apache-2.0
// Passes of the lowering stage. Flag, class, file and test share one name: --lowering-<name>, <Name>.cpp, test/passes/lowering/<name>.mlir.
#ifndef MPT_PASSES_LOWERING_PASSES_TD
#define MPT_PASSES_LOWERING_PASSES_TD

include "passes/PassBase.td"

def EmitKernels : Pass<"lowering-emit-kernels", "::mlir::ModuleOp"> {
  let summary = "kernels become loops, or grids of threads, as the target makes them";
  let description = [{
    In: functions on buffers and kernels whose bodies are fusions, after memory-bufferize. Out: kernels with code, which say which
    operands they may write over (`mpt.in_place`), and launches that say how far each runs and have its scratch. A GPU kernel may
    be several launches: functions @kernelN, @kernelN_1, ... of the same arguments, in order. Where a kernel reads a state that it
    writes, but not at the index that it writes, the result gets a buffer of its own and is copied to the state behind the launch.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::vector::VectorDialect", "::mlir::gpu::GPUDialect"];
  let options = [
    Option<"target", "target", "std::string", "", "target, as --target names it; the default one if empty">,
    ListOption<"flags", "flags", "std::string", "the target's flags, as in --mcpu=x86-64">
  ];
}

def EmitLibrary : Pass<"lowering-emit-library", "::mlir::ModuleOp"> {
  let summary = "writes a planned module as a library of a target; the module stays as it is";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect", "::mlir::affine::AffineDialect",
    "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::vector::VectorDialect", "::mlir::ub::UBDialect", "::mlir::index::IndexDialect"];
  let options = [
    Option<"out", "out", "std::string", "", "folder to write to">,
    Option<"name", "name", "std::string", "", "stem of the files written; the module's mpt.name if empty">,
    Option<"kind", "kind", "std::string", "\"shared\"", "shared, static or object">,
    Option<"target", "target", "std::string", "", "target, as --target names it; the default one if empty">,
    ListOption<"flags", "flags", "std::string", "the target's flags, as in --mcpu=x86-64">,
    Option<"runtime", "runtime", "std::string", "", "runtime library to link with; the one of this installation if empty; none">,
    Option<"linker", "linker", "std::string", "", "program that links; cc or ld.lld if empty">,
    Option<"keepIR", "keep-ir", "bool", "false", "also write the LLVM IR">
  ];
}

def EmitPtx : Pass<"lowering-emit-ptx", "::mlir::ModuleOp"> {
  let summary = "writes the module's GPU kernels as PTX; the module stays as it is";
  let description = [{
    Takes the functions with a grid, which --lowering-emit-kernels=target=cuda makes, and the tables they read.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect", "::mlir::cf::ControlFlowDialect",
    "::mlir::affine::AffineDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect", "::mlir::ub::UBDialect",
    "::mlir::index::IndexDialect"];
  let options = [
    Option<"arch", "arch", "std::string", "\"sm_80\"", "architecture, as NVIDIA names it">,
    Option<"file", "file", "std::string", "\"-\"", "where to write; - for standard output">
  ];
}

#endif
