// SPDX-License-Identifier: Apache-2.0
// Registration of the dist dialect.
#include "mpt/Dialect/Dist/DistDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mpt::dist;

#include "mpt/Dialect/Dist/DistDialect.cpp.inc"

void DistDialect::initialize() {}
