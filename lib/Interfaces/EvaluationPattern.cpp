// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface.
#include "mpt/Interfaces/EvaluationPattern.h"

#include "mpt/Interfaces/EvaluationPattern.cpp.inc"
