// SPDX-License-Identifier: Apache-2.0
// Parts of a training step. Apart from TrainBase.td because few files use them.
#ifndef MPT_DIALECT_TRAIN_TRAININGPARTS_TD
#define MPT_DIALECT_TRAIN_TRAININGPARTS_TD

include "mlir/IR/EnumAttr.td"

def Train_Part : I32EnumAttr<"TrainingPart", "part of a training step; later parts read values of earlier ones", [
  I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"backward", 1>, I32EnumAttrCase<"update", 2>]> {
  let cppNamespace = "::mpt";
  let genSpecializedAttr = 0;
}

#endif
