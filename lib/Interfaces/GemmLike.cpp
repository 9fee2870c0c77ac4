// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of matrix multiplications and implicit ones.
#include "mpt/Interfaces/GemmLike.h"

#include "mpt/Interfaces/GemmLike.cpp.inc"
