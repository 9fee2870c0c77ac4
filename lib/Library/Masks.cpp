// SPDX-License-Identifier: Apache-2.0
// Masks of attention scores as a bias that does not repeat and a flag; evaluation folds constants.
// Matcher: constants, and casts and broadcasts of them on the way to the scores.
#include "mpt/Library/Masks.h"

#include "mpt/Evaluation/Constants.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t mostElements = 1 << 24; ///< of a value that is computed here
constexpr double excludes = -9000;        ///< scores with this much added get a probability of 0 next to any other

/// Extents become 1 where all slices along a dimension but the last are the same.
void dropRepeated(std::vector<double> &elements, SmallVectorImpl<int64_t> &shape) {
  for (size_t d = 0; d + 1 < shape.size(); ++d) {
    int64_t outer = 1, inner = 1;
    for (size_t i = 0; i < shape.size(); ++i)
      (i < d ? outer : inner) *= shape[i];
    int64_t slice = inner / shape[d];
    bool same = true;
    for (int64_t o = 0; o < outer && same; ++o)
      for (int64_t i = slice; i < inner && same; ++i)
        same = elements[o * inner + i] == elements[o * inner + i % slice];
    if (!same)
      continue;
    std::vector<double> kept;
    for (int64_t o = 0; o < outer; ++o)
      kept.insert(kept.end(), elements.begin() + o * inner, elements.begin() + o * inner + slice);
    elements = std::move(kept);
    shape[d] = 1;
  }
}

/// 0 up to the diagonal, and numbers that exclude a key behind it.
bool isCausal(const std::vector<double> &elements, ArrayRef<int64_t> shape, RankedTensorType scores) {
  int64_t rank = scores.getRank(), queries = scores.getDimSize(rank - 2), keys = scores.getDimSize(rank - 1);
  if (shape[rank - 2] != queries || static_cast<int64_t>(elements.size()) != queries * keys)
    return false;
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < keys; ++j)
      if (double x = elements[i * keys + j]; j <= i ? x != 0 : !(x <= excludes))
        return false;
  return true;
}

} // namespace

Value MaskBuilder::compact(Value value) {
  if (auto cast = value.getDefiningOp<CastOp>(); cast && !cast.getKey()) {
    Value inner = compact(cast.getX());
    if (inner == cast.getX())
      return value;
    Operation *copy = b.builder.clone(*cast);
    copy->setOperand(0, inner);
    copy->getResult(0).setType(tensorType(inner).clone(tensorType(value).getElementType()));
    return copy->getResult(0);
  }
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast)
    return value;
  SmallVector<int64_t> shape(tensorType(value).getRank(), 1);
  for (auto [extent, d] : llvm::zip_equal(tensorType(broadcast.getX()).getShape(), broadcast.getDims()))
    shape[d] = extent;
  return b.reshape(broadcast.getX(), shape);
}

bool MaskBuilder::addBias(Value value) {
  if (tensorType(value).getDimSize(scores.getRank() - 1) != scores.getDimSize(scores.getRank() - 1))
    return false;
  if (tensorType(value).getElementTypeBitWidth() > 32)
    value = b.cast(value, b.builder.getF32Type());
  if (!mask.bias) {
    mask.bias = value;
    return true;
  }
  // Two of them: in the wider of their types.
  Type a = tensorType(mask.bias).getElementType(), c = tensorType(value).getElementType();
  Type wide = a == c ? a : b.builder.getF32Type();
  SmallVector<int64_t> shape(tensorType(value).getShape());
  for (auto [extent, other] : llvm::zip_equal(shape, tensorType(mask.bias).getShape()))
    extent = std::max(extent, other);
  mask.bias = b.add(b.broadcastTo(b.cast(mask.bias, wide), shape), b.broadcastTo(b.cast(value, wide), shape));
  return true;
}

const std::optional<Tensor> &MaskBuilder::elementsOf(Value value, Value small) {
  auto [slot, isNew] = known.try_emplace(value, std::nullopt);
  if (isNew)
    slot->second = evaluateConstant(small, mostElements);
  return slot->second;
}

bool MaskBuilder::add(Value value, double factor) {
  // The same for all keys changes nothing.
  if (std::optional<double> all = splatNumber(value))
    return std::isfinite(*all);
  Value small = compact(value);
  Type type = tensorType(small).getElementType();
  if (const std::optional<Tensor> &constant = elementsOf(value, small)) {
    std::vector<double> elements(constant->reals().begin(), constant->reals().end());
    for (double &x : elements)
      x *= factor;
    SmallVector<int64_t> shape(constant->shape());
    dropRepeated(elements, shape);
    if (llvm::all_of(elements, [](double x) { return x == 0; }))
      return true;
    if (isCausal(elements, shape, scores))
      return mask.causal = true;
    if (factor == 1 && shape.back() == scores.getShape().back() && shape != constant->shape()) {
      SmallVector<APFloat> values;
      for (double x : elements) {
        bool loses;
        values.emplace_back(x);
        values.back().convert(cast<FloatType>(type).getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
      }
      return addBias(b.constant(DenseElementsAttr::get(RankedTensorType::get(shape, type), values)));
    }
  }
  return addBias(factor == 1 ? small : b.mul(small, factor));
}

bool MaskBuilder::select(Value condition, bool excluded, double sentinel) {
  if (!(sentinel <= excludes))
    return false;
  Value small = compact(condition);
  Type type = scores.getElementType();
  if (const std::optional<Tensor> &constant = elementsOf(condition, small)) {
    std::vector<double> elements;
    for (int64_t x : constant->ints())
      elements.push_back((x != 0) == excluded ? sentinel : 0);
    SmallVector<int64_t> shape(constant->shape());
    dropRepeated(elements, shape);
    if (isCausal(elements, shape, scores))
      return mask.causal = true;
  }
  RankedTensorType typed = tensorType(small).clone(type);
  Value in = b.splat(typed, 0), out = b.splat(typed, sentinel);
  return addBias(excluded ? b.select(small, out, in) : b.select(small, in, out));
}
