// SPDX-License-Identifier: Apache-2.0
// Methods of OptimizerUpdate.
#include "mpt/Interfaces/OptimizerUpdate.h"

#include "mpt/Interfaces/OptimizerUpdate.cpp.inc"
