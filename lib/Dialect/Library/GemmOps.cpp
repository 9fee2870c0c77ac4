// SPDX-License-Identifier: Apache-2.0
// GEMMs: constraints, and decompositions into core ops.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainingParts.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// Extents of op(matrix): rows and columns of its last two dimensions, swapped where `transposed`.
std::pair<int64_t, int64_t> extentsOf(RankedTensorType matrix, bool transposed) {
  int64_t rows = matrix.getDimSize(matrix.getRank() - 2), columns = matrix.getShape().back();
  return transposed ? std::make_pair(columns, rows) : std::make_pair(rows, columns);
}

bool isF32Scalar(Value value) { return tensorType(value).getRank() == 0 && tensorType(value).getElementType().isF32(); }

/// `given` is there exactly where `wanted`, with the shape of `like` and its element type.
LogicalResult checkVector(GemmOp op, StringRef constraint, StringRef what, Value given, bool wanted,
                          RankedTensorType like) {
  if (static_cast<bool>(given) != wanted)
    return op.emitOpError() << constraint << ": expected " << (wanted ? "" : "no ") << what << " with epilogue "
                            << op.getForm() << ", got " << (given ? "one" : "none");
  if (given && given.getType() != like)
    return op.emitOpError() << constraint << ": expected " << what << " of type " << like << ", got "
                            << given.getType();
  return success();
}

/// C1 to C4.
LogicalResult checkShapes(GemmOp op) {
  RankedTensorType a = tensorType(op.getA()), b = tensorType(op.getB()), d = tensorType(op.getD());
  if (a.getRank() < 2 || b.getRank() != a.getRank())
    return op.emitOpError() << "C1: expected two matrices of one rank of at least 2, got " << a << " and " << b;
  if (a.getShape().drop_back(2) != b.getShape().drop_back(2))
    return op.emitOpError() << "C2: expected equal batch extents, got " << a << " and " << b;
  auto [m, ka] = extentsOf(a, op.getTransposeA());
  auto [kb, n] = extentsOf(b, op.getTransposeB());
  if (ka != kb)
    return op.emitOpError() << "C3: expected equal contracted extents, got " << ka << " and " << kb;
  SmallVector<int64_t> shape(a.getShape().drop_back(2));
  shape.append({m, n});
  if (d.getShape() != ArrayRef(shape))
    return op.emitOpError() << "C4: expected a result of shape [" << shape << "], got " << d;
  return success();
}

/// C5 to C7.
LogicalResult checkOperands(GemmOp op) {
  RankedTensorType d = tensorType(op.getD());
  if (op.getBias())
    if (failed(checkVector(op, "C5", "bias", op.getBias(), true,
                           RankedTensorType::get({d.getShape().back()}, d.getElementType()))))
      return failure();
  OperandRange scales = op.getOperandScales();
  if (!scales.empty() && (scales.size() != 2 || !llvm::all_of(scales, isF32Scalar)))
    return op.emitOpError() << "C6: expected two FP32 scalars as operand scales, got " << scales.getTypes();
  if (!op.getScale())
    return success();
  if (!isF32Scalar(op.getScale()))
    return op.emitOpError() << "C7: expected an FP32 scalar as scale, got " << op.getScale().getType();
  if (!op.getForm().isNone() || op.getBias() || !scales.empty())
    return op.emitOpError() << "C7: expected no epilogue, bias or operand scales beside a scale, got epilogue "
                            << op.getForm();
  return success();
}

/// C8 to C12.
LogicalResult checkEpilogue(GemmOp op) {
  EpilogueAttr form = op.getForm();
  RankedTensorType d = tensorType(op.getD());
  GemmSum sum = form.getSum();
  RankedTensorType vector = RankedTensorType::get(
      {sum == GemmSum::a ? d.getDimSize(d.getRank() - 2) : d.getShape().back()}, d.getElementType());
  if (failed(checkVector(op, "C8", "aux", op.getAux(), op.isGradient(), d)) ||
      failed(checkVector(op, "C9", "kept", op.getKept(), form.getKeep(), d)) ||
      failed(checkVector(op, "C10", "sums", op.getSums(), sum != GemmSum::none, vector)))
    return failure();
  if (form.getKeep() && form.getActivation() != Activation::gelu_tanh)
    return op.emitOpError() << "C9: expected gelu_tanh where its operand is kept, got " << form;
  if (sum != GemmSum::none && d.getRank() != 2)
    return op.emitOpError() << "C10: expected matrices without batch dimensions beside sums, got " << d;
  if ((sum == GemmSum::a || sum == GemmSum::b) && (op.getBias() || form.getActivation() != Activation::none))
    return op.emitOpError() << "C11: expected no bias or activation beside sums of an operand, got " << form;
  if (sum == GemmSum::d && !op.isGradient())
    return op.emitOpError() << "C11: expected the gradient of an activation beside sums of the result, got " << form;
  if (form.getRound() && !op.getBias())
    return op.emitOpError() << "C12: expected a bias where the sum is rounded before it";
  if (op.isGradient() && op.getBias())
    return op.emitOpError() << "C12: expected no bias before the gradient of an activation";
  return success();
}

/// C13.
LogicalResult checkReading(GemmOp op) {
  std::optional<Type> type = op.getReadAs();
  if (!type)
    return success();
  Type a = tensorType(op.getA()).getElementType(), b = tensorType(op.getB()).getElementType();
  bool fits = llvm::all_of(ArrayRef{a, b}, [&](Type operand) { return operand.isF32() || operand == *type; });
  if (!(type->isF16() || type->isBF16()) || !fits || !(a.isF32() || b.isF32()))
    return op.emitOpError() << "C13: expected f16 or bf16 to read f32 operands as, and no others beside them, got "
                            << *type << " for " << a << " and " << b;
  return success();
}

/// alpha, scales and op(a) op(b), in `wide`.
Value scaledSums(GemmOp op, GraphBuilder &b, FloatType wide) {
  RankedTensorType type = tensorType(op.getD()).clone(wide);
  NumericsAttr numerics = op.getNumericsAttr();
  if (numerics)
    numerics = NumericsAttr::get(op.getContext(), numerics.getIn(), numerics.getAcc(), wide);
  auto read = [&](Value x) {
    return op.getReadAs() && tensorType(x).getElementType().isF32() ? b.cast(x, *op.getReadAs()) : x;
  };
  Value sums =
      b.make<MatMulOp>(type, read(op.getA()), read(op.getB()), op.getTransposeA(), op.getTransposeB(), numerics);
  if (!op.getAlpha().isExactlyValue(1.0))
    sums = b.mul(sums, op.getAlpha().convertToDouble());
  SmallVector<Value> scales(op.getOperandScales());
  if (op.getScale())
    scales.push_back(op.getScale());
  for (Value scale : scales)
    sums = b.mul(sums, b.broadcast(b.cast(scale, wide), type.getShape(), {}));
  return sums;
}

Value activated(GemmOp op, GraphBuilder &b, Value x) {
  switch (op.getForm().getActivation()) {
  case Activation::none:
    return x;
  case Activation::relu:
    return b.make<ReluOp>(x);
  case Activation::gelu_tanh:
    return b.make<GeluOp>(x, GeluForm::tanh);
  case Activation::gelu_tanh_gradient:
    return b.make<GeluBackwardOp>(x, b.cast(op.getAux(), tensorType(x).getElementType()), GeluForm::tanh);
  }
  llvm_unreachable("an activation without meaning");
}

/// The matrix that is summed, and the dimension along which that happens; `d` is the result.
std::pair<Value, int64_t> summed(GemmOp op, Value d) {
  switch (op.getForm().getSum()) {
  case GemmSum::none:
    return {};
  case GemmSum::a:
    return {op.getA(), op.getTransposeA() ? 0 : 1};
  case GemmSum::b:
    return {op.getB(), op.getTransposeB() ? 1 : 0};
  case GemmSum::d:
    return {d, 0};
  }
  llvm_unreachable("a sum without meaning");
}

} // namespace

LogicalResult GemmOp::verify() {
  return success(succeeded(checkShapes(*this)) && succeeded(checkOperands(*this)) && succeeded(checkEpilogue(*this)) &&
                 succeeded(checkReading(*this)));
}

void GemmOp::build(OpBuilder &builder, OperationState &state, MatMulOp matmul, Type d, EpilogueAttr form, Value bias,
                   Value aux) {
  auto type = cast<RankedTensorType>(d ? d : matmul.getY().getType());
  Type kept = form && form.getKeep() ? type : Type(), sums;
  if (form && form.getSum() != GemmSum::none)
    sums = RankedTensorType::get({form.getSum() == GemmSum::a ? type.getDimSize(0) : type.getShape().back()},
                                 type.getElementType());
  build(builder, state, type, kept, sums, matmul.getA(), matmul.getB(), bias, ValueRange(), Value(), aux,
        matmul.getTransposeA(), matmul.getTransposeB(), APFloat(1.0), form, matmul.getNumericsAttr(), TypeAttr());
  if (auto part = getAttr<train::TrainDialect::PartAttrHelper>(matmul))
    state.addAttribute(train::TrainDialect::PartAttrHelper::getNameStr(), part);
}

bool GemmOp::takesFloat8(RankedTensorType a, RankedTensorType b) {
  if (isa<Float8E5M2Type>(a.getElementType()) && isa<Float8E5M2Type>(b.getElementType()))
    return false;
  for (RankedTensorType type : {a, b})
    for (int64_t extent : type.getShape().take_back(2))
      if (extent % 16 != 0)
        return false;
  return a.getElementTypeBitWidth() == 8 && b.getElementTypeBitWidth() == 8;
}

int64_t GemmOp::getReductionLength() { return extentsOf(tensorType(getA()), getTransposeA()).second; }

SmallVector<Value> GemmOp::expand(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getD());
  Type element = type.getElementType();
  FloatType wide = wideType(element);
  auto rounded = [&](Value x) { return getForm().getRound() ? b.cast(b.cast(x, element), wide) : x; };
  Value x = rounded(scaledSums(*this, b, wide));
  if (getBias())
    x = rounded(b.add(x, b.broadcast(b.cast(getBias(), wide), type.getShape(), {type.getRank() - 1})));
  SmallVector<Value> results{b.cast(activated(*this, b, x), element)};
  if (getForm().getKeep())
    results.push_back(b.cast(x, element));
  if (auto [matrix, axis] = summed(*this, results[0]); matrix)
    results.push_back(b.cast(b.sum(b.cast(matrix, wide), {axis}), element));
  return results;
}
