// SPDX-License-Identifier: Apache-2.0
// Rules of the operators that only ONNX Runtime's training artifacts have.
#ifndef MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H
#define MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H

namespace mpt {
class RuleTable;
void registerRuntimeGradients(RuleTable &table);
} // namespace mpt

#endif // MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H
