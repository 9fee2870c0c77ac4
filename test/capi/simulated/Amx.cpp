// SPDX-License-Identifier: Apache-2.0
// A processor without matrix tiles, so that the simulated kernels compute what tiles would.
#include "cpu/Amx.h"

bool mpt::rt::hasAmx() { return false; }
