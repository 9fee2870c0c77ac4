// SPDX-License-Identifier: Apache-2.0
// What a file says of its tensors: the exporter's declarations, and the roles of a joint graph's outputs.
#ifndef MPT_LIB_IMPORT_PROTO_JOINTROLES_H
#define MPT_LIB_IMPORT_PROTO_JOINTROLES_H

#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Import/TrainingForm.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace mpt::proto {

using Declared = mpt::onnx::Declared;
using DeclaredParameters = llvm::StringMap<Declared>;

/// The roles of outputs of a joint graph that a file brings, by name.
struct JointRoles {
  bool any() const { return !gradients.empty() || !next.empty() || !optimizer.empty(); }

  std::string loss;
  llvm::StringMap<std::string> gradients, next; ///< output -> initializer
  std::string seed;                             ///< the value that the backward pass starts from, where it is known
  bool seedIsNamed = false;                     ///< by the user
  std::string optimizer;                        ///< the update where it is an optimizer: --optimizer's text
  std::string rate;                             ///< the value that is the learning rate then
  double clipNorm = 0.0;                        ///< the norm that it clips gradients to; 0: it does not
  llvm::StringSet<> zeros;                      ///< inputs that become states, whose values no file has
  bool updates = false;                         ///< new values of parameters are among the outputs
  bool derived = false;                         ///< the backward pass of the file is not used
  TrainingForm form;
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_JOINTROLES_H
