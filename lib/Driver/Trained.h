// SPDX-License-Identifier: Apache-2.0
// The parameters of a model that train, in one line.
#ifndef MPT_LIB_DRIVER_TRAINED_H
#define MPT_LIB_DRIVER_TRAINED_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

struct Trained {
  int64_t tensors = 0, values = 0;
  std::string line; ///< "trains 12 tensors, 3,456 values; held: rope.inv_freq (feeds an angle)"
};

/// Counts the parameters of an imported module, and says which are held and why, as the manifest's entry `held` has it.
Trained trainedIn(mlir::ModuleOp module);

} // namespace mpt

#endif // MPT_LIB_DRIVER_TRAINED_H
