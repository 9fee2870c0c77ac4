// SPDX-License-Identifier: Apache-2.0
// The roles of operands of a file's nodes in training, before its functions are inlined.
#ifndef MPT_LIB_IMPORT_PROTO_OPERANDUSES_H
#define MPT_LIB_IMPORT_PROTO_OPERANDUSES_H

#include "mpt/Import/Import.h"

#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringMap.h"

namespace mpt::proto {

/// Answers for nodes as the entries of import rules do, and for calls of the file's functions as the nodes in these.
class OperandUses {
public:
  explicit OperandUses(const ::onnx::ModelProto &model);

  bool mayTrain(const ::onnx::NodeProto &node, int operand) { return any(node, operand, mpt::mayTrain); }
  bool isWeight(const ::onnx::NodeProto &node, int operand) { return any(node, operand, isWeightOperand); }
  bool isFunction(const ::onnx::NodeProto &node, int operand) { return any(node, operand, mpt::isFunction); }
  /// True where a sum of products reads the operand.
  bool contracts(const ::onnx::NodeProto &node, int operand) {
    return any(node, operand,
               [](llvm::StringRef domain, llvm::StringRef opType, unsigned) { return mpt::contracts(domain, opType); });
  }

private:
  struct Reader {
    const ::onnx::NodeProto *node;
    int operand;
  };
  bool any(const ::onnx::NodeProto &node, int operand, bool (*is)(llvm::StringRef, llvm::StringRef, unsigned));
  llvm::SmallVector<Reader> readersOf(const ::onnx::NodeProto &node, int operand);

  llvm::StringMap<const ::onnx::FunctionProto *> functions; ///< by domain and name
  llvm::StringMap<llvm::SmallVector<Reader>> known;         ///< by function and operand
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_OPERANDUSES_H
