// SPDX-License-Identifier: Apache-2.0
// Numeric classes of ONNX operators: the same words that core ops state in ODS.
#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::onnx;

namespace {

llvm::StringMap<NumericClass> makeClasses() {
  llvm::StringMap<NumericClass> classes;
  auto add = [&](NumericClass numericClass, std::initializer_list<StringRef> names) {
    for (StringRef name : names)
      classes[name] = numericClass;
  };
  add(NumericClass::Contraction,
      {"Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "Gemm", "GRU", "LSTM", "MatMul", "RNN"});
  add(NumericClass::Reduction,
      {"CumSum", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "LpNormalization",
       "LpPool", "GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd",
       "ReduceSum", "ReduceSumSquare", "CumProd", "MeanVarianceNormalization", "RMSNormalization"});
  add(NumericClass::RangeExpanding,
      {"Acosh", "Asinh", "Atanh", "Cosh", "Exp", "LogSoftmax", "Pow", "Sinh", "Softmax", "Softplus", "Tan"});
  add(NumericClass::Neutral, {"Acos",
                              "Add",
                              "AffineGrid",
                              "Asin",
                              "Atan",
                              "AveragePool",
                              "BatchNormalization",
                              "BiasGelu",
                              "Celu",
                              "Cos",
                              "Div",
                              "Elu",
                              "Erf",
                              "FastGelu",
                              "Gelu",
                              "GlobalAveragePool",
                              "HardSigmoid",
                              "HardSwish",
                              "LeakyRelu",
                              "Log",
                              "Mean",
                              "Mish",
                              "Mod",
                              "Mul",
                              "PRelu",
                              "Reciprocal",
                              "Resize",
                              "RotaryEmbedding",
                              "Selu",
                              "Shrink",
                              "Sigmoid",
                              "Sin",
                              "Softsign",
                              "Sqrt",
                              "Sub",
                              "Sum",
                              "Swish",
                              "SwiGLU",
                              "Tanh",
                              "ThresholdedRelu",
                              "Upsample",
                              "Dropout"});
  add(NumericClass::Movement, {"Abs",
                               "ArgMax",
                               "ArgMin",
                               "Cast",
                               "Ceil",
                               "CenterCropPad",
                               "Clip",
                               "Compress",
                               "Concat",
                               "Constant",
                               "ConstantOfShape",
                               "DepthToSpace",
                               "Equal",
                               "Expand",
                               "Flatten",
                               "Floor",
                               "Gather",
                               "GatherElements",
                               "GatherND",
                               "GlobalMaxPool",
                               "Greater",
                               "GreaterOrEqual",
                               "Hardmax",
                               "Identity",
                               "IsInf",
                               "IsNaN",
                               "Less",
                               "LessOrEqual",
                               "Max",
                               "MaxPool",
                               "Min",
                               "Neg",
                               "NonZero",
                               "OneHot",
                               "Pad",
                               "ReduceMax",
                               "ReduceMin",
                               "Relu",
                               "Reshape",
                               "ReverseSequence",
                               "Round",
                               "Scatter",
                               "ScatterElements",
                               "ScatterND",
                               "Shape",
                               "Sign",
                               "Size",
                               "Slice",
                               "SpaceToDepth",
                               "Split",
                               "Squeeze",
                               "Tile",
                               "TopK",
                               "Transpose",
                               "Trilu",
                               "Unsqueeze",
                               "Where",
                               "CastLike",
                               "MaxUnpool"});
  return classes;
}

bool isSet(NodeOp node, StringRef name) {
  auto value = dyn_cast_or_null<IntegerAttr>(node.getAttrs().get(name));
  return value && value.getInt() != 0;
}

} // namespace

NumericClass NodeOp::getNumericClass() {
  static const llvm::StringMap<NumericClass> classes = makeClasses();
  auto known = classes.find(getOpType());
  if (!getDomain().empty() || known == classes.end())
    return NumericClass::Pinned;
  // Statistics of a batch are reductions; in inference they are constants of an affine map.
  if (getOpType() == "BatchNormalization" && isSet(*this, "training_mode"))
    return NumericClass::Reduction;
  // A square has twice its operand's exponent.
  if (getOpType() == "Mul" && getInputs().size() == 2 && getInputs()[0] == getInputs()[1])
    return NumericClass::RangeExpanding;
  // Gradients and updates are summed where indices meet.
  if (auto kind = dyn_cast_or_null<StringAttr>(getAttrs().get("reduction"));
      kind && (kind.getValue() == "add" || kind.getValue() == "mul"))
    return NumericClass::Reduction;
  return known->second;
}
