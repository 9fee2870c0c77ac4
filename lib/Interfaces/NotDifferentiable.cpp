// SPDX-License-Identifier: Apache-2.0
// Generated methods of the marker interface.
#include "mpt/Interfaces/NotDifferentiable.h"

#include "mpt/Interfaces/NotDifferentiable.cpp.inc"
