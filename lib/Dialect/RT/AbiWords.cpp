// SPDX-License-Identifier: Apache-2.0
// Reads descriptors off rt ops.
#include "mpt/Dialect/RT/AbiWords.h"

#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Dialect/Train/TrainingParts.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::rt;

namespace {

MemRefType typeOf(Value memref) { return cast<MemRefType>(memref.getType()); }

SmallVector<int64_t> stridesOf(MemRefType type) { return type.getStridesAndOffset().first; }

int64_t flagOf(library::Activation activation) {
  switch (activation) {
  case library::Activation::none:
    return 0;
  case library::Activation::relu:
    return MPT_GEMM_RELU;
  case library::Activation::gelu_tanh:
    return MPT_GEMM_GELU_TANH;
  case library::Activation::gelu_tanh_gradient:
    return MPT_GEMM_GELU_TANH_GRADIENT;
  }
  llvm_unreachable("an activation without a flag");
}

int64_t flagOf(library::GemmSum sum) {
  switch (sum) {
  case library::GemmSum::none:
    return 0;
  case library::GemmSum::a:
    return MPT_GEMM_SUM_A;
  case library::GemmSum::b:
    return MPT_GEMM_SUM_B;
  case library::GemmSum::d:
    return MPT_GEMM_SUM_D;
  }
  llvm_unreachable("a sum without a flag");
}

/// Gradients are of a batch as a whole: their sums need no order.
int64_t flagsOf(Operation *call, SumOrder order) {
  if (!hasOrderedSums(call) || statedPart(call))
    return 0;
  return MPT_GEMM_ORDERED | (order == SumOrder::TwoChains ? MPT_GEMM_TWO_CHAINS : 0);
}

/// The MPT_GEMM_* flags of the epilogue and operands of `gemm`.
int64_t flagsOf(GemmOp gemm) {
  library::EpilogueAttr form = gemm.getForm();
  auto multiplied = [&](Value operand) {
    Type type = typeOf(operand).getElementType();
    return type.isF32() ? gemm.getReadAs().value_or(type) : type;
  };
  int64_t flags = flagOf(form.getActivation()) | flagOf(form.getSum()) |
                  flagsOf(gemm, sumOrderOf(multiplied(gemm.getA()), multiplied(gemm.getB())));
  flags |= gemm.getBias() ? MPT_GEMM_BIAS : 0;
  flags |= gemm.getScale() ? MPT_GEMM_SCALE : 0;
  flags |= form.getRound() ? MPT_GEMM_ROUND : 0;
  flags |= form.getKeep() ? MPT_GEMM_KEEP : 0;
  if (std::optional<Type> type = gemm.getReadAs())
    flags |= type->isF16() ? MPT_GEMM_READ_F16 : MPT_GEMM_READ_BF16;
  return flags;
}

} // namespace

int64_t mpt::rt::runtimeType(Type element) {
  return TypeSwitch<Type, int64_t>(element)
      .Case<Float32Type>([](Type) { return MPT_FLOAT32; })
      .Case<Float64Type>([](Type) { return MPT_FLOAT64; })
      .Case<Float16Type>([](Type) { return MPT_FLOAT16; })
      .Case<BFloat16Type>([](Type) { return MPT_BFLOAT16; })
      .Case<Float8E4M3FNType>([](Type) { return MPT_FLOAT8E4M3FN; })
      .Case<Float8E5M2Type>([](Type) { return MPT_FLOAT8E5M2; })
      .Case<IntegerType>([](IntegerType type) -> int64_t {
        switch (type.getWidth()) {
        case 1:
          return MPT_BOOL;
        case 8:
          return type.isUnsigned() ? MPT_UINT8 : MPT_INT8;
        case 16:
          return type.isUnsigned() ? MPT_UINT16 : MPT_INT16;
        case 32:
          return type.isUnsigned() ? MPT_UINT32 : MPT_INT32;
        case 64:
          return type.isUnsigned() ? MPT_UINT64 : MPT_INT64;
        default:
          return 0;
        }
      })
      .Default([](Type) { return 0; });
}

mpt_gemm_desc mpt::rt::describe(GemmOp gemm) {
  MemRefType a = typeOf(gemm.getA()), b = typeOf(gemm.getB()), d = typeOf(gemm.getD());
  int64_t rank = d.getRank(), batches = rank - 2;
  mpt_gemm_desc desc{};
  desc.m = d.getDimSize(rank - 2);
  desc.n = d.getDimSize(rank - 1);
  desc.k = a.getDimSize(rank - 1);
  desc.batch0 = batches == 2 ? d.getDimSize(0) : 1;
  desc.batch1 = batches >= 1 ? d.getDimSize(batches - 1) : 1;
  desc.a_type = runtimeType(a.getElementType());
  desc.b_type = runtimeType(b.getElementType());
  desc.d_type = runtimeType(d.getElementType());
  Value vector = gemm.getBias() ? gemm.getBias() : gemm.getScale() ? gemm.getScale() : gemm.getSums();
  desc.bias_type = vector ? runtimeType(typeOf(vector).getElementType()) : 0;
  auto fill = [&](MemRefType matrix, int64_t &batch0, int64_t &batch1, int64_t &row, int64_t &col) {
    SmallVector<int64_t> strides = stridesOf(matrix);
    batch0 = batches == 2 ? strides[0] : 0;
    batch1 = batches >= 1 ? strides[batches - 1] : 0;
    row = strides[rank - 2];
    col = strides[rank - 1];
    // The stride of an extent of 1 is free: give the runtime the unit stride that it looks for.
    if (matrix.getDimSize(rank - 1) == 1 && row != 1)
      col = 1;
    else if (matrix.getDimSize(rank - 2) == 1 && col != 1)
      row = 1;
  };
  fill(a, desc.a_batch0, desc.a_batch1, desc.a_row, desc.a_col);
  fill(b, desc.b_batch0, desc.b_batch1, desc.b_row, desc.b_col);
  fill(d, desc.d_batch0, desc.d_batch1, desc.d_row, desc.d_col);
  if (desc.n == 1)
    desc.d_col = 1;
  desc.flags = flagsOf(gemm);
  desc.alpha = gemm.getAlpha().convertToDouble();
  return desc;
}

bool mpt::rt::isChained(GemmOp gemm) {
  library::EpilogueAttr form = gemm.getForm();
  return gemm.getAux() || gemm.getSums() || form.getActivation() == library::Activation::gelu_tanh;
}

int64_t mpt::rt::runtimeKind(ConvKind kind) {
  switch (kind) {
  case ConvKind::forward:
    return MPT_CONV_FORWARD;
  case ConvKind::backward_data:
    return MPT_CONV_BACKWARD_DATA;
  case ConvKind::backward_weights:
    return MPT_CONV_BACKWARD_WEIGHTS;
  }
  llvm_unreachable("unknown kind of convolution");
}

mpt_conv_desc mpt::rt::describe(ConvOp conv, bool native) {
  MemRefType x = typeOf(conv.getX()), w = typeOf(conv.getW()), y = typeOf(conv.getY());
  mpt_conv_desc desc{};
  desc.kind = runtimeKind(conv.getKind());
  desc.n = x.getDimSize(0);
  desc.groups = conv.getGroups();
  desc.ic = x.getDimSize(1);
  desc.oc = y.getDimSize(1);
  int64_t spatial = x.getRank() - 2, first = 3 - spatial;
  for (int64_t i = 0; i < 3; ++i) {
    bool used = i >= first;
    int64_t s = i - first;
    desc.in[i] = used ? x.getDimSize(2 + s) : 1;
    desc.out[i] = used ? y.getDimSize(2 + s) : 1;
    desc.kernel[i] = used ? w.getDimSize(2 + s) : 1;
    desc.stride[i] = used ? conv.getStrides()[s] : 1;
    desc.dilation[i] = used ? conv.getDilations()[s] : 1;
    desc.pad_low[i] = used ? conv.getPadsLow()[s] : 0;
    desc.pad_high[i] = used ? conv.getPadsHigh()[s] : 0;
  }
  desc.x_type = runtimeType(x.getElementType());
  desc.w_type = runtimeType(w.getElementType());
  desc.y_type = runtimeType(y.getElementType());
  const bool forward = conv.getKind() == ConvKind::forward;
  desc.flags = flagsOf(conv, forward ? sumOrderOf(x.getElementType(), w.getElementType(), desc.groups, w.getDimSize(1))
                                     : SumOrder::OneChain);
  bool all = desc.x_type == MPT_BFLOAT16 && desc.w_type == MPT_BFLOAT16 && desc.y_type == MPT_BFLOAT16;
  desc.workspace_bytes = mpt_conv_workspace(&desc, native && all);
  return desc;
}

/// Shared by forward and backward calls.
template <typename Op> static mpt_attention_desc describeAttention(Op op) {
  MemRefType q = typeOf(op.getQ()), k = typeOf(op.getK()), v = typeOf(op.getV());
  mpt_attention_desc desc{};
  desc.batch = q.getDimSize(0);
  desc.heads = q.getDimSize(1);
  desc.kv_heads = k.getDimSize(1);
  desc.queries = q.getDimSize(2);
  desc.keys = k.getDimSize(2);
  desc.depth = q.getDimSize(3);
  desc.value_depth = v.getDimSize(3);
  desc.type = runtimeType(q.getElementType());
  desc.causal = op.getCausal();
  desc.scale = op.getScale().convertToDouble();
  if (op.getBias()) {
    desc.bias_type = runtimeType(typeOf(op.getBias()).getElementType());
    llvm::copy(stridesOf(typeOf(op.getBias())), desc.bias_strides);
  }
  return desc;
}

static void fillStrides(Value memref, int64_t (&strides)[3]) {
  SmallVector<int64_t> all = stridesOf(typeOf(memref));
  std::copy(all.begin(), all.begin() + 3, strides);
}

mpt_attention_desc mpt::rt::describe(AttentionOp op) {
  mpt_attention_desc desc = describeAttention(op);
  fillStrides(op.getQ(), desc.q_strides);
  fillStrides(op.getK(), desc.k_strides);
  fillStrides(op.getV(), desc.v_strides);
  fillStrides(op.getO(), desc.o_strides);
  return desc;
}

mpt_attention_desc mpt::rt::describe(AttentionGradientOp op) {
  mpt_attention_desc desc = describeAttention(op);
  fillStrides(op.getQ(), desc.q_strides);
  fillStrides(op.getK(), desc.k_strides);
  fillStrides(op.getV(), desc.v_strides);
  fillStrides(op.getO(), desc.o_strides);
  fillStrides(op.getDO(), desc.do_strides);
  fillStrides(op.getDq(), desc.dq_strides);
  fillStrides(op.getDk(), desc.dk_strides);
  fillStrides(op.getDv(), desc.dv_strides);
  return desc;
}

static int64_t runtimeCell(rt::RecurrenceOp op) {
  switch (op.getCell()) {
  case RecurrentCell::lstm:
    return MPT_CELL_LSTM;
  case RecurrentCell::gru: {
    // The form with its reset behind the GEMM has a bias there, and the gradient of the sum with it.
    bool resetFirst = op.getBackward() ? op.getOutputs().size() == 2 : op.getInputs().size() == 3;
    return resetFirst ? MPT_CELL_GRU_RESET_FIRST : MPT_CELL_GRU;
  }
  case RecurrentCell::tanh:
    return MPT_CELL_TANH;
  case RecurrentCell::relu:
    return MPT_CELL_RELU;
  }
  llvm_unreachable("unknown cell");
}

mpt_recurrence_desc mpt::rt::describe(RecurrenceOp recurrence) {
  // Forward, the first result are the states; backward, the first operand is their gradient.
  Value states = recurrence.getBackward() ? recurrence.getInputs().front() : recurrence.getOutputs().front();
  ArrayRef<int64_t> shape = typeOf(states).getShape();
  mpt_recurrence_desc desc{};
  desc.cell = runtimeCell(recurrence);
  desc.backward = recurrence.getBackward();
  desc.reverse = recurrence.getReverse();
  desc.steps = shape[0];
  desc.batch = shape[1];
  desc.hidden = shape[2];
  desc.num_inputs = static_cast<int64_t>(recurrence.getInputs().size());
  desc.num_outputs = static_cast<int64_t>(recurrence.getOutputs().size());
  for (auto [type, input] : llvm::zip(desc.input_types, recurrence.getInputs()))
    type = runtimeType(typeOf(input).getElementType());
  for (auto [type, output] : llvm::zip(desc.output_types, recurrence.getOutputs()))
    type = runtimeType(typeOf(output).getElementType());
  desc.workspace_bytes = mpt_recurrence_workspace(&desc);
  return desc;
}
