// SPDX-License-Identifier: Apache-2.0
// Rules of the operators that files train by.
#ifndef MPT_LIB_IMPORT_TRAINING_H
#define MPT_LIB_IMPORT_TRAINING_H

namespace mpt {

class RuleTable;

/// Operators of ai.onnx.preview.training, and ours by which a model states gradients.
void addTrainingRules(RuleTable &table);

} // namespace mpt

#endif // MPT_LIB_IMPORT_TRAINING_H
