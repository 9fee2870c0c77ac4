// SPDX-License-Identifier: Apache-2.0
// Passes of the precision stage. Flag, class, file and test share one name: --precision-<name>, <Name>.cpp, test/passes/precision/<name>.mlir.
#ifndef MPT_PASSES_PRECISION_PASSES_TD
#define MPT_PASSES_PRECISION_PASSES_TD

include "passes/PassBase.td"

def Assign : Pass<"precision-assign", "::mlir::ModuleOp"> {
  let summary = "decide the type of every float value, with the reason";
  let description = [{
    In: a module of phase training. Out: the same module with `mpt.policy` on it and `#mpt.precision<operands, results, rule>`
    on ops and parameter states; no type changes yet. All functions are decided together, because they share parameters.

    Rules apply in the order class, layer, op, node, then `rules`, `keep-f32` and `keep-narrow`. Slots that an op declares
    wide stay wide. Values that the rules leave free take the types that move the fewest bytes through casts: a minimum
    cut. FP64 values and values that are narrow already are left alone.
  }];
  let options = [
    Option<"policy", "policy", "std::string", "\"amp-f16\"", "built-in policy, the path of a policy file, or auto with settings; then ,measure=FILE for 8 bits where measured times ask for them">,
    ListOption<"keepF32", "keep-f32", "std::string", "regular expressions of node names that compute in f32">,
    ListOption<"keepNarrow", "keep-narrow", "std::string", "regular expressions of node names that compute narrow; beats keep-f32">,
    Option<"checksRules", "check-rules", "bool", "false", "refuse rules, keep-f32 and keep-narrow that name no op or node of the module">,
    ListOption<"rules", "rules", "std::string", "rules as in a policy file, without policy.; they beat the policy's">,
    Option<"ranges", "ranges", "std::string", "\"\"", "file of measured ranges (mpt-run --calibrate): types under policy auto, limits under others">,
    Option<"lossScale", "loss-scale", "std::string", "\"\"", "none, a number, or dynamic with settings, instead of the policy's">,
    Option<"slots", "slots", "std::string", "\"\"", "type that optimizer slots are stored in, instead of the policy's: f32, f16, bf16, i8 or f8">,
    Option<"saved", "saved", "std::string", "\"\"", "type in which activations wait for the backward pass, instead of the policy's: f8 or storage">
  ];
  let statistics = [
    Statistic<"numNarrow", "narrow-values", "values decided narrow">,
    Statistic<"numWide", "wide-values", "values decided wide">
  ];
  let dependentDialects = ["::mpt::policy::PolicyDialect", "::mpt::MPTDialect", "::mpt::train::TrainDialect"];
}

def InsertCasts : Pass<"precision-insert-casts", "::mlir::ModuleOp"> {
  let summary = "give every value its decided type, with one cast a value and type";
  let description = [{
    In: a module with the decisions of `precision-assign`. Out: operands and results have the decided types, and
    `mpt.lossy_casts` on each function counts casts that round. Parameters are still stored in FP32.

    A value is cast at most once to each type, before the first user. A widening cast, which is exact, is rematerialized for the
    backward pass instead of keeping a wide copy alive till then. Constants are converted at compile time; `mpt.range` says
    when one was out of range.
  }];
  let statistics = [
    Statistic<"numCasts", "casts", "casts added">,
    Statistic<"numLossy", "lossy-casts", "casts added that round">,
    Statistic<"numConstants", "constants", "constants converted">
  ];
}

def AssignNodes : Pass<"precision-assign-nodes", "::mlir::ModuleOp"> {
  let summary = "decide the type of every float value of a graph of ONNX nodes, with the reason";
  let description = [{
    In: `func @main` of `onnx.node` ops, as it is in the file. Out: the same with `mpt.policy` on the module and
    `#mpt.precision<operands, results, rule>` on nodes. Subgraphs are decided together with the graph around them.

    The schema of a node's version says which slots may be narrow and which share a type; nodes without a schema keep theirs.
    The graph's inputs and results stay as they are. What leads from the last contraction to results of the graph (a loss, an
    optimizer) stays wide. No policy narrows an optimizer's running sum of squares (rule `optimizer.second_moment`), nor its
    epsilon with the division (`optimizer.epsilon`). What is left free takes the types that move the fewest bytes through
    casts.

    ```mlir
    %y = "onnx.node"(%x, %w) <{op_type = "MatMul", ...}> {mpt.precision = #mpt.precision<operands = [f16, f16], results = [f16],
                             rule = "class contraction -> narrow">} : ...
    ```
  }];
  let options = [
    Option<"policy", "policy", "std::string", "\"amp-f16\"", "built-in policy, or the path of a policy file">,
    ListOption<"keepF32", "keep-f32", "std::string", "regular expressions of node names that compute in f32">,
    ListOption<"keepNarrow", "keep-narrow", "std::string", "regular expressions of node names that compute narrow; beats keep-f32">,
    Option<"checksRules", "check-rules", "bool", "false", "refuse rules, keep-f32 and keep-narrow that name no op or node of the module">,
    ListOption<"rules", "rules", "std::string", "rules as in a policy file, without policy.; they beat the policy's">,
    Option<"ranges", "ranges", "std::string", "\"\"", "file of ranges of the graph (mpt-run --emit=onnx --calibrate), for policy auto">
  ];
  let statistics = [
    Statistic<"numNarrow", "narrow-values", "values decided narrow">,
    Statistic<"numWide", "wide-values", "values decided wide">,
    Statistic<"numCastBytes", "cast-bytes", "bytes that casts will read and write">
  ];
  let dependentDialects = ["::mpt::policy::PolicyDialect", "::mpt::MPTDialect", "::mpt::train::TrainDialect"];
}

def CastNodes : Pass<"precision-cast-nodes", "::mlir::ModuleOp"> {
  let summary = "give every value of a graph of ONNX nodes its decided type, with one Cast a value and type";
  let description = [{
    In: a graph with the decisions of `precision-assign-nodes`. Out: its values have the decided types. A result of the graph
    keeps its name and its type.

    A value is cast at most once to each type, before its first user in the graph that defines it. Initializers and Constant
    nodes are converted instead; one that is read in both types is there twice. A model's own casts that round stay. What it
    widened is read narrow where narrow is wanted, and pairs of casts that cancel exactly are removed.

    ```mlir
    %0 = "onnx.node"(%x) <{attrs = {to = 10 : i64}, op_type = "Cast", output_names = ["x_float16"], ...}>
           : (tensor<8x4xf32>) -> tensor<8x4xf16>
    ```
  }];
  let statistics = [
    Statistic<"numCasts", "casts", "casts added">,
    Statistic<"numConstants", "constants", "constants converted">
  ];
}

def MasterWeights : Pass<"precision-master-weights", "::mlir::ModuleOp"> {
  let summary = "store narrow parameters with a wide master that the optimizer updates";
  let description = [{
    In: a module with casts; parameters decided narrow are read in FP32 and cast. Out: their state is narrow. A trained one has
    `train.state master @"<name>.master" of "<name>"` with the FP32 initial value.

    FP32 readers and writers use the master, and each write of the master also writes its narrow copy. One of at least
    `packed-from` elements, in a type of `packed`, whose narrow readers all round what they read (`library-round-operands`), stays
    in FP32 with the casts of its readers, and has `library.packed`. A parameter that
    nobody writes is converted at compile time. Under a policy with a narrow `master` type, parameters are their own masters.
    Under one with narrow `slots`, so are optimizer slots that may be narrow: they are widened for the update and rounded
    after it, stochastically unless the policy says otherwise. Slots of 8 bits, which updates read element by element, hold the
    codes of `mpt.encode_blocks` and have the scales of blocks of 256 elements in `train.state slot @"<name>.scale"`; those of
    fewer than 4,096 elements, or of another number than whole blocks, stay in FP32. With `policy.rounding "compensated" of masters`, a
    parameter has `train.state slot @"<name>.remainder"`: the update starts from the sum of both, and leaves there what
    rounding the new parameter leaves out.
  }];
  let options = [
    ListOption<"packed", "packed", "std::string", "types that the target's GEMMs round FP32 operands to: f16, bf16">,
    Option<"packedFrom", "packed-from", "int64_t", "1", "elements from which on no copy of a parameter is kept">,
    Option<"packsSome", "packs-some", "bool", "false", "an error where every parameter has a copy">
  ];
  let statistics = [
    Statistic<"numMasters", "masters", "masters added">,
    Statistic<"numNarrowStates", "narrow-states", "parameters and slots that are updated in a narrow type">
  ];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def Quantize : Pass<"precision-quantize", "::mlir::ModuleOp"> {
  let summary = "convert operands of GEMMs and convolutions to the policy's 8-bit types, with scales";
  let description = [{
    In: a module with masters and without loss scaling. Out: operands of the contractions that `precision-assign` marked
    `quantized` have the policy's compute type, or its gradients type where they are computed from the gradient seed.

    A tensor is converted once to each type, in the policy's rounding mode. It is converted from the value before its rounding
    to the storage type, where there is one. With tensor scaling it is multiplied by its scale first, and the FP32 result of
    the contraction by the reciprocals of both scales. Delayed scaling keeps `@"mpt.amax_history"` [tensors, history] and
    `@"mpt.tensor_scales"` [tensors] as state, which functions that write state update; a tensor that such a function does not
    have takes its own largest magnitude. Parameter gradients are rounded to `parameter_gradients`. Nothing happens under a
    policy with one narrow type.
  }];
  let statistics = [
    Statistic<"numQuantized", "quantized", "values converted to an 8-bit type">,
    Statistic<"numContractions", "contractions", "contractions with 8-bit operands">
  ];
}

def SaveActivations : Pass<"precision-save-activations", "::mlir::ModuleOp"> {
  let summary = "keep activations for the backward pass in the policy's saved type";
  let description = [{
    In: a module with 8-bit operands of GEMMs, and the policy's summary. Out: what the backward pass reads of the forward pass in
    the storage type is rounded to `saved` and widened again, so that memory holds the rounded value between the two.

    An activation is what is computed from the function's inputs, in a function with a gradient seed. Values that are wide stay
    wide: statistics of norms, losses. So do parameters, inputs, and what moves these alone. GEMMs read what `precision-quantize`
    gave them, and gradients of losses what the losses read. Rounding is that of GEMMs' operands, and an
    activation that is such an operand too is rounded once. Nothing happens under a policy whose `saved` is its storage type.
    Arithmetic of the forward pass is not changed (arXiv 1905.12334, section 3, stores activations in 8 bits).
  }];
  let statistics = [
    Statistic<"numSaved", "saved", "activations that are kept in the saved type">
  ];
}

def AdaptiveScales : Pass<"precision-adaptive-scales", "::mlir::ModuleOp"> {
  let summary = "give each layer's gradient a scale of its own, from its spread";
  let description = [{
    In: a module under a policy of adaptive loss scaling (arXiv 1910.12385), with casts. Out: each narrow gradient carries a scale
    of its own, a value on the device. Nothing happens in other modes.

    The seed starts with the policy's initial scale. A gradient that is rounded to a narrow type is rescaled in FP32 before its
    rounding by `train.cast_scale`, and a narrow gradient that a GEMM or convolution makes by `train.layer_scale`. Gradients
    that meet with different scales are brought to one by `train.merge_scale`. Each parameter gradient is unscaled by the
    scale that it carries.
  }];
  let statistics = [
    Statistic<"numScales", "scales", "scales of layers and casts">,
    Statistic<"numMerges", "merges", "places where gradients with different scales meet">
  ];
}

def LossScaling : Pass<"precision-loss-scaling", "::mlir::ModuleOp"> {
  let summary = "scale the loss, unscale parameter gradients, and commit only steps whose gradients are finite";
  let description = [{
    In: functions with `train.gradient`, and the policy's summary on the module. Out: the gradient seed is multiplied by the
    scale, each gradient is unscaled in FP32 before its `train.gradient`, and writes hold only if all gradients are finite.

    Writes of generator and scale state, and of sums over micro-steps, are not conditional; a step that reads such sums checks
    them instead. Dynamic scaling adds the states `@"mpt.loss_scale"`, `@"mpt.good_steps"` and `@"mpt.hysteresis"`. Every step
    updates them, a skipped one too; @accumulate leaves them. A fixed scale is a constant, and a scale of 1 adds no
    arithmetic, only the check. The step gets the results "loss_scale" (the scale that it used) and "skipped". The order is
    unscale, finite check, clip, update, commit: whatever reads `train.gradient` sees true gradients.
  }];
  let statistics = [
    Statistic<"numUnscaled", "unscaled", "parameter gradients unscaled">,
    Statistic<"numConditional", "conditional-writes", "writes made conditional">
  ];
}

def Products : Pass<"precision-products", "::mlir::ModuleOp"> {
  let summary = "make a module of the products that may have 8-bit operands, to be timed";
  let description = [{
    In: a module with the decisions of `precision-assign`. Out: in place of its functions and states, two functions a distinct
    product with 8-bit operands: `product_<i>_16` in the policy's 16-bit types, and `product_<i>_8`, which converts its
    operands first; and `conversion_<i>` for each distinct conversion. They have the types that a step would have after
    `precision-quantize`. The manifest's `measures` tells which function is which product.

    Two ops are one product where operation, attributes, shapes and types agree: they take the same time.
  }];
  let statistics = [
    Statistic<"numProducts", "products", "distinct products">,
    Statistic<"numConversions", "conversions", "distinct conversions of operands">
  ];
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect"];
}

def WidenReductions : Pass<"precision-widen-reductions", "::mlir::ModuleOp"> {
  let summary = "state the accumulator type of every contraction and reduction";
  let description = [{
    In: a module of any phase of precision. Out: every op that has a `numerics` attribute and float types carries
    `#mpt.numerics<in, acc, out>`. The accumulator type is at least the policy's (FP32) and at least as wide as the inputs. A
    narrower accumulator is widened, a wider one kept.
  }];
  let statistics = [
    Statistic<"numStated", "stated", "ops whose accumulator is stated">,
    Statistic<"numWidened", "widened", "accumulators that were narrower">
  ];
}

def FoldCasts : Pass<"precision-fold-casts", "::mlir::ModuleOp"> {
  let summary = "join a cast with the exact cast before it";
  let description = [{
    In: a module with casts. Out: a widening cast that is exact for every value, followed by another cast, is one cast from the
    first type, or none where the types agree. A cast that rounds is meaning and never disappears: f32 to bf16 to f32 stays.
  }];
  let statistics = [Statistic<"numFolded", "folded", "casts folded">];
}

def Verify : Pass<"precision-verify", "::mlir::ModuleOp"> {
  let summary = "refuse a module that breaks a precision rule";
  let description = [{
    In: a module at the end of precision. Out: the same, or an error for each of:
    - a value whose scale does not follow by the rules of docs/scale-types.md: gradients that meet with different scales, an
      op that is not homogeneous in an operand with a scale, an op without a rule;
    - a gradient, a state or a result that carries a scale; a gradient of a loss that is not scaled under a policy that scales;
    - a commit whose condition does not prove every gradient finite, or never holds;
    - a dynamic scale that is no state, or does not move by the commit's checks as the policy says;
    - an update that does not start from the master, the gradient and the slots of its own parameter; a narrow copy that is
      not its master rounded; sums over micro-steps that are neither kept nor emptied;
    - an accumulator narrower than the policy's, or none stated on narrow inputs;
    - a narrow value in a slot that is wide, or an operand of another type than was decided;
    - a narrow parameter that is trained without a master;
    - fewer or more rounding casts than the passes recorded, or no record.
  }];
}

def Report : Pass<"precision-report", "::mlir::ModuleOp"> {
  let summary = "print every decision with its reason, and what the casts cost";
  let description = [{
    In: a module with decisions, or with casts. Out: the same, and a report of each value (function, node, op, numeric class, type,
    rule), of casts with their bytes, of constants that left the narrow range, and of parameters with their stored types.
    Totals a function: values and bytes narrow and wide, casts and their bytes.
  }];
  let options = [
    Option<"format", "format", "std::string", "\"text\"", "text, json or html">,
    Option<"output", "output", "std::string", "\"-\"", "file to write, - for standard output">,
    Option<"ranges", "ranges", "std::string", "\"\"", "file of measured ranges (mpt-run --calibrate) to show beside them">
  ];
}

#endif
