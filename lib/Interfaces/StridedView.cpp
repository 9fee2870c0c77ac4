// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface of views.
#include "mpt/Interfaces/StridedView.h"

#include "mpt/Interfaces/StridedView.cpp.inc"
