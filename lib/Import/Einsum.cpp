// SPDX-License-Identifier: Apache-2.0
// Einsum: products of tensors whose dimensions are named by letters, as matrix multiplications.
#include "Einsum.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;

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

LogicalResult mpt::importEinsum(Binder &b) {
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
