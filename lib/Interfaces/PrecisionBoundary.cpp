// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of ops at the edge of the graph.
#include "mpt/Interfaces/PrecisionBoundary.h"

#include "mpt/Interfaces/PrecisionBoundary.cpp.inc"
