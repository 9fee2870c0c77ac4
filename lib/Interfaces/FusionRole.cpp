// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface.
#include "mpt/Interfaces/FusionRole.h"

#include "mpt/Interfaces/FusionRole.cpp.inc"
