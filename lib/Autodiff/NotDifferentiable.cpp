// SPDX-License-Identifier: Apache-2.0
// Ops that have no gradient rule on purpose, and why.
#include "mpt/Interfaces/NotDifferentiable.h"
#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Dialect/MPT/UpdateOps.h"

#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

enum class Reason { Discrete, NoInput, Update, Kernel, Placeholder };

llvm::StringRef text(Reason reason) {
  switch (reason) {
  case Reason::Discrete:
    return "discrete results";
  case Reason::NoInput:
    return "no float inputs";
  case Reason::Update:
    return "runs after the gradients";
  case Reason::Kernel:
    return "formed after differentiation";
  case Reason::Placeholder:
    return "stands for a gradient";
  }
  llvm_unreachable("unknown reason");
}

template <Reason reason, typename Op> struct Marker : NotDifferentiable::ExternalModel<Marker<reason, Op>, Op> {
  llvm::StringRef whyNotDifferentiable(Operation *) const { return text(reason); }
};

template <Reason reason, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Marker<reason, Ops>>(*context), ...);
}

} // namespace

void mpt::attachNotDifferentiable(MLIRContext *context) {
  attach<Reason::Discrete, NotOp, AndOp, OrOp, XorOp, IsNaNOp, IsInfOp, IsFiniteOp, CompareOp, ArgReduceOp,
         BucketizeOp>(context);
  attach<Reason::NoInput, ConstantOp, IotaOp, RandomUniformOp>(context);
  attach<Reason::Update, SGDOp, AdamOp, AdagradOp, MomentumOp, AdamHatOp, RMSPropOp, LionOp, LAMBOp, LARSOp,
         AdafactorOp, EncodeBlocksOp, DecodeBlocksOp>(context);
  attach<Reason::Kernel, FusionOp>(context);
  attach<Reason::Placeholder, CotangentOp>(context);
}
