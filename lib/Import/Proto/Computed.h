// SPDX-License-Identifier: Apache-2.0
// Tensors that torch's exporter has computed from a module's parameters and written as numbers.
#ifndef MPT_LIB_IMPORT_PROTO_COMPUTED_H
#define MPT_LIB_IMPORT_PROTO_COMPUTED_H

#include "JointRoles.h"

#include "mlir/IR/BuiltinOps.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <map>
#include <optional>
#include <string>

namespace mpt::proto {

/// True where arithmetic on a parameter has made a folded value, not movements and look-ups alone, by the names of all
/// values on the way.
bool isComputedValue(llvm::StringRef name, llvm::ArrayRef<std::string> origins);

/// Values that the exporter has folded, by the parameter of the module that they were made from.
class ComputedTensors {
public:
  /// Reads a graph as it came; without the exporter's signature there is nothing.
  explicit ComputedTensors(const ::onnx::GraphProto &graph);

  /// Undoes functions of one parameter: exp(t) becomes a parameter t and a node. Another tensor that is a parameter
  /// in other places alone is declared as one.
  void unfold(::onnx::ModelProto &model, llvm::StringRef folder, DeclaredParameters &declared,
              mlir::Location loc) const;

  /// Gives layers the biases of the module back that the exporter has dropped since they were zero, and the shifts of
  /// batch norms that it has folded into convolutions.
  void restoreBiases(::onnx::ModelProto &model, DeclaredParameters &declared) const;

  /// Says which parameters do not train since the file has no more than numbers made from them, and which numbers stay
  /// while the parameter that they were made from trains.
  void warn(mlir::ModuleOp module, mlir::Location loc) const;

private:
  bool isFactor(llvm::StringRef origin) const;
  void lookForMerged(const ::onnx::GraphProto &graph);
  bool mayBeMerged(llvm::StringRef parameter) const;

  std::optional<llvm::StringMap<size_t>> parameters; ///< of the module
  llvm::StringSet<> buffers;                         ///< of it
  struct Folded {
    std::string name;
    bool computed; ///< by arithmetic, not by movement alone
    bool alone;    ///< of this parameter, in one step
  };
  llvm::StringSet<> used, tied;   ///< arguments of nodes, and ones that have another name in the file
  llvm::StringSet<> merging;      ///< modules that read a value in the place of another one
  llvm::StringSet<> foldedNorms;  ///< whose scales are in filters
  std::vector<std::string> mixed; ///< values made from a parameter and a buffer
  std::map<std::string, llvm::SmallVector<Folded>> byParameter; ///< in an order that is the same each time
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_COMPUTED_H
