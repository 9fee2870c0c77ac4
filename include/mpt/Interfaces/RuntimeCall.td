// SPDX-License-Identifier: Apache-2.0
// The kind of work of a call of the runtime, for reports. Stated in ODS by the ops of the exit dialect.
#ifndef MPT_INTERFACES_RUNTIMECALL_TD
#define MPT_INTERFACES_RUNTIMECALL_TD

include "mlir/IR/OpBase.td"

def RuntimeCall : OpInterface<"RuntimeCall"> {
  let cppNamespace = "::mpt";
  let description = [{
    An op that has the runtime do work on buffers. Which operands it reads and writes it states as memory effects; ops of
    the exit dialect without this interface name memory and cost nothing.
  }];
  let methods = [InterfaceMethod<"What work the call is.", "::mpt::CallKind", "getCallKind">];
}

#endif
