// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of multiples.
#include "mpt/Interfaces/Linearity.h"

#include "mpt/Interfaces/Linearity.cpp.inc"
