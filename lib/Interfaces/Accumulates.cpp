// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of ops with a running value.
#include "mpt/Interfaces/Accumulates.h"

#include "mpt/Interfaces/Accumulates.cpp.inc"
