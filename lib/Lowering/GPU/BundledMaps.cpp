// SPDX-License-Identifier: Apache-2.0
// Schedule: elementwise arithmetic on many tensors in one launch. From the choice of the tensor on, this is the
// pointwise schedule on flat memory.
#include "Bundle.h"
#include "Schedules.h"

#include "mpt/Lowering/GPU/Waves.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kMostVectors = 6; ///< of elements that a thread makes

class BundledMaps : public GpuSchedule {
public:
  BundledMaps() : GpuSchedule("bundle") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    if (!kernel.reductions.empty())
      return refuse(kernel, "expected no reduction");
    StringRef reason;
    bundle = Bundle::find(kernel, /*sums=*/false, reason);
    return bundle ? success() : refuse(kernel, reason);
  }
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  unsigned widthOf(GpuKernelBuilder &part) const;
  int64_t vectorsFor(const DeviceDescription &device, unsigned width);
  void emitBlock(GpuKernelBuilder &kernel, GpuKernelBuilder &part, Frame &frame, unsigned vector);
  void emitVectors(GpuKernelBuilder &part, Frame &frame, ValueRange written, Value own, Value count, unsigned vector);
  void markInPlace(GpuKernelBuilder &kernel, GpuKernelBuilder &part);

  std::optional<Bundle> bundle;
  int64_t vectors = 1; ///< of elements that a thread makes
};

} // namespace

unsigned BundledMaps::widthOf(GpuKernelBuilder &part) const {
  SmallVector<int64_t> bytes;
  for (MemRefType type : llvm::concat<const MemRefType>(bundle->inputs, bundle->outputs))
    if (bundle->isFull(type))
      bytes.push_back(ceilDiv(type.getElementTypeBitWidth(), 8));
  return part.vectorWidth(0, bytes);
}

/// As many as make the last wave of blocks a full one.
int64_t BundledMaps::vectorsFor(const DeviceDescription &device, unsigned width) {
  const double own = 1.0 / width; // a block's beginning, in vectors: some 40 instructions beside 60 an element
  int64_t best = 1;
  double least = INFINITY;
  for (int64_t count = kMostVectors; count >= 1; --count) {
    int64_t blocks = bundle->share(Bundle::kThreads * count * width);
    double time = timeOfWaves(device, blocks, static_cast<double>(count) + own, {1, 2, 3});
    if (!isMuchLess(time, least))
      continue;
    least = time;
    best = count;
  }
  return best;
}

/// A thread's vectors of the tensor that its block works on, of `count` elements; `own`: the block's number there.
void BundledMaps::emitVectors(GpuKernelBuilder &part, Frame &frame, ValueRange written, Value own, Value count,
                              unsigned vector) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  auto store = [&](const IndexExpr &at) { part.storeOutputs(e, written, {at}, /*rowLevel=*/false); };
  e.loop(e.indexConstant(0), e.indexConstant(vectors), vectors, 1, {}, [&](const IndexExpr &k, ValueRange) {
    Value turn = arith::AddIOp::create(b, arith::MulIOp::create(b, own, e.indexConstant(vectors)), e.index(k));
    Value number =
        arith::AddIOp::create(b, arith::MulIOp::create(b, turn, e.indexConstant(Bundle::kThreads)), frame.thread);
    Value at = arith::MulIOp::create(b, number, e.indexConstant(vector));
    Value behind = arith::AddIOp::create(b, at, e.indexConstant(vector));
    Value whole = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, behind, count);
    e.guarded(whole, [&] { store(e.variable(at, bundle->longest, vector)); });
    if (vector > 1) {
      // The tensor's last elements, fewer than a vector.
      Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, at, count);
      Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, behind, count);
      e.guarded(arith::AndIOp::create(b, some, more), [&] {
        e.loop(at, count, bundle->longest, 1, {}, [&](const IndexExpr &i, ValueRange) {
          store(i);
          return SmallVector<Value>();
        });
      });
    }
    return SmallVector<Value>();
  });
}

void BundledMaps::emitBlock(GpuKernelBuilder &kernel, GpuKernelBuilder &part, Frame &frame, unsigned vector) {
  ElementEmitter &e = frame.e;
  size_t all = bundle->inputs.size() + bundle->outputs.size();
  SmallVector<Value> chosen = bundle->choose(
      e, frame.block, frame.function.getArguments(), 0, all, [](const BundleMember &m) { return m.start; },
      [](const BundleMember &m) { return SmallVector<int64_t>{m.start, m.count}; });
  SmallVector<Value> buffers(ArrayRef<Value>(chosen).take_front(all));
  for (auto [buffer, alignment] : llvm::zip_equal(buffers, bundle->alignments))
    e.alignments[buffer] = alignment;
  for (auto [argument, buffer] : llvm::zip(bundle->body().getArguments(), buffers))
    e.bind(argument, buffer);
  Value start = chosen[all], count = chosen[all + 1];
  ValueRange written = ValueRange(buffers).drop_front(bundle->inputs.size());
  Value own = arith::SubIOp::create(e.b, frame.block, start);
  emitVectors(part, frame, written, own, count, vector);
}

void BundledMaps::markInPlace(GpuKernelBuilder &kernel, GpuKernelBuilder &part) {
  SmallVector<int64_t> pairs;
  size_t numInputs = kernel.inputs.size();
  for (auto [k, argument] : llvm::enumerate(bundle->body().getArguments())) {
    if (!bundle->isFull(bundle->inputs[k]) || !part.feedsAtOwnIndex(argument, /*reductionsToo=*/false))
      continue;
    for (const BundleMember &member : bundle->members)
      for (unsigned o : member.outputs)
        if (unsigned i = member.inputs[k];
            kernel.inputs[i] == kernel.outputs[o] && kernel.alignmentOf(i) >= kernel.alignmentOf(numInputs + o))
          pairs.append({i, static_cast<int64_t>(numInputs) + o});
  }
  setAttr<MPTDialect::InPlaceAttrHelper>(kernel.info.launches.front().function,
                                         kernel.builder.getDenseI64ArrayAttr(pairs));
}

void BundledMaps::emit(GpuKernelBuilder &kernel) {
  GpuKernelBuilder part(kernel.builder, bundle->fusion(), bundle->inputs, bundle->outputs, kernel.name, kernel.device,
                        bundle->alignments);
  if (failed(part.findLane()))
    return kernel.fail();
  unsigned vector = widthOf(part);
  vectors = vectorsFor(kernel.device, vector);
  int64_t blocks = bundle->share(Bundle::kThreads * vectors * vector);
  kernel.launch("bundle", {blocks, 1, 1}, Bundle::kThreads,
                [&](Frame &frame) { emitBlock(kernel, part, frame, vector); });
  markInPlace(kernel, part);
}

std::unique_ptr<GpuSchedule> mpt::makeBundledMapsSchedule() { return std::make_unique<BundledMaps>(); }
