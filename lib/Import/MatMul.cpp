// SPDX-License-Identifier: Apache-2.0
// Matrix multiplications: Gemm, MatMul and Einsum, with transposes of operands folded into the multiplication's flags.
#include "Activations.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

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

namespace {
/// A value whose dimensions are named by letters, one each.
struct Labelled {
  Value value;
  std::string labels;
};
} // namespace

/// Permutes dimensions to the order of `labels`, which holds the same letters.
static Value arrange(Binder &b, const Labelled &x, StringRef labels) {
  SmallVector<int64_t> permutation;
  for (char label : labels)
    permutation.push_back(x.labels.find(label));
  return b.transpose(x.value, permutation);
}

/// Sums over the labels that `keep` rejects.
static Labelled sumOut(Binder &b, Labelled x, llvm::function_ref<bool(char)> keep) {
  SmallVector<int64_t> axes;
  std::string left;
  for (auto [i, label] : llvm::enumerate(x.labels)) {
    if (keep(label))
      left += label;
    else
      axes.push_back(i);
  }
  return {b.sum(x.value, axes), left};
}

/// Contracts two labelled values over the labels that `keep` (later operands and the output) does not need.
static FailureOr<Labelled> contract(Binder &b, Labelled x, Labelled y, llvm::function_ref<bool(char)> keep,
                                    llvm::StringMap<int64_t> &extents) {
  auto inY = [&](char c) { return y.labels.find(c) != std::string::npos; };
  auto inX = [&](char c) { return x.labels.find(c) != std::string::npos; };
  x = sumOut(b, x, [&](char c) { return inY(c) || keep(c); });
  y = sumOut(b, y, [&](char c) { return inX(c) || keep(c); });
  std::string batch, rows, inner, columns;
  for (char c : x.labels)
    (inY(c) ? (keep(c) ? batch : inner) : rows) += c;
  for (char c : y.labels)
    if (!inX(c))
      columns += c;
  auto size = [&](StringRef labels) {
    int64_t result = 1;
    for (char c : labels)
      result *= extents[StringRef(&c, 1)];
    return result;
  };
  if (failed(b.checkShape({size(batch), size(rows), size(columns)})))
    return failure();
  Value left = b.reshape(arrange(b, x, batch + rows + inner), {size(batch), size(rows), size(inner)});
  Value right = b.reshape(arrange(b, y, batch + inner + columns), {size(batch), size(inner), size(columns)});
  SmallVector<int64_t> shape;
  std::string terms = batch;
  terms += rows;
  terms += columns;
  for (char c : terms)
    shape.push_back(extents[StringRef(&c, 1)]);
  return Labelled{b.reshape(b.matmul(left, right), shape), terms};
}

/// Names the dimensions behind '...' by letters that the equation does not use, aligned on the right.
static LogicalResult writeOutEllipsis(Binder &b, std::string &equation) {
  constexpr StringLiteral dots = "...";
  if (!StringRef(equation).contains('.'))
    return success();
  std::string free;
  for (char c = 'A'; c <= 'z'; ++c)
    if (llvm::isAlpha(c) && !StringRef(equation).contains(c))
      free += c;
  auto [left, right] = StringRef(equation).split("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  SmallVector<int64_t> ranks(terms.size(), 0);
  int64_t most = 0;
  for (auto [i, term] : llvm::enumerate(terms)) {
    if (!term.contains(dots))
      continue;
    int64_t named = static_cast<int64_t>(term.size()) - static_cast<int64_t>(dots.size());
    ranks[i] = i < b.operandCount() ? b.rank(i) - named : 0;
    if (ranks[i] < 0)
      return b.fail() << "expected at least " << named << " dimensions in operand " << i << ", got " << b.rank(i);
    most = std::max(most, ranks[i]);
  }
  if (most > static_cast<int64_t>(free.size()))
    return b.fail() << "expected fewer dimensions behind '...', got " << most;
  auto written = [&](StringRef term, int64_t rank) {
    auto [before, after] = term.split(dots);
    return term.contains(dots) ? (before + StringRef(free).take_front(most).take_back(rank) + after).str() : term.str();
  };
  std::string result;
  for (auto [i, term] : llvm::enumerate(terms))
    result += (i ? "," : "") + written(term, ranks[i]);
  if (StringRef(equation).contains("->")) {
    result += "->" + written(right, most);
  } else {
    // Implicit form: the dimensions behind '...', then the labels that occur once.
    std::string sorted = left.str(), once;
    llvm::sort(sorted);
    for (char c : sorted)
      if (llvm::isAlpha(c) && llvm::count(sorted, c) == 1)
        once += c;
    result += "->" + free.substr(0, most) + once;
  }
  if (StringRef(result).contains('.'))
    return b.fail() << "expected at most one '...' in each term, got '" << equation << "'";
  equation = result;
  return success();
}

/// A label that occurs twice in a term stands for the diagonal of its two dimensions.
static FailureOr<Labelled> takeDiagonals(Binder &b, Labelled x) {
  for (size_t i = 0; i < x.labels.size(); ++i) {
    size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos)
      continue;
    ArrayRef<int64_t> shape = tensorType(x.value).getShape();
    int64_t extent = shape[i], rank = shape.size();
    if (shape[j] != extent)
      return b.fail() << "expected one extent for label '" << StringRef(&x.labels[i], 1) << "', got " << extent
                      << " and " << shape[j];
    SmallVector<int64_t> order = otherAxes(rank, {static_cast<int64_t>(i), static_cast<int64_t>(j)}), flat;
    std::string labels;
    for (int64_t axis : order) {
      flat.push_back(shape[axis]);
      labels += x.labels[axis];
    }
    labels += x.labels[i];
    order.append({static_cast<int64_t>(i), static_cast<int64_t>(j)});
    SmallVector<int64_t> starts(rank - 1, 0), strides(rank - 1, 1), sizes(flat);
    flat.push_back(extent * extent);
    sizes.push_back(extent);
    strides.back() = extent + 1;
    x = {b.slice(b.reshape(b.transpose(x.value, order), flat), starts, sizes, strides), labels};
    i = static_cast<size_t>(-1);
  }
  return x;
}

/// Extents of 1 broadcast: such a dimension takes no part.
static void dropOnes(Binder &b, Labelled &x) {
  SmallVector<int64_t> shape;
  std::string labels;
  for (auto [label, extent] : llvm::zip_equal(x.labels, tensorType(x.value).getShape()))
    if (extent != 1) {
      shape.push_back(extent);
      labels += label;
    }
  x = {b.reshape(x.value, shape), labels};
}

static LogicalResult importEinsum(Binder &b) {
  if (failed(b.needFloat(1, 0)) || failed(b.need(b.operandCount())))
    return failure();
  std::string equation;
  for (char c : b.stringAttr("equation", ""))
    if (c != ' ')
      equation += c;
  if (failed(writeOutEllipsis(b, equation)))
    return failure();
  auto [left, right] = StringRef(equation).split("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (terms.size() != b.operandCount())
    return b.fail() << "expected " << b.operandCount() << " terms in '" << equation << "', got " << terms.size();
  llvm::StringMap<int64_t> extents;
  std::string output = right.str();
  std::string all;
  SmallVector<Labelled> values;
  for (auto [i, term] : llvm::enumerate(terms)) {
    if (static_cast<int64_t>(term.size()) != b.rank(i))
      return b.fail() << "expected " << b.rank(i) << " labels for operand " << i << ", got '" << term << "'";
    FailureOr<Labelled> value = takeDiagonals(b, {b.in(i), term.str()});
    if (failed(value))
      return failure();
    dropOnes(b, *value);
    for (auto [d, label] : llvm::enumerate(value->labels)) {
      int64_t extent = tensorType(value->value).getDimSize(d);
      auto [at, fresh] = extents.try_emplace(StringRef(&label, 1), extent);
      if (!fresh && at->second != extent)
        return b.fail() << "expected one extent for label '" << StringRef(&label, 1) << "', got " << at->second
                        << " and " << extent;
    }
    all += term.str();
    values.push_back(*value);
  }
  if (!StringRef(equation).contains("->")) {
    // Implicit form: labels that occur once, in alphabetic order.
    std::string sorted = all;
    llvm::sort(sorted);
    for (char c : sorted)
      if (llvm::count(all, c) == 1)
        output += c;
  }
  for (char c : output)
    if (all.find(c) == std::string::npos || llvm::count(output, c) > 1)
      return b.fail() << "expected the output's labels once each and from the inputs, got '" << output << "'";
  Labelled result = values.front();
  for (size_t i = 1; i < values.size(); ++i) {
    auto keep = [&](char c) {
      return output.find(c) != std::string::npos ||
             llvm::any_of(ArrayRef(values).drop_front(i + 1),
                          [&](const Labelled &v) { return v.labels.find(c) != std::string::npos; });
    };
    FailureOr<Labelled> next = contract(b, result, values[i], keep, extents);
    if (failed(next))
      return failure();
    result = *next;
  }
  result = sumOut(b, result, [&](char c) { return output.find(c) != std::string::npos; });
  // Dimensions that every operand has as 1 were dropped.
  std::string kept;
  SmallVector<int64_t> shape;
  for (char c : output) {
    bool present = result.labels.find(c) != std::string::npos;
    shape.push_back(present ? extents[StringRef(&c, 1)] : 1);
    if (present)
      kept += c;
  }
  return b.done(b.reshape(arrange(b, result, kept), shape));
}

namespace {
/// A discrete Fourier transform as a matrix: rows are samples and columns frequencies (of the inverse, the other way
/// round), each of one real number or a real and an imaginary one.
struct Transform {
  int64_t length = 1, rows = 1, columns = 1, rowParts = 1, columnParts = 2;
  bool inverse = false, halved = false; ///< halved: the rows are those frequencies that a real signal's others mirror

  double at(int64_t row, int64_t rowPart, int64_t column, int64_t columnPart) const;
};
} // namespace

/// Most elements of a transform's matrix.
constexpr int64_t largestTransform = 1 << 22;

double Transform::at(int64_t row, int64_t rowPart, int64_t column, int64_t columnPart) const {
  constexpr double pi = 3.14159265358979323846;
  auto turn = static_cast<double>(row * column % length) / static_cast<double>(length);
  double angle = (inverse ? 2 : -2) * pi * turn, scale = inverse ? 1 / static_cast<double>(length) : 1;
  if (halved && row != 0 && 2 * row != length)
    scale *= 2;
  // (x + i y) e^(i angle), part by part
  double value = rowPart == columnPart ? std::cos(angle) : rowPart == 0 ? std::sin(angle) : -std::sin(angle);
  return value * scale;
}

/// x [..., rows, rowParts] as [..., columns, columnParts].
static FailureOr<Value> transformed(Binder &b, Value x, const Transform &t) {
  SmallVector<int64_t> shape(tensorType(x).getShape());
  int64_t height = t.rows * t.rowParts, width = t.columns * t.columnParts;
  if (height * width > largestTransform)
    return b.fail() << "expected a transform of up to " << largestTransform << " coefficients, got " << height * width;
  Type element = wideType(tensorType(x).getElementType());
  SmallVector<Attribute> values;
  for (int64_t i = 0; i < height; ++i)
    for (int64_t j = 0; j < width; ++j)
      values.push_back(
          b.builder.getFloatAttr(element, t.at(i / t.rowParts, i % t.rowParts, j / t.columnParts, j % t.columnParts)));
  Value matrix = b.constant(DenseElementsAttr::get(RankedTensorType::get({height, width}, element), values));
  int64_t count = productOf(ArrayRef(shape).drop_back(2));
  Value y = b.matmul(b.reshape(b.widen(x), {count, height}), matrix);
  shape[shape.size() - 2] = t.columns;
  shape.back() = t.columnParts;
  return b.cast(b.reshape(y, shape), tensorType(x).getElementType());
}

static LogicalResult importDFT(Binder &b) {
  int64_t rank = b.rank(0), parts = b.shape(0).back();
  int64_t at = b.version() < 20 ? b.intAttr("axis", 1) : -2;
  if (b.version() >= 20 && b.has(2)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(2, "axis");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one axis, got " << given->size());
    at = given->front();
  }
  FailureOr<int64_t> axis = b.axis(at, rank);
  if (failed(axis))
    return failure();
  bool onesided = b.intAttr("onesided", 0) != 0;
  Transform t;
  t.inverse = b.intAttr("inverse", 0) != 0;
  t.halved = t.inverse && onesided;
  int64_t extent = b.shape(0)[*axis];
  t.length = t.halved ? 2 * (extent - 1) : extent;
  if (b.has(1)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "dft_length");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one length, got " << given->size());
    t.length = given->front();
  }
  if (*axis == rank - 1 || (parts != 1 && parts != 2) || t.length < 1 || t.length > largestTransform ||
      (onesided && !t.inverse && parts == 2))
    return b.fail()
           << "expected signals of one or two parts on the last axis, of two for one-sided inverses alone, and a "
              "positive length, got "
           << b.in(0).getType() << ", axis " << *axis << " and length " << t.length;
  t.rows = std::min(extent, t.halved ? t.length / 2 + 1 : t.length);
  t.columns = onesided && !t.inverse ? t.length / 2 + 1 : t.length;
  t.rowParts = parts;
  t.columnParts = t.halved ? 1 : 2;
  // The axis next to the parts; samples behind the length are left out, and missing ones are zeros.
  SmallVector<int64_t> order = otherAxes(rank - 1, {*axis}), back(rank), starts(rank, 0);
  order.append({*axis, rank - 1});
  for (auto [to, from] : llvm::enumerate(order))
    back[from] = static_cast<int64_t>(to);
  Value x = b.transpose(b.in(0), order);
  SmallVector<int64_t> sizes(tensorType(x).getShape());
  sizes[rank - 2] = t.rows;
  if (t.rows != extent)
    x = b.slice(x, starts, sizes);
  FailureOr<Value> y = transformed(b, x, t);
  return failed(y) ? failure() : b.done(b.transpose(*y, back));
}

/// Windows of a signal [B, T] or [B, T, parts], each transformed: [B, windows, frequencies, 2].
static LogicalResult importSTFT(Binder &b) {
  FailureOr<SmallVector<int64_t>> step = b.ints(1, "frame_step"), length = SmallVector<int64_t>();
  if (b.has(3))
    length = b.ints(3, "frame_length");
  else if (b.has(2) && b.rank(2) == 1)
    length = SmallVector<int64_t>(b.shape(2));
  if (failed(step) || failed(length))
    return failure();
  int64_t rank = b.rank(0), time = rank >= 2 ? b.shape(0)[1] : 0, parts = rank == 3 ? b.shape(0)[2] : 1;
  bool onesided = b.intAttr("onesided", 1) != 0;
  if (!b.isFloat(0) || rank < 2 || rank > 3 || step->size() != 1 || step->front() < 1 || length->size() != 1 ||
      length->front() < 1 || length->front() > time || parts > 2 || (onesided && parts == 2) ||
      (b.has(2) && b.shape(2) != ArrayRef<int64_t>(*length)))
    return b.fail()
           << "expected a float signal [B, T] or [B, T, parts], a positive step, and a window or length of up to "
           << time << ", got " << b.in(0).getType();
  Transform t;
  t.length = t.rows = length->front();
  t.columns = onesided ? t.length / 2 + 1 : t.length;
  t.rowParts = parts;
  int64_t frames = (time - t.length) / step->front() + 1;
  if (failed(b.checkShape({b.shape(0)[0], frames, t.length, parts})) || frames * t.length > largestTransform)
    return b.fail() << "expected windows of up to " << largestTransform << " samples, got " << frames << " of "
                    << t.length;
  SmallVector<int64_t> places;
  for (int64_t frame = 0; frame < frames; ++frame)
    for (int64_t i = 0; i < t.length; ++i)
      places.push_back(frame * step->front() + i);
  Value signal = b.reshape(b.in(0), {b.shape(0)[0], time, parts});
  Value windows = b.make<GatherOp>(signal, b.reshape(b.indices(places), {frames, t.length}), 1);
  if (b.has(2))
    windows = b.mul(windows, b.broadcast(b.cast(b.in(2), b.element(0)), tensorType(windows).getShape(), {2}));
  FailureOr<Value> y = transformed(b, windows, t);
  return failed(y) ? failure() : b.done(*y);
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
