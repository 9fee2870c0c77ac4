// SPDX-License-Identifier: Apache-2.0
// Matrix multiplications: Gemm and MatMul, with transposes of operands folded into the multiplication's flags.
#include "Activations.h"
#include "Einsum.h"
#include "Fourier.h"

#include <algorithm>

using namespace mlir;
using namespace mpt;

namespace {
/// A matrix operand and whether the GEMM reads it transposed.
struct Operand {
  Value value;
  bool transposed = false;
};
} // namespace

/// Looks through a transpose that swaps the last two dimensions of a matrix or a batch of them.
static Operand lookThrough(Value value) {
  auto transpose = value.getDefiningOp<TransposeOp>();
  if (!transpose)
    return {value};
  ArrayRef<int64_t> permutation = transpose.getPermutation();
  int64_t rank = permutation.size();
  if (rank < 2 || permutation[rank - 2] != rank - 1 || permutation[rank - 1] != rank - 2)
    return {value};
  for (int64_t i = 0; i + 2 < rank; ++i)
    if (permutation[i] != i)
      return {value};
  return {transpose.getX(), true};
}

static Value matmul(Binder &b, Value x, Value y, bool transposeX = false, bool transposeY = false) {
  Operand p = lookThrough(x), q = lookThrough(y);
  return b.matmul(p.value, q.value, p.transposed != transposeX, q.transposed != transposeY);
}

static FailureOr<Value> gemm(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  if (b.rank(0) != 2 || b.rank(1) != 2)
    return b.fail() << "expected matrices, got ranks " << b.rank(0) << " and " << b.rank(1);
  if (!b.isFloat(0) || b.element(0) != b.element(1))
    return b.fail() << "expected float matrices of one type, got " << b.element(0) << " and " << b.element(1);
  bool transA = b.intAttr("transA", 0), transB = b.intAttr("transB", 0);
  if (b.shape(0)[transA ? 0 : 1] != b.shape(1)[transB ? 1 : 0])
    return b.fail() << "expected equal contracted extents, got [" << b.shape(0) << "]" << (transA ? "^T" : "")
                    << " and [" << b.shape(1) << "]" << (transB ? "^T" : "");
  Value y = matmul(b, b.in(0), b.in(1), transA, transB);
  if (double alpha = b.floatAttr("alpha", 1); alpha != 1)
    y = b.mul(y, alpha);
  double beta = b.floatAttr("beta", 1);
  if (b.has(2) && beta == 0)
    b.named(2); // the elements of C do not matter, NaN neither
  if (b.has(2) && beta != 0) {
    if (failed(b.need(3)))
      return failure();
    auto shape = b.broadcastShape(b.shape(2), tensorType(y).getShape());
    if (failed(shape))
      return failure();
    if (ArrayRef<int64_t>(*shape) != tensorType(y).getShape())
      return b.fail() << "expected a C that broadcasts to [" << tensorType(y).getShape() << "], got [" << b.shape(2)
                      << "]";
    Value c = beta == 1 ? b.in(2) : b.mul(b.in(2), beta);
    y = b.add(y, b.broadcastTo(c, *shape));
  }
  return y;
}

static LogicalResult importGemm(Binder &b) {
  FailureOr<Value> y = gemm(b);
  return failed(y) ? failure() : b.done(*y);
}

/// ONNX Runtime's Gemm with an activation behind it.
static LogicalResult importFusedGemm(Binder &b) {
  FailureOr<Value> y = gemm(b);
  if (failed(y))
    return failure();
  SmallVector<std::optional<double>> parameters;
  // Selu has alpha and gamma, others alpha and beta.
  bool hasGamma = b.attr("activation_gamma") != nullptr;
  for (StringRef name : {"activation_alpha", hasGamma ? "activation_gamma" : "activation_beta"})
    parameters.push_back(b.attr(name) ? std::optional(b.floatAttr(name, 0)) : std::nullopt);
  FailureOr<Value> activated = fusedActivation(b, *y, parameters);
  return failed(activated) ? failure() : b.done(*activated);
}

static int64_t productOf(ArrayRef<int64_t> extents) {
  int64_t result = 1;
  for (int64_t extent : extents)
    result *= extent;
  return result;
}

/// NumPy's matmul of values of rank 2 and more.
static FailureOr<Value> batched(Binder &b, Value x, Value y) {
  SmallVector<int64_t> xs(tensorType(x).getShape()), ys(tensorType(y).getShape());
  int64_t m = xs[xs.size() - 2], k = xs.back(), n = ys.back();
  if (k != ys[ys.size() - 2])
    return b.fail() << "expected equal contracted extents, got [" << xs << "] and [" << ys << "]";
  ArrayRef<int64_t> xBatch = ArrayRef(xs).drop_back(2), yBatch = ArrayRef(ys).drop_back(2);
  if (failed(b.checkShape({productOf(xBatch), m, n})) || failed(b.checkShape({productOf(yBatch), m, n})))
    return failure();
  // A matrix on the right of a batch multiplies all rows at once.
  if (productOf(yBatch) == 1 && productOf(xBatch) > 1 && yBatch.size() <= xBatch.size()) {
    Operand weight = lookThrough(y);
    SmallVector<int64_t> ws(tensorType(weight.value).getShape());
    Value flat = b.reshape(x, {productOf(xBatch) * m, k});
    Value matrix = b.reshape(weight.value, ArrayRef(ws).take_back(2));
    SmallVector<int64_t> shape(xBatch);
    shape.append({m, n});
    return b.reshape(b.matmul(flat, matrix, false, weight.transposed), shape);
  }
  auto batch = b.broadcastShape(xBatch, yBatch);
  if (failed(batch))
    return failure();
  auto expand = [&](Value value, ArrayRef<int64_t> own) -> Operand {
    if (own == ArrayRef<int64_t>(*batch))
      return lookThrough(value);
    SmallVector<int64_t> shape(*batch);
    shape.append({tensorType(value).getShape().take_back(2).front(), tensorType(value).getShape().back()});
    return {b.broadcastTo(value, shape)};
  };
  Operand p = expand(x, xBatch), q = expand(y, yBatch);
  return b.matmul(p.value, q.value, p.transposed, q.transposed);
}

/// NumPy's matmul of floats of one type.
static FailureOr<Value> matrixProduct(Binder &b, Value x, Value y) {
  SmallVector<int64_t> xs(tensorType(x).getShape()), ys(tensorType(y).getShape());
  if (xs.empty() || ys.empty())
    return b.fail() << "expected operands of rank 1 or more, got a scalar";
  bool vectorX = xs.size() == 1, vectorY = ys.size() == 1;
  if (vectorX)
    x = b.reshape(x, {1, xs[0]});
  if (vectorY)
    y = b.reshape(y, {ys[0], 1});
  FailureOr<Value> result = batched(b, x, y);
  if (failed(result))
    return failure();
  SmallVector<int64_t> shape(tensorType(*result).getShape());
  if (vectorY)
    shape.pop_back();
  if (vectorX)
    shape.erase(shape.end() - (vectorY ? 1 : 2));
  return b.reshape(*result, shape);
}

static LogicalResult importMatMul(Binder &b) {
  if (b.element(0) != b.element(1))
    return b.fail() << "expected operands of one type, got " << b.element(0) << " and " << b.element(1);
  if (b.isFloat(0)) {
    FailureOr<Value> y = matrixProduct(b, b.in(0), b.in(1));
    return failed(y) ? failure() : b.done(*y);
  }
  // Integers below 2^26 or so; products of larger ones leave FP64's whole numbers, as they leave their own type.
  Type wide = b.builder.getF64Type();
  if (b.element(0).getIntOrFloatBitWidth() > 32)
    return b.fail() << "expected floats or integers of up to 32 bits, got " << b.element(0);
  FailureOr<Value> y = matrixProduct(b, b.cast(b.in(0), wide), b.cast(b.in(1), wide));
  return failed(y) ? failure() : b.done(b.cast(b.cast(*y, b.builder.getI64Type()), b.element(0)));
}

/// Operand `i`, of 8 bits, without its zero point: one number, one for each of its rows (matrices on the left) or
/// columns, or a tensor that broadcasts. FP64 holds all sums of their products.
static FailureOr<Value> withoutZero(Binder &b, unsigned i, unsigned zero, bool byRow) {
  Type wide = b.builder.getF64Type();
  if (!isa<IntegerType>(b.element(i)) || b.element(i).getIntOrFloatBitWidth() > 8 || b.rank(i) < 1)
    return b.fail() << "expected matrices of 8-bit integers, got " << b.in(i).getType();
  Value x = b.cast(b.in(i), wide);
  if (!b.has(zero))
    return x;
  Value point = b.cast(b.in(zero), wide);
  if (byRow && b.rank(zero) == 1 && b.rank(i) > 1)
    point = b.reshape(point, {b.shape(zero)[0], 1});
  auto shape = b.broadcastShape(tensorType(point).getShape(), b.shape(i));
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != b.shape(i))
    return b.fail() << "expected a zero point that broadcasts to [" << b.shape(i) << "], got " << b.in(zero).getType();
  return b.sub(x, b.broadcastTo(point, *shape));
}

static LogicalResult importMatMulInteger(Binder &b) {
  FailureOr<Value> x = withoutZero(b, 0, 2, true), y = withoutZero(b, 1, 3, false);
  if (failed(x) || failed(y))
    return failure();
  FailureOr<Value> product = matrixProduct(b, *x, *y);
  return failed(product) ? failure() : b.done(b.cast(*product, b.builder.getI32Type()));
}

/// a, its scale and zero point, b likewise, and the result's scale and zero point.
static LogicalResult importQLinearMatMul(Binder &b) {
  FailureOr<Value> x = withoutZero(b, 0, 2, true), y = withoutZero(b, 3, 5, false);
  if (failed(x) || failed(y))
    return failure();
  FailureOr<Value> product = matrixProduct(b, *x, *y);
  if (failed(product))
    return failure();
  RankedTensorType type = tensorType(*product);
  Type wide = b.builder.getF64Type();
  SmallVector<Value> parameters;
  for (unsigned i : {1u, 4u, 6u, 7u}) {
    Value value = b.cast(b.in(i), wide);
    if (i == 1 && b.rank(i) == 1 && b.rank(0) > 1 && b.shape(i)[0] > 1)
      value = b.reshape(value, {b.shape(i)[0], 1});
    auto shape = b.broadcastShape(tensorType(value).getShape(), type.getShape());
    if (failed(shape))
      return failure();
    if (ArrayRef<int64_t>(*shape) != type.getShape())
      return b.fail() << "expected scales and zero points that broadcast to " << type << ", got " << b.in(i).getType();
    parameters.push_back(b.broadcastTo(value, *shape));
  }
  auto integer = dyn_cast<IntegerType>(b.element(7));
  if (!integer || integer.getWidth() != 8)
    return b.fail() << "expected a zero point of 8-bit integers, got " << b.in(7).getType();
  Value factor = b.div(b.mul(parameters[0], parameters[1]), parameters[2]);
  Value whole = b.add(b.make<RoundOp>(b.mul(*product, factor)), parameters[3]);
  double low = integer.isUnsigned() ? 0 : -128;
  return b.done(b.cast(b.make<ClampOp>(whole, b.f64(low), b.f64(low + 255)), integer));
}

/// Largest matrix whose determinant is expanded; the expansion has 2^n terms.
constexpr int64_t largestDeterminant = 8;

/// Laplace's expansion by rows: the minor of the first k rows and a set of k columns from the minors of k - 1 rows.
static LogicalResult importDet(Binder &b) {
  int64_t rank = b.rank(0), n = b.shape(0).back();
  if (b.shape(0)[rank - 2] != n || n < 1 || n > largestDeterminant)
    return b.fail() << "expected square matrices of up to " << largestDeterminant << " rows, got " << b.in(0).getType();
  SmallVector<int64_t> outer(b.shape(0).drop_back(2)), starts(rank, 0), sizes(b.shape(0));
  sizes[rank - 1] = sizes[rank - 2] = 1;
  Value x = b.widen(b.in(0));
  auto element = [&](int64_t row, int64_t column) {
    starts[rank - 2] = row;
    starts[rank - 1] = column;
    return b.reshape(b.slice(x, starts, sizes), outer);
  };
  SmallVector<Value> minors(size_t(1) << n);
  for (uint32_t columns = 1; columns < minors.size(); ++columns) {
    int64_t row = llvm::popcount(columns) - 1;
    bool negative = row % 2 != 0;
    for (int64_t column = 0; column < n; ++column) {
      if (!(columns >> column & 1))
        continue;
      Value term = element(row, column);
      if (row != 0)
        term = b.mul(term, minors[columns & ~(1u << column)]);
      Value &sum = minors[columns];
      sum = !sum ? (negative ? b.neg(term) : term) : negative ? b.sub(sum, term) : b.add(sum, term);
      negative = !negative;
    }
  }
  return b.done(b.cast(minors.back(), b.element(0)));
}

static LogicalResult importFusedMatMul(Binder &b) {
  if (!b.isFloat(0) || b.element(1) != b.element(0))
    return b.fail() << "expected float matrices of one type, got " << b.element(0) << " and " << b.element(1);
  if (b.rank(0) < 2 || b.rank(1) < 2)
    return b.fail() << "expected matrices, got ranks " << b.rank(0) << " and " << b.rank(1);
  // With transBatch, rows (before a transposition of rows and columns) come first and the batch stands behind them.
  auto arranged = [&](Value value, bool swap, bool rowsFirst) {
    SmallVector<int64_t> permutation = axisRange(0, tensorType(value).getRank());
    if (rowsFirst)
      std::rotate(permutation.begin(), permutation.begin() + 1, permutation.end() - 1);
    if (swap)
      std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
    return b.transpose(value, permutation);
  };
  FailureOr<Value> y = batched(b, arranged(b.in(0), b.intAttr("transA", 0), b.intAttr("transBatchA", 0)),
                               arranged(b.in(1), b.intAttr("transB", 0), b.intAttr("transBatchB", 0)));
  if (failed(y))
    return failure();
  double alpha = b.floatAttr("alpha", 1);
  return b.done(alpha == 1 ? *y : b.mul(*y, alpha));
}

void mpt::addMatMulRules(RuleTable &t) {
  t.on("Gemm", 7, importGemm, NodeClass(NumericClass::Contraction).trains({0, 1, 2}));
  t.on("MatMul", 1, takes(2, importMatMul), NodeClass(NumericClass::Contraction).trains({0, 1}));
  t.on("MatMulInteger", 10, takes(2, importMatMulInteger), NumericClass::Pinned);
  t.on("QLinearMatMul", 10, takes(8, importQLinearMatMul), NumericClass::Pinned);
  t.on("DFT", 17, takesFloats(1, 3, importDFT), NumericClass::Contraction);
  t.on("STFT", 17, takes(2, importSTFT), NumericClass::Contraction);
  t.on("Det", 11, takesFloats(1, 2, importDet), NumericClass::RangeExpanding);
  t.on("Einsum", 12, importEinsum, NodeClass(NumericClass::Contraction).trains({0, 1, 2, 3}));
  t.onDomain("com.microsoft", "FusedGemm", importFusedGemm, NodeClass(NumericClass::Contraction).trains({0, 1, 2}));
  t.onDomain("com.microsoft", "FusedMatMul", takes(2, importFusedMatMul),
             NodeClass(NumericClass::Contraction).trains({0, 1}));
  // Its name in versions of ONNX Runtime before 1.6.
  t.onDomain("com.microsoft", "TransposeMatMul", takes(2, importFusedMatMul),
             NodeClass(NumericClass::Contraction).trains({0, 1}));
}
