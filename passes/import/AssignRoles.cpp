// SPDX-License-Identifier: Apache-2.0
// --import-assign-roles: which tensors of a file train.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Import/Roles.h"
#include "passes/import/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_ASSIGNROLES
#include "passes/import/Passes.h.inc"
} // namespace mpt

namespace {
struct AssignRoles : mpt::impl::AssignRolesBase<AssignRoles> {
  using AssignRolesBase::AssignRolesBase;
  void runOnOperation() override {
    if (failed(mpt::assignRoles(getOperation(), {train, freeze})))
      signalPassFailure();
  }
};
} // namespace
