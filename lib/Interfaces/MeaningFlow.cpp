// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of meanings.
#include "mpt/Interfaces/MeaningFlow.h"

#include "mpt/Interfaces/MeaningFlow.cpp.inc"
