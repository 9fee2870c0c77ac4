// SPDX-License-Identifier: Apache-2.0
// Stated gradients where nothing is differentiated: the values alone are left.
#include "Decompositions.h"
#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Lowering/Models/Models.h"

using namespace mlir;
using namespace mpt;

namespace {

struct Cotangent : Decomposable::ExternalModel<Cotangent, CotangentOp> {
  Values decompose(Operation *op, OpBuilder &builder) const {
    return SmallVector<Value>{GraphBuilder(builder, op->getLoc()).splatLike(op->getResult(0), 0.0)};
  }
};

struct CustomGradient : Decomposable::ExternalModel<CustomGradient, CustomGradientOp> {
  Values decompose(Operation *op, OpBuilder &) const {
    return SmallVector<Value>(cast<CustomGradientOp>(op).getValues());
  }
};

} // namespace

void mpt::attachTrainingModels(MLIRContext *context) {
  CotangentOp::attachInterface<Cotangent>(*context);
  CustomGradientOp::attachInterface<CustomGradient>(*context);
}
