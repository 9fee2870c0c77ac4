// SPDX-License-Identifier: Apache-2.0
// Passes of the memory stage. Flag, class, file and test share one name: --memory-<name>, <Name>.cpp, test/passes/memory/<name>.mlir.
#ifndef MPT_PASSES_MEMORY_PASSES_TD
#define MPT_PASSES_MEMORY_PASSES_TD

include "passes/PassBase.td"

def AssignDestinations : Pass<"memory-assign-destinations", "::mlir::ModuleOp"> {
  let summary = "which results are written straight to the place where they are wanted";
  let description = [{
    In: functions after stage library. Out: `train.write`, `func.return` and `mpt.concat` carry `library.placed`, the numbers of the
    operands that their makers write to the state, to the output or to their part of the result. The others are copied.

    A result gets the first place, states before outputs before parts, that reshapes and transposes on the way can show by
    strides. A state needs more: every reader of its old value runs before the maker, which is a kernel if it reads that itself. Whether
    that kernel may write over what it reads is known once it exists, so bufferization checks it.

    A fusion that reads the old value of a state last, where the function leaves a constant in that state, carries `library.lent`:
    its result lies in the state's memory until the function ends. Sums of gradients over micro-steps lie in their accumulators.
  }];
  let statistics = [
    Statistic<"numAssigned", "assigned", "operands that their makers write in place">,
    Statistic<"numLent", "lent", "results in the memory of a state that the function empties">
  ];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def Bufferize : Pass<"memory-bufferize", "::mlir::ModuleOp"> {
  let summary = "tensors become buffers, library calls and kernel launches";
  let description = [{
    In: functions after phase library. Out: functions on buffers, whose results are arguments behind the others. One op after the
    other is asked for its form (`Bufferizable`): views become strides, library calls ops of dialect `rt`, fusions launches of
    kernels. A kernel, one for each distinct fusion, is a private function of its buffers, whose body is the fusion between
    tensors; --lowering-emit-kernels makes loops of it. Layouts are those of --library-choose-layouts, and places those of
    --memory-assign-destinations; without these passes, buffers are row-major and results are copied. What calls want of buffers,
    the target says.
  }];
  let dependentDialects = ["::mpt::library::LibraryDialect", "::mpt::rt::RTDialect", "::mlir::memref::MemRefDialect",
    "::mlir::bufferization::BufferizationDialect"];
  let options = [
    Option<"target", "target", "std::string", "", "target, as --target names it; the default one if empty">,
    ListOption<"flags", "flags", "std::string", "the target's flags, as in --mcpu=x86-64">
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

def VerifyAlignment : Pass<"memory-verify-alignment", "::mlir::ModuleOp"> {
  let summary = "fails when a GEMM's matrix has rows that begin at addresses which are not aligned";
  let description = [{
    In: functions on buffers. Libraries multiply matrices on Tensor Cores at full speed where the leading dimension and the first
    address are multiples of 16 bytes (cuBLAS documentation, "Tensor Core Usage"). Buffers of the program's own have such rows on a
    GPU, by a stride that is longer than the row; states and inputs lie as their checkpoints do.
  }];
  let options = [
    Option<"alignment", "alignment", "int64_t", "16", "bytes">,
    Option<"smallest", "smallest", "int64_t", "0", "bytes of a matrix from which it is looked at">
  ];
}

def MemoryVerifyAccumulators : Pass<"memory-verify-accumulators", "::mlir::ModuleOp"> {
  let summary = "fails when a kernel keeps a running value in less than FP32";
  let description = [{
    In: kernels as loops, after lowering-emit-kernels. Out: the same, or an error for each of:
    - arithmetic on floats narrower than FP32;
    - a value that goes round a loop in a narrow type and is combined on the way;
    - a narrow element of memory that is read, combined and stored again: every update would round it.

    Maxima, selections and casts move values; the rule leaves them alone.
  }];
}

def MemoryReport : Pass<"memory-report", "::mlir::ModuleOp"> {
  let summary = "prints what a planned module needs: state by role, scratch, saved activations, peak";
  let options = [
    Option<"json", "json", "bool", "false", "as JSON">,
    Option<"file", "file", "std::string", "", "where to write; standard output if empty">
  ];
}

#endif
