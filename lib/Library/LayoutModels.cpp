// SPDX-License-Identifier: Apache-2.0
// Layouts that ops want and give: convolutions channels-last, GEMMs rows of unit stride, views their source's.
#include "mpt/Library/Library.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/LayoutPreference.h"

using namespace mlir;
using namespace mpt;

namespace {

using Strength = LayoutChoice::Strength;

/// A model of `Op`, whose methods get the op itself.
template <typename Model, typename Op> struct LayoutModel : LayoutPreference::ExternalModel<Model, Op> {
  void wishLayouts(Operation *op, LayoutChoice &choice) const { Model::wish(cast<Op>(op), choice); }
  void giveLayouts(Operation *op, LayoutChoice &choice) const { Model::give(cast<Op>(op), choice); }
  static void wish(Op, LayoutChoice &) {}
  static void give(Op, LayoutChoice &) {}
};
template <typename Model, typename Op> struct ViewLayoutModel : LayoutModel<Model, Op> {
  bool ownsResults(Operation *) const { return false; }
};

// ---- convolutions

/// Data channels-last; filters as the target's library wants them.
struct ConvLayouts : LayoutModel<ConvLayouts, library::ConvOp> {
  static void wish(library::ConvOp conv, LayoutChoice &choice) {
    for (Value operand : {conv.getA(), conv.getB()})
      if (operand != conv.getW())
        choice.wish(operand, channelsLast(rankOf(operand)), Strength::Call);
  }
  static void give(library::ConvOp conv, LayoutChoice &choice) {
    if (conv.getD() != conv.getW())
      choice.give(conv.getD(), channelsLast(rankOf(conv.getD())));
  }
};

// ---- GEMMs and attention

/// Rows of unit stride, in any order of the other dimensions.
template <typename Op> struct RowLayouts : LayoutModel<RowLayouts<Op>, Op> {
  static void give(Op op, LayoutChoice &choice) {
    for (Value result : op->getResults())
      if (auto wish = choice.wishFor(result); wish && wish->order.back() == rankOf(result) - 1)
        choice.give(result, wish->order);
  }
};

/// Tensors that calls exchange through memory, around activations, are row-major; so are vectors.
struct GemmLayouts : LayoutModel<GemmLayouts, library::GemmOp> {
  static void give(library::GemmOp gemm, LayoutChoice &choice) {
    if (gemm.exchangesDense())
      return;
    if (auto wish = choice.wishFor(gemm.getD()); wish && wish->order.back() == rankOf(gemm.getD()) - 1)
      choice.give(gemm.getD(), wish->order);
  }
};

// ---- views and concatenations

/// The order of x that gives y = transpose(x, permutation) the order `order`.
Order throughTranspose(ArrayRef<int64_t> order, ArrayRef<int64_t> permutation) {
  Order result;
  for (int64_t d : order)
    result.push_back(permutation[d]);
  return result;
}

struct ReshapeLayouts : ViewLayoutModel<ReshapeLayouts, ReshapeOp> {
  static void wish(ReshapeOp reshape, LayoutChoice &choice) {
    choice.wish(reshape.getX(), rowMajor(rankOf(reshape.getX())), Strength::View);
  }
};
struct TransposeLayouts : ViewLayoutModel<TransposeLayouts, TransposeOp> {
  static void wish(TransposeOp transpose, LayoutChoice &choice) {
    if (auto wish = choice.wishFor(transpose.getY()))
      choice.wish(transpose.getX(), throughTranspose(wish->order, transpose.getPermutation()), wish->strength);
  }
  static void give(TransposeOp transpose, LayoutChoice &choice) {
    Order inverse(transpose.getPermutation().size());
    for (auto [i, p] : llvm::enumerate(transpose.getPermutation()))
      inverse[p] = i;
    Order given = choice.orderOf(transpose.getX()).value_or(rowMajor(inverse.size()));
    choice.give(transpose.getY(), throughTranspose(given, inverse));
  }
};
struct SliceLayouts : ViewLayoutModel<SliceLayouts, SliceOp> {
  static void wish(SliceOp slice, LayoutChoice &choice) { choice.passOn(slice.getY(), slice.getX(), Strength::View); }
  static void give(SliceOp slice, LayoutChoice &choice) {
    if (std::optional<Order> order = choice.orderOf(slice.getX()))
      choice.give(slice.getY(), *order);
  }
};
struct ConcatLayouts : LayoutModel<ConcatLayouts, ConcatOp> {
  static void wish(ConcatOp concat, LayoutChoice &choice) {
    for (Value input : concat.getInputs())
      choice.passOn(concat.getY(), input, Strength::Call);
  }
  static void give(ConcatOp concat, LayoutChoice &choice) {
    if (auto wish = choice.wishFor(concat.getY()))
      choice.give(concat.getY(), wish->order);
    else if (std::optional<Order> order = choice.orderOf(concat.getInputs().front()))
      choice.give(concat.getY(), *order);
  }
};

// ---- kernels

/// Elementwise kernels keep the layout of their inputs; pooling kernels, of their window's tensor.
struct FusionLayouts : LayoutModel<FusionLayouts, FusionOp> {
  static void wish(FusionOp fusion, LayoutChoice &choice) {
    for (Value output : fusion.getOutputs())
      for (Value input : fusion.getInputs())
        if (shapeOf(input) == shapeOf(output))
          choice.passOn(output, input, Strength::Call);
  }
  static void give(FusionOp fusion, LayoutChoice &choice) {
    for (Value output : fusion.getOutputs())
      choice.give(output, orderOf(fusion, output, choice));
  }

private:
  static Order orderOf(FusionOp fusion, Value output, const LayoutChoice &choice) {
    int64_t rank = rankOf(output);
    auto wish = choice.wishFor(output);
    if (wish && (wish->strength == Strength::Call || rank > 2))
      return wish->order;
    Value dominant = dominantInput(fusion, output);
    std::optional<Order> order = dominant ? choice.orderOf(dominant) : std::nullopt;
    return order.value_or(rowMajor(rank));
  }
  /// The input of the output's shape if there is one, else the largest of its rank; of equal ones the first.
  static Value dominantInput(FusionOp fusion, Value output) {
    auto weight = [&](Value input) {
      return std::make_pair(shapeOf(input) == shapeOf(output), tensorType(input).getNumElements());
    };
    Value dominant;
    for (Value input : fusion.getInputs())
      if (rankOf(input) == rankOf(output) && (!dominant || weight(dominant) < weight(input)))
        dominant = input;
    return dominant;
  }
};

} // namespace

void mpt::registerLibraryModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    ReshapeOp::attachInterface<ReshapeLayouts>(*context);
    TransposeOp::attachInterface<TransposeLayouts>(*context);
    SliceOp::attachInterface<SliceLayouts>(*context);
    ConcatOp::attachInterface<ConcatLayouts>(*context);
    FusionOp::attachInterface<FusionLayouts>(*context);
  });
  registry.addExtension(+[](MLIRContext *context, library::LibraryDialect *) {
    library::ConvOp::attachInterface<ConvLayouts>(*context);
    library::GemmOp::attachInterface<GemmLayouts>(*context);
    library::AttentionOp::attachInterface<RowLayouts<library::AttentionOp>>(*context);
    library::AttentionGradientOp::attachInterface<RowLayouts<library::AttentionGradientOp>>(*context);
  });
}
