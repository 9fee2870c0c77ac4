// SPDX-License-Identifier: Apache-2.0
// Tensors made of positions: ranges, triangles and diagonals of matrices, filters of the mel scale.
#include "Ranges.h"

#include "mpt/Evaluation/Tensor.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

/// Values that are listed one by one.
constexpr int64_t mostValues = 1 << 24;
/// Ranges of up to this many numbers are constants.
constexpr int64_t longestTable = 1 << 12;

LogicalResult mpt::importRange(Binder &b) {
  b.ignore({"stash_type"}); // computed in FP64
  FailureOr<double> start = b.number(0, "start"), limit = b.number(1, "limit"), delta = b.number(2, "delta");
  if (failed(start) || failed(limit) || failed(delta))
    return failure();
  double steps = std::ceil((*limit - *start) / *delta);
  if (*delta == 0 || !(std::fabs(steps) < mostValues))
    return b.fail() << "expected a step other than 0 and fewer than 2^24 values, got " << *start << " to " << *limit
                    << " in steps of " << *delta;
  auto type = RankedTensorType::get({std::max<int64_t>(static_cast<int64_t>(steps), 0)}, b.element(0));
  if (!b.isFloat(0) && type.getNumElements() > longestTable)
    return b.done(b.add(b.mul(IotaOp::create(b.builder, b.loc, type, 0), *delta), *start));
  Tensor values(type);
  for (int64_t i = 0, e = values.size(); i < e; ++i)
    values.setNumber(i, *start + i * *delta);
  return b.done(b.constant(values.toAttribute()));
}

/// Triangles over the bins of a spectrum, evenly spaced on the mel scale.
LogicalResult mpt::importMelWeightMatrix(Binder &b) {
  double settings[5];
  StringRef names[5] = {"num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"};
  for (unsigned i = 0; i < 5; ++i) {
    FailureOr<double> number = b.number(i, names[i]);
    if (failed(number))
      return failure();
    settings[i] = *number;
  }
  FailureOr<Type> element = b.typeAttr("output_datatype", b.builder.getF32Type());
  if (failed(element))
    return failure();
  auto [count, length, rate, lowest, highest] = settings;
  auto bins = static_cast<int64_t>(count), rows = static_cast<int64_t>(length) / 2 + 1;
  if (!(count >= 1 && count < mostValues && length >= 1 && length < mostValues && rate >= 1) ||
      !(lowest >= 0 && lowest <= highest) || bins * rows > mostValues)
    return b.fail() << "expected a positive number of bins, length and rate, and edges from 0 up, got " << count << ", "
                    << length << ", " << rate << ", " << lowest << " and " << highest;
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  SmallVector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double at = mel(lowest) + static_cast<double>(i) * (mel(highest) - mel(lowest)) / static_cast<double>(bins + 2);
    double hertz = 700 * (std::pow(10, at / 2595) - 1);
    double bin = std::floor((length + 1) * hertz / rate);
    if (!(bin <= static_cast<double>(rows)))
      return b.fail() << "expected edges up to half of the sample rate, got " << highest << " for " << rate;
    edges.push_back(static_cast<int64_t>(bin));
  }
  Tensor values(RankedTensorType::get({rows, bins}, *element));
  for (int64_t i = 0; i < bins; ++i) {
    int64_t low = edges[i], peak = edges[i + 1], high = edges[i + 2];
    auto set = [&](int64_t row, double value) {
      if (row < rows)
        values.setNumber(row * bins + i, value);
    };
    for (int64_t row = low; row < peak; ++row)
      set(row, static_cast<double>(row - low) / static_cast<double>(peak - low));
    set(peak, 1);
    for (int64_t row = peak + 1; row < high; ++row)
      set(row, static_cast<double>(high - row) / static_cast<double>(high - peak));
  }
  return b.done(b.constant(values.toAttribute()));
}

LogicalResult mpt::importTrilu(Binder &b) {
  int64_t rank = b.rank(0), k = 0;
  if (rank < 2)
    return b.fail() << "expected matrices, got rank " << rank;
  if (b.has(1)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "k");
    if (failed(given) || given->size() != 1)
      return failed(given) ? failure() : LogicalResult(b.fail() << "expected one number as k, got " << given->size());
    k = given->front();
  }
  // Kept above (column - row >= k) or below (column - row <= k) a diagonal.
  int64_t rows = b.shape(0)[rank - 2], columns = b.shape(0)[rank - 1];
  auto type = RankedTensorType::get({rows, columns}, b.builder.getI64Type());
  Value row = IotaOp::create(b.builder, b.loc, type, b.i64(0));
  Value column = IotaOp::create(b.builder, b.loc, type, b.i64(1));
  bool upper = b.intAttr("upper", 1);
  Value keep = b.compare(upper ? Predicate::ge : Predicate::le, b.sub(column, row),
                         b.splat(type, std::clamp<int64_t>(k, -rows - columns, rows + columns)));
  Value x = b.in(0);
  return b.done(b.select(b.broadcastTo(keep, b.shape(0)), x, b.splatLike(x, 0)));
}

LogicalResult mpt::importEyeLike(Binder &b) {
  FailureOr<Type> element = b.typeAttr("dtype", b.element(0));
  if (failed(element))
    return failure();
  if (b.rank(0) != 2)
    return b.fail() << "expected a matrix, got " << b.in(0).getType();
  auto grid = RankedTensorType::get(b.shape(0), b.builder.getI64Type());
  Value row = IotaOp::create(b.builder, b.loc, grid, b.i64(0)),
        column = IotaOp::create(b.builder, b.loc, grid, b.i64(1));
  Value diagonal = b.add(row, static_cast<double>(b.intAttr("k", 0)));
  return b.done(b.cast(b.compare(Predicate::eq, column, diagonal), *element));
}
