// SPDX-License-Identifier: Apache-2.0
// The runtime calls of a function, in words and numbers: the rows of a profile.
// Matcher: one case an op of dialect rt that is a call, with the call's name in profiles.
#include "Program.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

MemRefType typeOf(Value memref) { return cast<MemRefType>(memref.getType()); }

int64_t bytesOf(ValueRange buffers) {
  int64_t bytes = 0;
  for (Value buffer : buffers)
    if (buffer)
      bytes += memory::elementCount(typeOf(buffer).getShape()) * memory::elementBytes(typeOf(buffer).getElementType());
  return bytes;
}

/// The first name in a location, which is the node's.
std::string nameOf(Location location) {
  std::string name;
  location->walk([&](Location inner) {
    if (auto named = dyn_cast<NameLoc>(inner)) {
      name = named.getName().str();
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return name;
}

std::string shapeOf(Value memref) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << typeOf(memref).getElementType();
  for (auto [i, extent] : llvm::enumerate(typeOf(memref).getShape()))
    out << (i ? "x" : " ") << extent;
  return text;
}

CallInfo callOf(rt::GemmOp gemm) {
  mpt_gemm_desc d = rt::describe(gemm);
  CallInfo call;
  llvm::raw_string_ostream out(call.what);
  int64_t batch = d.batch0 * d.batch1;
  out << "gemm ";
  if (batch > 1)
    out << batch << " of ";
  out << d.m << "x" << d.n << "x" << d.k << (d.a_row == 1 && d.m > 1 ? " T" : " N")
      << (d.b_row == 1 && d.k > 1 ? "T " : "N ") << typeOf(gemm.getA()).getElementType() << " "
      << typeOf(gemm.getB()).getElementType() << " -> " << typeOf(gemm.getD()).getElementType();
  if (d.flags)
    out << " epilogue " << d.flags;
  if (!gemm.getOperandScales().empty())
    out << " scaled";
  if (gemm.getAux())
    out << (gemm.getForm().getKeep() ? " kept " : " at ") << typeOf(gemm.getAux()).getElementType();
  if (gemm.getSums())
    out << " sums " << typeOf(gemm.getSums()).getElementType();
  call.flops = 2 * batch * d.m * d.n * d.k;
  call.bytes = bytesOf({gemm.getA(), gemm.getB(), gemm.getD(), gemm.getAux(), gemm.getSums()});
  return call;
}

CallInfo callOf(rt::ConvOp conv) {
  static const char *kinds[] = {"conv", "conv backward data", "conv backward weights"};
  mpt_conv_desc d = rt::describe(conv, false);
  CallInfo call;
  call.what = std::string(kinds[d.kind]) + " x " + shapeOf(conv.getX()) + " w " + shapeOf(conv.getW()) + " y " +
              shapeOf(conv.getY()) +
              (!conv.getNorm().empty() ? " with norm's sums"
               : conv.getSums()        ? " with sums"
                                       : "");
  call.flops = 2 * d.n * d.oc * (d.ic / d.groups);
  for (int i = 0; i < 3; ++i)
    call.flops *= d.out[i] * d.kernel[i];
  call.bytes = bytesOf({conv.getX(), conv.getW(), conv.getY()});
  if (!conv.getNorm().empty())
    call.bytes += bytesOf({conv.getNorm().front()});
  return call;
}

template <typename Op> CallInfo attentionCall(Op op, StringRef what, int64_t gemms) {
  mpt_attention_desc d = rt::describe(op);
  CallInfo call;
  call.what = (what + " q" + shapeOf(op.getQ()) + " k" + shapeOf(op.getK()) + " v" + shapeOf(op.getV())).str() +
              (op.getBias() ? " bias" : "") + (op.getCausal() ? " causal" : "");
  call.flops = gemms * d.batch * d.heads * d.queries * d.keys * (d.depth + d.value_depth);
  call.bytes = bytesOf(op->getOperands());
  return call;
}

CallInfo callOf(rt::RecurrenceOp op) {
  mpt_recurrence_desc d = rt::describe(op);
  CallInfo call;
  call.what = (stringifyEnum(op.getCell()) + (d.backward ? " gradient of " : " of ") + Twine(d.steps) + " steps, " +
               Twine(d.batch) + " x " + Twine(d.hidden) + (d.reverse ? " reverse" : "") + " weights " +
               shapeOf(op.getInputs()[1]))
                  .str();
  call.flops = 2 * d.steps * d.batch * memory::elementCount(typeOf(op.getInputs()[1]).getShape());
  call.bytes = bytesOf(op.getInputs()) + bytesOf(op.getOutputs());
  return call;
}

CallInfo callOf(rt::AttentionOp op) { return attentionCall(op, "attention", 2); }
CallInfo callOf(rt::AttentionGradientOp op) { return attentionCall(op, "attention gradient", 5); }

} // namespace

std::optional<CallInfo> mpt::target::callOf(Operation *op) {
  auto call = TypeSwitch<Operation *, std::optional<CallInfo>>(op)
                  .Case<rt::GemmOp, rt::ConvOp, rt::AttentionOp, rt::AttentionGradientOp, rt::RecurrenceOp>(
                      [](auto op) { return ::callOf(op); })
                  .Case<rt::LaunchOp>([](rt::LaunchOp launch) {
                    CallInfo call{launch.getCallee().str(), {}, bytesOf(launch.getBuffers()), 0};
                    auto kernel = SymbolTable::lookupNearestSymbolFrom(launch, launch.getCalleeAttr());
                    if (auto ops = kernel ? getAttr<MPTDialect::OpsAttrHelper>(kernel) : StringAttr())
                      call.what += " (" + ops.str() + ")";
                    for (auto [i, buffer] : llvm::enumerate(launch.getBuffers()))
                      if (i == launch.getNumInputs())
                        call.what += " -> " + shapeOf(buffer);
                    return call;
                  })
                  .Case<rt::CopyOp>([](rt::CopyOp copy) {
                    return CallInfo{"copy " + shapeOf(copy.getSource()), {}, 2 * bytesOf(copy.getSource()), 0};
                  })
                  .Case<rt::ZeroOp>([](rt::ZeroOp zero) {
                    return CallInfo{"zero " + shapeOf(zero.getTarget()), {}, bytesOf(zero.getTarget()), 0};
                  })
                  .Default([](Operation *) { return std::nullopt; });
  if (!call)
    return call;
  call->node = nameOf(op->getLoc());
  if (auto loop = dyn_cast<rt::RepeatOp>(op->getParentOp())) {
    auto count = static_cast<int64_t>(loop.getCount());
    call->what = std::to_string(count) + " times " + call->what;
    call->bytes *= count;
    call->flops *= count;
  }
  return call;
}

std::vector<BufferInfo> mpt::target::largestBuffers(func::FuncOp function) {
  constexpr size_t most = 5;
  std::vector<BufferInfo> buffers;
  for (auto alloc : function.getOps<rt::AllocOp>())
    buffers.push_back(
        {shapeOf(alloc.getBuffer()), nameOf(alloc.getLoc()), memory::spanBytes(typeOf(alloc.getBuffer()))});
  llvm::sort(buffers, [](const BufferInfo &a, const BufferInfo &b) {
    return std::tie(b.bytes, a.node, a.what) < std::tie(a.bytes, b.node, b.what);
  });
  buffers.resize(std::min(buffers.size(), most));
  return buffers;
}
