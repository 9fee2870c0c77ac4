// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of runtime calls.
#include "mpt/Interfaces/RuntimeCall.h"

#include "mpt/Interfaces/RuntimeCall.cpp.inc"
