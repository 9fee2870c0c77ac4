// SPDX-License-Identifier: Apache-2.0
// Passes of the memory stage. Flag, class, file and test share one name: --memory-<name>, <Name>.cpp, test/passes/memory/<name>.mlir.
#ifndef MPT_PASSES_MEMORY_PASSES_TD
#define MPT_PASSES_MEMORY_PASSES_TD

include "passes/PassBase.td"

def Bufferize : Pass<"memory-bufferize", "::mlir::ModuleOp"> {
  let summary = "tensors become buffers, library calls and kernel launches";
  let description = [{
    Chooses a layout for every value (channels-last around convolutions), turns views into strides, writes results where
    they are wanted (outputs, state, parts of a concatenation) and generates one kernel for each distinct fusion. A GPU
    kernel may be several launches: functions @kernelN, @kernelN_1, ... of the same arguments, in order.
  }];
  let dependentDialects = ["::mpt::rt::RTDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect",
    "::mlir::gpu::GPUDialect"];
  let options = [
    Option<"kernels", "kernels", "std::string", "\"cpu\"",
           "cpu; gpu; or gpu-on-cpu, which runs the GPU's schedules in loops on this processor (for tests)">,
    Option<"nativeBf16", "native-bf16", "bool", "false", "the processor multiplies BF16: convolutions need no workspace">,
    Option<"nativeFloat8", "native-float8", "bool", "false", "gpu: the device multiplies 8-bit floats itself">,
    Option<"countTraffic", "count-traffic", "bool", "false", "functions get mpt.traffic, the least that kernels must move">,
    Option<"vectorBits", "vector-bits", "unsigned", "0", "width of the vectors in kernels; this machine's if 0">
  ];
}

def Plan : Pass<"memory-plan", "::mlir::ModuleOp"> {
  let summary = "offsets in one arena for all scratch, from lifetimes; kernels run in place where that is safe";
  let dependentDialects = ["::mpt::rt::RTDialect"];
  let options = [Option<"inPlace", "in-place", "bool", "true", "let kernels write over inputs that nobody reads later">];
}

def VerifyPlan : Pass<"memory-verify-plan", "::mlir::ModuleOp"> {
  let summary = "fails when two buffers that are alive together overlap, or one leaves the arena";
}

def MemoryReport : Pass<"memory-report", "::mlir::ModuleOp"> {
  let summary = "prints what a planned module needs: state by role, scratch, saved activations, peak";
  let options = [
    Option<"json", "json", "bool", "false", "as JSON">,
    Option<"file", "file", "std::string", "", "where to write; standard output if empty">
  ];
}

#endif
