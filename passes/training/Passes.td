// SPDX-License-Identifier: Apache-2.0
// Passes of the training stage. Flag, class, file and test share one name: --training-<name>, <Name>.cpp, test/passes/training/<name>.mlir.
#ifndef MPT_PASSES_TRAINING_PASSES_TD
#define MPT_PASSES_TRAINING_PASSES_TD

include "passes/PassBase.td"

defvar trainingDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mlir::func::FuncDialect"];

def Loss : Pass<"training-loss", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Add the loss and its target to @forward";
  let description = [{
    In: `@forward` returns the prediction (logits) first. Out: `@forward` has one more argument, the target, and returns the
    FP32 scalar "loss" before its other results. Losses are means over all elements (softmax-cross-entropy: over samples) and
    are computed in FP32 or wider.

    Several losses, separated by semicolons, each name the result that they are taken of: `softmax-cross-entropy,output=logits;
    mse,output=image,weight=0.1`. Their targets are called `<output>_labels` and `<output>_target`, and `@forward` returns
    their weighted sum as "loss", followed by each as "loss_<output>" with its weight as the attribute `mpt.weight`.

    | loss | prediction | target |
    |---|---|---|
    | `softmax-cross-entropy` | logits [N, C, d...] | `labels`: i64 class indices [N, d...] |
    | `nll` | log-probabilities [N, C, d...] | `labels`, as above |
    | `focal` | logits [N, C, d...] | `labels`, as above |
    | `mse`, `l1`, `smooth-l1`, `huber`, `cosine` | any | `target`: the prediction's type |
    | `kl` | log-probabilities | `target`: probabilities in the prediction's type |
    | `bce-with-logits` | logits | `target`: the prediction's type, values from 0 to 1 |
    | `ctc` | logits or log-probabilities [T, N, C] | `labels` [N, max-labels], `input_lengths` [N], `label_lengths` [N]: i64 |
    | `none` | the graph's own scalar loss | |

    CTC (Graves et al., ICML 2006) divides each sequence's loss by its number of labels before the mean, as PyTorch does. A sequence that
    has no alignment makes the loss infinite, or counts as 0 with zero-infinity=1, and has no gradient in either case.
  }];
  let options = [
    Option<"loss", "loss", "std::string", "\"softmax-cross-entropy\"",
           "KIND[,KEY=VALUE]...[;KIND...]: softmax-cross-entropy (class-axis=N, 1, negative from the end; ignore-index=N, a label "
           "whose samples do not count), nll and focal (the same, focal also gamma=2 and alpha=1), mse, l1, smooth-l1 (beta=1), "
           "huber (delta=1), bce-with-logits, kl, cosine, ctc (max-labels=N, of the longest sequence, which must be given; blank=0, the "
           "blank's class; batch-axis=1; class-axis=2; ignore-index=N, what stands behind the last label; zero-infinity=0) or none; all with output=NAME and weight=NUMBER">
  ];
}

def AdoptBackward : Pass<"training-adopt-backward", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Take up the backward pass and the updates that a joint graph brings along";
  let description = [{
    In: a module with `onnx.training`, whose `@forward` returns a loss, and gradients and new values of states. Out:
    `@forward` returns the scalar "loss" and what has no role; `@step` beside it is the whole graph, with a
    `train.gradient` a parameter that is not frozen, a `train.write` a state, and a seed (`mpt.seed`) where the gradients
    begin, as `training-differentiate` makes them. With `backward = "derived"`, `@forward` keeps its loss and the writes of
    statistics, and differentiation follows. Other modules stay as they are.

    Of a parameter that has a new value and no gradient among the results, the gradient is the value through which all
    comes that the update knows of the batch (`mpt/Autodiff/WrittenUpdates.h`).

    Where no seed is found, a warning names the operation at which the gradients cease to be multiples of one number;
    policies that scale the loss then refuse the step.
  }];
  let options = [
    Option<"update", "update", "bool", "true", "write new values that are computed from gradients; without, an optimizer follows">
  ];
  let statistics = [
    Statistic<"gradients", "gradients", "gradients taken up">,
    Statistic<"writes", "writes", "new values of states taken up">
  ];
}

def Derive : Pass<"training-derive", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Put a backward pass in place of every request for gradients of a graph";
  let description = [{
    In: functions with `train.derive`, which operator Gradient of ai.onnx.preview.training becomes. Out: none; the
    backward pass stands before the request. Requests of algorithms are left to training-algorithms.
  }];
  let statistics = [Statistic<"answered", "answered", "requests for gradients">];
}

def Algorithms : Pass<"training-algorithms", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Make training steps of the algorithms that a file brings";
  let description = [{
    In: `@forward`, the model's graph, and `@algorithm.N` with `train.derive`, optimizers and `train.write`, of a
    TrainingInfoProto each. Out: one algorithm is `@step`; each of several is a function of the name that it has in the
    file (`mpt.name`). A step returns "loss", what was derived, and what else its algorithm returns; gradients of parameters are
    `train.gradient`. `@evaluate` is the model in use, with "loss" first; `@predict` where the algorithm computes the loss.

    Constant learning rates become the input "learning_rate"; rates that differ from the first keep their ratio to it.
    Without `updates` the file's optimizers and slots are dropped, and training-optimizer makes others.
  }];
  let options = [
    Option<"updates", "updates", "bool", "true", "use the optimizers of the file">,
    Option<"clipNorm", "clip-norm", "double", "0.0", "largest global norm of the gradients; 0 does not clip">
  ];
  let statistics = [Statistic<"steps", "steps", "algorithms that became steps">];
}

def Simplify : Pass<"training-simplify", "::mlir::ModuleOp"> {
  let summary = "Simpler forms of core ops, and common subexpressions";
  let description = [{
    Applies the core ops' folds and simpler forms (lib/Dialect/MPT/Simplify.cpp) and merges equal ops: transposes go into
    matrix multiplications, those with a repeated matrix become one, neutral operands and dead ops vanish. Gradients that nothing uses yet
    stay. Before differentiation it makes the backward graph smaller too.
  }];
  let dependentDialects = trainingDialects;
}

def RemoveDropout : Pass<"training-remove-dropout", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Make every dropout pass its input on";
  let description = [{
    Out: no `mpt.dropout`; the generator state and its reads are gone when nothing else uses them.
  }];
  let statistics = [Statistic<"removed", "removed", "dropouts removed">];
}

def Evaluate : Pass<"training-evaluate", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Clone @forward to @evaluate, the model as it is used after training";
  let description = [{
    In: `@forward` in training form. Out: `@evaluate` beside it, with the same arguments and results; every op that implements
    EvaluationForm has it (dropout passes on, batch normalization uses running statistics), and nothing writes state.
  }];
  let options = [Option<"function", "function", "std::string", "\"evaluate\"", "name of the clone">];
  let statistics = [Statistic<"replaced", "replaced", "ops replaced by their evaluation form">];
}

def Differentiate : Pass<"training-differentiate", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Turn @forward into @step: forward, backward, one train.gradient a trained parameter";
  let description = [{
    In: `@forward` returns a scalar float of role loss first. Out: `@step` returns "loss" alone and holds a `train.gradient` for each
    parameter that is not frozen and that the loss depends on, as early as its gradient is complete. Backward ops come in
    reverse order of the forward ops and carry their locations. The seed is a `train.scale_loss` of 1 by 1 with the
    attribute `mpt.seed`, to which loss scaling gives its scale. Every user of the generator state has a stream of its own, and a write advances the generator's step.
    An op without gradient rule and decomposition is an error where a gradient must pass it. Where `@step` is there
    already (`training-adopt-backward`), `@forward` is erased.
  }];
  let statistics = [
    Statistic<"gradients", "gradients", "parameters that get a gradient">,
    Statistic<"backwardOps", "backward-ops", "ops added by differentiation">
  ];
}

def Optimizer : Pass<"training-optimizer", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Update every parameter that has a gradient";
  let description = [{
    In: `@step` with `train.gradient`. Out: an optimizer op and a `train.write` of parameter and slots for each, right after its
    gradient unless clipping must wait for all; states `@"<param>.<slot>"` and the counter `@"mpt.step"`; the last argument is
    "learning_rate" (FP32 scalar, attribute `mpt.default`). With `clip-norm`, gradients are scaled by
    min(1, clip-norm / (norm + 1e-6)), norm the global L2 norm before clipping, which becomes the result "grad_norm".

    With several optimizers the last one whose `params` matches a parameter's whole name updates it, else the last one without
    `params`. The input "learning_rate" is the first one's rate; the others' rates keep their ratio to it.
  }];
  let options = [
    Option<"optimizer", "optimizer", "std::string", "\"sgd\"",
           "KIND[,KEY=VALUE]...: sgd (lr, momentum, dampening, nesterov, weight-decay), adam and adamw (lr, betas=B1:B2, eps "
           "or eps-hat, bias-correction, weight-decay), adagrad (lr, lr-decay, eps, weight-decay), rmsprop (alpha, eps, momentum, centered), lion (betas), lamb "
           "(betas, eps), lars (momentum, trust, eps), adafactor (decay, eps1, eps2, clip); all with schedule=constant, linear, "
           "cosine, step or one-cycle (warmup, steps, min, gamma, every, rise, div, final); several, separated by semicolons, end in "
           ",params=REGEX">,
    Option<"clipNorm", "clip-norm", "double", "0.0", "largest global norm of the gradients; 0 does not clip">
  ];
  let statistics = [Statistic<"updates", "updates", "parameters updated">];
}

def Average : Pass<"training-average", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Keep exponential moving averages of the parameters";
  let description = [{
    In: steps that write parameters. Out: each of these has a slot `@"<param>.ema"`, which starts as the parameter and of
    which every step makes decay ema + (1 - decay) p', p' being the new parameter; `@evaluate_ema` and `@predict_ema` are
    `@evaluate` and `@predict` with the averages in place of the parameters.
  }];
  let options = [Option<"decay", "decay", "double", "0.0", "share of the old average, in (0, 1); 0 changes nothing">];
  let statistics = [Statistic<"averages", "averages", "parameters averaged">];
}

def Accumulate : Pass<"training-accumulate", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Accumulate gradients over several micro-steps";
  let description = [{
    In: `@step` with `train.gradient` and optimizer. Out: `@accumulate`, with the same arguments and results, adds its
    gradients to states `@"<param>.accumulator"` (FP32 or wider); `@step` adds its own gradients to them, divides by
    `micro-steps`, hands the mean to the optimizer and empties the accumulators. One optimizer step is micro-steps - 1 calls of
    accumulate and one of step.
  }];
  let options = [Option<"microSteps", "micro-steps", "int64_t", "1", "micro-steps an optimizer step; 1 changes nothing">];
}

def CheckIndices : Pass<"training-check-indices", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects # ["::mpt::rt::RTDialect"];
  let summary = "Note which elements of arguments are indices, and what they may be";
  let description = [{
    Out: arguments whose elements are used as indices or labels carry `rt.indices`. The runtime looks at them before the function
    starts and refuses what is out of range, with nothing changed. Indices are the operands that IndexOperands names. They are
    followed back to arguments through views, casts, concatenations, arithmetic with constants and selections by comparisons with
    constants. A range shrinks or grows on the way; elements that a view leaves out may be anything. Indices that are
    computed otherwise are not looked at: kernels bring them into range.
  }];
  let statistics = [Statistic<"checks", "checks", "ranges of elements noted">];
}

def JoinSizes : Pass<"training-join-sizes", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Join a model's functions for several extents of its symbols over one state";
  let description = [{
    In: a module of modules, one a size, each named by its extents (`batch=8`) and otherwise as the stage leaves it. Out: one
    module. The functions of the first size keep their names, those of the others are named `step[batch=8]`. States are shared;
    constants that hang on the size are one a size. A public function whose inputs are those of another size's is not repeated.
    The manifest lists the `sizes`, and the runtime takes the function whose inputs have the caller's shapes. Other modules stay
    as they are.

    It is an error when the type of any other state hangs on the size, and when the inputs do not tell the sizes apart.
  }];
  let statistics = [Statistic<"functions", "functions", "functions added to those of the first size">];
}

def Gradients : Pass<"training-gradients", "::mlir::ModuleOp"> {
  let dependentDialects = trainingDialects;
  let summary = "Clone @step to @gradients, which returns the gradients and changes nothing";
  let description = [{
    In: `@step` with `train.gradient`. Out: `@gradients` beside it returns "loss" and every gradient, named as its parameter, in the
    order of the parameters' states; it writes no state and has no argument "learning_rate".
  }];
}

#endif
