// Passes of the precision stage. Flag, class, file and test share one name: --precision-<name>, <Name>.cpp, test/passes/precision/<name>.mlir.
#ifndef MPT_PASSES_PRECISION_PASSES_TD
#define MPT_PASSES_PRECISION_PASSES_TD

include "passes/PassBase.td"

def Assign : Pass<"precision-assign", "::mlir::ModuleOp"> {
  let summary = "decide the type of every float value, with the reason";
  let description = [{
    In: a module of phase training; all functions are decided together. Out: the same module with `mpt.policy` on the
    module and `mpt.precision = {operands, results, rule}` on ops and parameter states; no type changes yet. Rules apply
    in the order class, op, node, `keep-f32`, `keep-narrow`; slots that an op declares wide stay wide. What the rules leave
    free takes the types that move the fewest bytes through casts (a minimum cut). FP64 values and values that are narrow
    already are left alone.

    ```mlir
    %y = mpt.matmul %x, %w {mpt.precision = {operands = [f16, f16], results = [f16],
                            rule = "class contraction -> narrow; fewest cast bytes"}} : ...
    ```
  }];
  let options = [
    Option<"policy", "policy", "std::string", "\"amp-f16\"", "built-in policy, or the path of a policy file">,
    ListOption<"keepF32", "keep-f32", "std::string", "regular expressions of node names that compute in f32">,
    ListOption<"keepNarrow", "keep-narrow", "std::string", "regular expressions of node names that compute narrow; beats keep-f32">
  ];
  let statistics = [
    Statistic<"numNarrow", "narrow-values", "values decided narrow">,
    Statistic<"numWide", "wide-values", "values decided wide">
  ];
  let dependentDialects = ["::mpt::policy::PolicyDialect"];
}

def InsertCasts : Pass<"precision-insert-casts", "::mlir::ModuleOp"> {
  let summary = "give every value its decided type, with one cast a value and type";
  let description = [{
    In: a module with the decisions of `precision-assign`. Out: operands and results have the decided types; each value is
    cast at most once to each type, before the first user. A widening cast, which is exact, is made again for the backward
    pass instead of keeping a wide copy alive till then. Constants are converted at compile time (`mpt.range` says when one
    was out of range). Parameters are still stored in FP32. `mpt.lossy_casts` on each function counts casts that round.

    ```mlir
    %0 = mpt.cast %x : tensor<8x4xf32> to tensor<8x4xf16>
    %1 = mpt.matmul %0, %w : (tensor<8x4xf16>, tensor<4x2xf16>) -> tensor<8x2xf16>
    ```
  }];
  let statistics = [
    Statistic<"numCasts", "casts", "casts added">,
    Statistic<"numLossy", "lossy-casts", "casts added that round">,
    Statistic<"numConstants", "constants", "constants converted">
  ];
}

def MasterWeights : Pass<"precision-master-weights", "::mlir::ModuleOp"> {
  let summary = "store narrow parameters with a wide master that the optimizer updates";
  let description = [{
    In: casts are in, parameters decided narrow are read in FP32 and cast. Out: their state is narrow; a trained one has
    `train.state master @"<name>.master" of "<name>"` with the FP32 initial value, FP32 readers and writers use the master,
    and each write of the master also writes its narrow copy. A parameter that nobody writes is converted at compile time.

    ```mlir
    train.state master @"w.master" : tensor<4x2xf32> of "w" = dense<0.5> : tensor<4x2xf32>
    train.state parameter @w : tensor<4x2xf16> {from = "w.master"}
    ```
  }];
  let statistics = [Statistic<"numMasters", "masters", "masters added">];
}

#endif
