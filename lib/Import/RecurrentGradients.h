// SPDX-License-Identifier: Apache-2.0
// Rules of the gradient operators of recurrent layers.
#ifndef MPT_LIB_IMPORT_RECURRENTGRADIENTS_H
#define MPT_LIB_IMPORT_RECURRENTGRADIENTS_H

namespace mpt {
class RuleTable;
void registerRecurrentGradients(RuleTable &table);
} // namespace mpt

#endif // MPT_LIB_IMPORT_RECURRENTGRADIENTS_H
