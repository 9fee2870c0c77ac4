// From a fusion to a kernel: which loops, in which order, which of them in vectors.
#include "mpt/Lowering/Kernel.h"

#include "KernelNest.h"
#include "LoweringModels.h"
#include "Scatter.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mpt;

namespace {

class KernelBuilder : KernelNest {
public:
  KernelBuilder(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs, const KernelTarget &target)
      : KernelNest(fusion, inputs, outputs), target(target) {}

  FailureOr<KernelInfo> build(OpBuilder &builder, StringRef name);

private:
  FailureOr<KernelInfo> buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form);
  void chooseVectors();
  int64_t emitNest(ElementEmitter &e, func::FuncOp function);
  func::FuncOp start(OpBuilder &builder, StringRef name) {
    return makeFunction(builder, name, {builder.getIndexType(), builder.getIndexType()});
  }

  const KernelTarget &target;
  int64_t chunk = 0; ///< elements of the lane group in one unit of work; 0: all
};

} // namespace

void KernelBuilder::chooseVectors() {
  if (lane.empty())
    return;
  int64_t extent = extentOf(lane);
  width = target.lanes();
  while (static_cast<int64_t>(width) > extent)
    width /= 2;
  if (laneInRow)
    return;
  // Enough units to share among threads, each long enough to be worth its start.
  int64_t outer = extentOf(kept) / extent;
  int64_t enough = innerLoops ? std::max<int64_t>(width, 64) : 4096;
  if (outer < 64 && extent > enough)
    chunk = enough;
}

/// Returns the number of units.
int64_t KernelBuilder::emitNest(ElementEmitter &e, func::FuncOp function) {
  Value begin = function.getArguments().drop_back().back(), end = function.getArguments().back();
  SmallVector<int64_t> outer = outerAxes(e);
  int64_t rows = extentOf(outer), lanes = laneKept() ? extentOf(lane) : 1;
  int64_t chunks = chunk ? llvm::divideCeil(lanes, chunk) : 1;
  SmallVector<IndexExpr> at(shape.size());
  e.loop(begin, end, rows * chunks, 1, {}, [&](IndexExpr unit, ValueRange) {
    auto [rowIndex, piece] = e.space.divide(unit, chunks);
    e.spread(rowIndex, shape, outer, at);
    if (!laneKept()) {
      emitRow(e, outputBuffers(function), at, false);
      return SmallVector<Value>();
    }
    Value low = e.indexConstant(0), high = e.indexConstant(lanes);
    if (chunks > 1) {
      low = e.index(e.space.scale(piece, chunk));
      high = arith::MinUIOp::create(e.b, high, arith::AddIOp::create(e.b, low, e.indexConstant(chunk)));
    }
    e.vectorLoop(low, high, lanes, width, [&](IndexExpr position) {
      e.spread(position, shape, lane, at);
      emitRow(e, outputBuffers(function), at, true);
    });
    return SmallVector<Value>();
  });
  return rows * chunks;
}

/// A scatter is a kernel of its own.
FailureOr<KernelInfo> KernelBuilder::buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form) {
  func::FuncOp function = start(builder, name);
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  bind(e, function);
  ArrayRef<BlockArgument> arguments = function.getArguments();
  Value result = yielded().front();
  // Two cache lines of f32 a row keep neighbouring threads apart.
  ScatterUnits units = scatterUnits(form, result, std::max<int64_t>(64, target.lanes()));
  emitScatter(e, form, result, arguments[inputs.size()], arguments.drop_back().back(), arguments.back(), units);
  if (e.failed()) {
    function->erase();
    return failure();
  }
  return KernelInfo{function, units.extent(), 1, {}};
}

FailureOr<KernelInfo> KernelBuilder::build(OpBuilder &builder, StringRef name) {
  if (Operation *op = yielded().empty() ? nullptr : yielded().front().getDefiningOp())
    if (auto form = scatterForm(op); form && outputs.size() == 1)
      return buildScatter(builder, name, *form);
  if (!chooseLane(target))
    return failure();
  chooseVectors();
  func::FuncOp function = start(builder, name);
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  bind(e, function);
  e.laneInReductions = lane.empty() || laneInRow;
  for (Value buffer : outputBuffers(function))
    e.hint(buffer);
  int64_t extent = emitNest(e, function);
  if (e.failed()) {
    function->erase();
    return failure();
  }
  // About 64 Ki elements of traffic a task.
  int64_t work = 0;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      work += type.getNumElements();
  int64_t grain = std::max<int64_t>(1, extent * 65536 / std::max<int64_t>(1, work));
  return KernelInfo{function, extent, std::min(grain, std::max<int64_t>(1, extent)), inPlace};
}

FailureOr<KernelInfo> mpt::emitKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                      ArrayRef<MemRefType> outputs, StringRef name, const KernelTarget &target) {
  return KernelBuilder(fusion, inputs, outputs, target).build(builder, name);
}

void mpt::registerLoopLoweringModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachElementwiseModels(context);
    attachCastModels(context);
    attachShapeModels(context);
    attachReduceModels(context);
    attachPoolModels(context);
    attachScatterModels(context);
    attachDecompositions(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) { attachTrainDecompositions(context); });
}
