// SPDX-License-Identifier: Apache-2.0
// What torch's exporter has computed of a module's parameters and written as numbers.
#ifndef MPT_LIB_IMPORT_PROTO_COMPUTED_H
#define MPT_LIB_IMPORT_PROTO_COMPUTED_H

#include "mlir/IR/BuiltinOps.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <optional>
#include <string>

namespace mpt::proto {

/// Values that the exporter has folded, by the parameter of the module that they were made from.
class ComputedTensors {
public:
  /// Reads a graph as it came; without the exporter's signature there is nothing.
  explicit ComputedTensors(const ::onnx::GraphProto &graph);

  /// Says which parameters do not train since the file has no more than numbers made from them, and which numbers stay
  /// while the parameter that they were made from trains.
  void warn(mlir::ModuleOp module, mlir::Location loc) const;

private:
  struct Folded {
    std::string name;
    bool computed; ///< by arithmetic, not by movement alone
  };
  std::map<std::string, llvm::SmallVector<Folded>> byParameter; ///< in an order that is the same each time
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_COMPUTED_H
