// SPDX-License-Identifier: Apache-2.0
// Attaches all families' forms on buffers to their dialects.
#include "Models.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Memory/Bufferize.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

void mpt::memory::registerMemoryModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachConstantModel(context);
    attachShapeModels(context);
    attachFusionModel(context);
    attachRecurrentModels(context);
    attachAlignmentModels(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) { attachStateModels(context); });
  registry.addExtension(+[](MLIRContext *context, func::FuncDialect *) { attachReturnModel(context); });
  registry.addExtension(+[](MLIRContext *context, library::LibraryDialect *) {
    attachGemmModel(context);
    attachConvModel(context);
    attachAttentionModels(context);
  });
}
