// SPDX-License-Identifier: Apache-2.0
// What the names of a file's tensors tell of their origin, where nothing else does.
#ifndef MPT_LIB_IMPORT_EXPORTERNAMES_H
#define MPT_LIB_IMPORT_EXPORTERNAMES_H

#include "llvm/ADT/StringRef.h"

namespace mpt {

/// Whether and how a tool made a value, by its name: the name of an operator, with a number.
enum class Made { No, Somehow, ByMovement };
/// By torch's exporters, or by the operator whose result an optimizer has folded: /block/Transpose_1_output_0. A module
/// may call a parameter head_output_bias.
Made madeByTools(llvm::StringRef name);

/// Tensors that were one have the same name with a number behind it.
llvm::StringRef withoutNumber(llvm::StringRef name);

/// Names that exporters and optimizers give to values that they lift or fold: names of operators, with a number.
bool isGeneratedName(llvm::StringRef name);

/// The last part of a name names arithmetic in a module's code, with a number.
bool isMadeInCode(llvm::StringRef name);

/// Customary names of statistics, rotary tables, schedules of noise and masks.
bool isBufferName(llvm::StringRef name);

/// The frameworks' names of trained tensors are paths, of a model's own tensors ("cls_token") without a dot; the names
/// that their exporters add ("val_3", "onnx::Mul_12") are not. Buffers have paths too.
bool isTorchPath(llvm::StringRef name);

} // namespace mpt

#endif // MPT_LIB_IMPORT_EXPORTERNAMES_H
