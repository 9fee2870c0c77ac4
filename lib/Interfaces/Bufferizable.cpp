// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interfaces of bufferization.
#include "mpt/Interfaces/Bufferizable.h"

#include "mpt/Interfaces/Bufferizable.cpp.inc"
