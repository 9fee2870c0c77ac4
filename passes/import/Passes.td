// SPDX-License-Identifier: Apache-2.0
// Passes of the import stage. Flag, class, file and test share one name: --import-<name>, <Name>.cpp, test/passes/import/<name>.mlir.
#ifndef MPT_PASSES_IMPORT_PASSES_TD
#define MPT_PASSES_IMPORT_PASSES_TD

include "passes/PassBase.td"

def AssignRoles : Pass<"import-assign-roles", "::mlir::ModuleOp"> {
  let summary = "tensors of a file become parameters, statistics or constants";
  let description = [{
    In: func @main of onnx.node ops over `train.state` ops. Out: each state's role. What the exporter declares a tensor to
    be (`onnx.declared`) comes first, then its values (masks, positions, windows) and its uses (weights, and biases and
    scales beside them), and its name where these leave the case open. The outputs of a joint graph (`onnx.training`) name
    the tensors that its step changes. Constants of up to 64 elements become `mpt.constant`. The manifest says which
    tensors are held, and why. The importer runs it on every file but a step, which states roles itself.
  }];
  let options = [ListOption<"train", "train", "std::string", "expressions for the names of all tensors that train">,
    ListOption<"freeze", "freeze", "std::string", "expressions for the names of parameters without gradients">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def OnnxToCore : Pass<"import-onnx-to-core", "::mlir::ModuleOp"> {
  let summary = "func @main of onnx.node ops becomes func @forward of core ops";
  let description = [{
    Rules by op type and version; shape arithmetic is evaluated, dead code and unread states go. A node without a rule is
    an error that names the supported ops near it.
  }];
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def RecognizeComposites : Pass<"import-recognize-composites", "::mlir::ModuleOp"> {
  let summary = "elementwise chains that mean GELU, SiLU or RMS normalization become that op";
  let description = [{
    Exporters without these operators write them out. As one op they keep FP32 internals under every policy, save one
    tensor for the backward pass and run as one kernel. Constants match within 0.2 %, which is what exporters round to.
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def RecognizeNorms : Pass<"import-recognize-norms", "::mlir::ModuleOp"> {
  let summary = "arithmetic of joint graphs that means a normalization or a softmax becomes that op";
  let description = [{
    Exporters of joint graphs write batch normalization and others in primitives, in many forms. Values that follow from
    the operand of a sum or a maximum and at most two parameters are computed at random points of several magnitudes, in
    FP64, and compared with each normalization (SameFunction.h). Statistics that the file computes besides become results
    of the op; states whose new value is made of these and of their old value alone become `mpt.statistics`. A group
    normalization without scale and bias takes those that follow it. Graphs without gradients among their results stay as
    they are.
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
  let statistics = [Statistic<"numRecognized", "norms", "Values that became a normalization or a softmax">];
}

def RecognizeGradients : Pass<"import-recognize-gradients", "::mlir::ModuleOp"> {
  let summary = "arithmetic of a file's backward pass that is the gradient of a composite becomes that gradient op";
  let description = [{
    A file's backward pass is primitives. For each normalization, softmax, GELU and the like of the forward pass, the value
    is found that equals our gradient op of some value of the file, at random points of several magnitudes, in FP64
    (SameFunction.h). That op keeps FP32 internals under every policy and has the location of its forward op, whose rules
    it follows. Gradients of scale and bias become its results. What is not found stays as it is.
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
  let statistics = [
    Statistic<"numRecognized", "gradients", "Forward operations whose gradient was found">,
    Statistic<"numOthers", "others", "Forward operations whose gradient was not found">
  ];
}

def RecognizeBackward : Pass<"import-recognize-backward", "::mlir::ModuleOp"> {
  let summary = "gradients of ReLU, pooling, embeddings and convolution weights in a file's backward pass become these ops";
  let description = [{
    Of joint graphs, what exporters write for five gradients: a selection by the sign of a ReLU's result becomes
    `relu_backward`; sums at the positions of a max pooling `max_pool_backward`, where integer arithmetic on positions is
    computed at random ones; a transposed convolution of planes with ones, divided by the size of an average pooling's window,
    `avg_pool_backward`; sums at the rows that a lookup reads `scatter_add`, where arithmetic on indices is computed at each
    of them and updates of rows beyond the table are dropped; a convolution of tensors whose batch and channels are exchanged,
    in groups too, `conv_backward_weights`, whose strides are its dilations. They are classed, saved and computed as those of
    our own backward pass. What is not found stays as it is.
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
  let statistics = [Statistic<"numRecognized", "gradients", "Operations that became a gradient op">];
}

#endif
