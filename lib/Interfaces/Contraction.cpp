// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of contractions.
#include "mpt/Interfaces/Contraction.h"

#include "mpt/Interfaces/Contraction.cpp.inc"
