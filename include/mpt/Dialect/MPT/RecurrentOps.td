// SPDX-License-Identifier: Apache-2.0
// Recurrent family: the recurrences of RNN, LSTM and GRU, with FP32 gates and cell state, and their gradients.
#ifndef MPT_DIALECT_MPT_RECURRENTOPS_TD
#define MPT_DIALECT_MPT_RECURRENTOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

// `wideOperands` and `wideResults` are conditions on `index`: which operands and results are wide depends on the cell.
class MPT_RecurrentOp<string mnemonic, string wideOperands, string wideResults>
    : Op<MPT_Dialect, mnemonic, [Pure, PrecisionSemantics, InferTypeOpAdaptorWithIsCompatible, Decomposable]> {
  let extraClassDeclaration = "::mpt::NumericClass getNumericClass() { return ::mpt::NumericClass::Contraction; }\n"
    # "bool isWideOperand(unsigned index) { return " # wideOperands # "; }\n"
    # "bool isWideResult(unsigned index) { return " # wideResults # "; }\n"
    # "bool needsUniformType() { return false; }\n" # [{
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>> decompose(::mlir::OpBuilder &builder);
  }];
  let assemblyFormat = "$cell operands attr-dict `:` functional-type(operands, results)";
}

def MPT_RecurrenceOp : MPT_RecurrentOp<"recurrence", "index == 3", "index == 2"> {
  let summary = "the steps of a recurrent layer in one direction, behind the GEMM of its inputs";
  let description = [{
    `x` [steps, batch, G hidden] holds each step's input times its weights, with all biases that are added there; `r`
    [G hidden, hidden] are the recurrent weights, `h0` [batch, hidden] is the state before the first step. `y` [steps, batch,
    hidden] are the states. `reverse` runs from the last step to the first. Gates lie side by side in the order of ONNX:

    | cell | G | `more` | `saved` |
    |---|---|---|---|
    | lstm (i, o, f, c) | 4 | c0 [batch, hidden] | gates [steps, batch, 4 hidden], cell states [steps, batch, hidden] |
    | gru (z, r, h), reset after the GEMM; without `more`, before it | 3 | bias [hidden] of the part that r multiplies | z, r, h and that part [steps, batch, 4 hidden]; before it, z, r, h [steps, batch, 3 hidden] and r * state [steps, batch, hidden] |
    | tanh, relu | 1 | | |

    Saved gates are those after their activation. Gates, the cell state, sums, and the state of a GRU between its steps are FP32
    or wider; GEMM operands have the types of `r` and `y`. Formulas: ONNX's LSTM, GRU (linear_before_reset = 1 and 0) and RNN, with
    their default activations.

    C1: x has rank 3. C2: its last extent is G hidden. C3: r is [G hidden, hidden]. C4: h0 is [batch, hidden]. C5: `more` and
    `saved` are those of the table.
  }];
  let arguments = (ins MPT_RecurrentCellAttr:$cell, MPT_Float:$x, MPT_Float:$r, MPT_Float:$h0, Variadic<MPT_Float>:$more,
    UnitAttr:$reverse);
  let results = (outs MPT_Float:$y, Variadic<MPT_Float>:$saved);
}
def MPT_RecurrenceBackwardOp : MPT_RecurrentOp<"recurrence_backward",
    "index >= 5", "index == 2 && getCell() == ::mpt::RecurrentCell::lstm"> {
  let summary = "gradients of recurrence's operands but the weights, from its saved gates";
  let description = [{
    `dy` is the gradient of y; r, h0 and y are those of `recurrence`. Gradients of the weights are GEMMs over all steps:
    dr = sum over steps of transposed d * the state before the step, d being what dx holds; GRU's last part has its third result or r * state.

    | cell | `more` | results |
    |---|---|---|
    | lstm | gates, cell states, c0, and where gradient arrives there that of the cell states | dx, dh0, dc0 |
    | gru | gates (3 hidden: reset before the GEMM) | dx, dh0, gradient of the part that r multiplies [steps, batch, hidden] (not before it) |
    | tanh, relu | | dx, dh0 |

    C1: dy has rank 3 and y's shape. C2: h0 is [batch, hidden]. C3: r is [G hidden, hidden]. C4: `more` are those of the table.
  }];
  let arguments = (ins MPT_RecurrentCellAttr:$cell, MPT_Float:$dy, MPT_Float:$r, MPT_Float:$h0, MPT_Float:$y,
    Variadic<MPT_Float>:$more, UnitAttr:$reverse);
  let results = (outs MPT_Float:$dx, MPT_Float:$dh0, Variadic<MPT_Float>:$others);
}

#endif
