// SPDX-License-Identifier: Apache-2.0
// Rules of the optimizers that training graphs of ONNX Runtime have as nodes.
#ifndef MPT_LIB_IMPORT_OPTIMIZER_H
#define MPT_LIB_IMPORT_OPTIMIZER_H

namespace mpt {
class RuleTable;
void addOptimizerRules(RuleTable &table);
} // namespace mpt

#endif // MPT_LIB_IMPORT_OPTIMIZER_H
