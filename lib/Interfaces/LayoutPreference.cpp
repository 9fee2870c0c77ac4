// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of layouts.
#include "mpt/Interfaces/LayoutPreference.h"

#include "mpt/Interfaces/LayoutPreference.cpp.inc"
