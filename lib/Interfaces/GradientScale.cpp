// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of ops that change loss scales.
#include "mpt/Interfaces/GradientScale.h"

#include "mpt/Interfaces/GradientScale.cpp.inc"
