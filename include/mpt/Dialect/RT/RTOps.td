// SPDX-License-Identifier: Apache-2.0
// Exit dialect: one op per runtime function of mpt-c/abi.h, on buffers.
#ifndef MPT_DIALECT_RT_RTOPS_TD
#define MPT_DIALECT_RT_RTOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mpt/Dialect/Library/LibraryBase.td"
include "mpt/Dialect/RT/RTEnums.td"
include "mpt/Interfaces/RuntimeCall.td"

def RT_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::mpt::rt";
  let summary = "calls of the runtime on planned buffers";
  let description = [{
    Operands are statically shaped memrefs with static strides; a buffer's physical order (channels-last, transposed views,
    slices of a larger buffer) is in its strides alone. All decisions are made before this dialect; code generation prints
    it. Every call states which operands it reads and writes as memory effects, and what work it is (`RuntimeCall`).

    | attribute | on | says |
    |---|---|---|
    | `rt.indices` | argument | what its elements may be: one `#rt.index_check` each, looked at before the function starts |
  }];
  let useDefaultAttributePrinterParser = 1;
  let discardableAttrs = (ins "::mlir::ArrayAttr":$indices);
}

class RT_Op<string mnemonic, list<Trait> traits = []> : Op<RT_Dialect, mnemonic, traits>;
class RT_Call<string mnemonic, string kind, list<Trait> traits = []> : RT_Op<mnemonic, [RuntimeCall] # traits> {
  code callKind = "::mpt::CallKind getCallKind() { return ::mpt::CallKind::" # kind # "; }\n";
  let extraClassDeclaration = callKind;
}
defvar RT_Read = Arg<AnyStridedMemRef, "", [MemRead]>;
defvar RT_Written = Arg<AnyStridedMemRef, "", [MemWrite]>;
defvar RT_MaybeRead = Arg<Optional<AnyStridedMemRef>, "", [MemRead]>;

def RT_IndexCheckAttr : AttrDef<RT_Dialect, "IndexCheck"> {
  let mnemonic = "index_check";
  let summary = "elements of an argument that have to lie in one of some ranges";
  let description = [{
    The elements form a box: `offset` plus a multiple below `shape` of each of `strides`, in the argument's row-major elements.
    `ranges` are pairs of a lowest and a highest value. `node` is the ONNX node that takes the elements as indices.

    ```mlir
    #rt.index_check<node = "loss", offset = 0, shape = array<i64: 8>, strides = array<i64: 1>, ranges = array<i64: 0, 9>>
    ```
  }];
  let parameters = (ins "::mlir::StringAttr":$node, "int64_t":$offset, "::mlir::DenseI64ArrayAttr":$shape,
    "::mlir::DenseI64ArrayAttr":$strides, "::mlir::DenseI64ArrayAttr":$ranges);
  let assemblyFormat = "`<` struct(params) `>`";
}
def RT_ConvKindAttr : EnumAttr<RT_Dialect, RT_ConvKind, "conv_kind">;

def RT_StateOp : RT_Op<"state", [Pure]> {
  let summary = "dense row-major buffer of a state tensor, in the persistent block";
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs AnyStridedMemRef:$buffer);
  let assemblyFormat = "$state attr-dict `:` type($buffer)";
}
def RT_ConstantOp : RT_Op<"constant", [Pure]> {
  let summary = "read-only buffer with the bytes of a constant";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs AnyStridedMemRef:$buffer);
  let assemblyFormat = "$value attr-dict `:` type($buffer)";
}
def RT_AllocOp : RT_Op<"alloc", [MemoryEffects<[MemAlloc]>]> {
  let summary = "scratch that lives from here to its last use; `offset` (bytes in the arena, multiple of 64) once planned";
  let arguments = (ins OptionalAttr<I64Attr>:$offset);
  let results = (outs AnyStridedMemRef:$buffer);
  let assemblyFormat = "(`at` $offset^)? attr-dict `:` type($buffer)";
}
def RT_ViewOp : RT_Op<"view", [Pure]> {
  let summary = "another shape and strides on a buffer's elements, `offset` elements from its start";
  let arguments = (ins AnyStridedMemRef:$source, I64Attr:$offset);
  let results = (outs AnyStridedMemRef:$view);
  let assemblyFormat = "$source `[` $offset `]` attr-dict `:` type($source) `to` type($view)";
}
def RT_LaunchOp : RT_Call<"launch", "Kernel", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "runs kernel `callee` over [0, extent), in chunks of `grain`, across threads (mpt_rt_parallel)";
  let description = [{
    `callee` is a func.func of the buffers' types followed by two index arguments, begin and end. The first `num_inputs`
    buffers are read, the others written (an in-place kernel names a buffer twice). `infinite`: the kernel reads a constant
    with infinities, so its results may hold some on purpose.
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyStridedMemRef>:$buffers, I64Attr:$num_inputs, I64Attr:$extent,
    I64Attr:$grain, UnitAttr:$infinite);
  let assemblyFormat = "$callee `(` $buffers `)` attr-dict `:` type($buffers)";
}
def RT_GemmOp : RT_Call<"gemm", "Gemm", [AttrSizedOperandSegments]> {
  let summary = "d = epilogue(alpha a b), over up to two leading batch dimensions (mpt_rt_gemm)";
  let description = [{
    What `library.gemm` computes, with both matrices as they are multiplied: a [.., m, k], b [.., k, n], bias? [n], d [.., m, n];
    a transposed operand is one with its strides swapped. `scale` (on the CPU) and the two `operand_scales` (on a device) are
    FP32 scalars in memory.

    `aux` and `sums`, on a device alone, are dense: `aux` is written where the epilogue keeps the activation's operand, and read
    where it is a gradient; `sums` is written.
  }];
  let arguments = (ins RT_Read:$a, RT_Read:$b, RT_MaybeRead:$bias,
    Arg<Variadic<AnyStridedMemRef>, "", [MemRead]>:$operand_scales, RT_MaybeRead:$scale,
    Arg<Optional<AnyStridedMemRef>, "", [MemRead, MemWrite]>:$aux,
    Arg<Optional<AnyStridedMemRef>, "", [MemWrite]>:$sums, RT_Written:$d, OptionalAttr<Library_EpilogueAttr>:$epilogue,
    DefaultValuedAttr<F64Attr, "1.0">:$alpha, OptionalAttr<TypeAttr>:$read_as);
  let assemblyFormat = [{
    $a `,` $b (`bias` $bias^ `:` type($bias))? (`operand_scales` $operand_scales^ `:` type($operand_scales))?
    (`scale` $scale^ `:` type($scale))? (`aux` $aux^ `:` type($aux))? (`sums` $sums^ `:` type($sums))? `into` $d attr-dict
    `:` type($a) `,` type($b) `,` type($d)
  }];
  let extraClassDeclaration = callKind # [{
    /// The epilogue, also where none is given.
    ::mpt::library::EpilogueAttr getForm() {
      return getEpilogueAttr() ? getEpilogueAttr() : ::mpt::library::EpilogueAttr::none(getContext());
    }
  }];
}
def RT_ConvOp : RT_Call<"conv", "Convolution", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "convolution: forward, backward data or backward weights (mpt_rt_conv)";
  let description = [{
    x and y are N, C, S... with channels-last strides; w is dense. `kind` says which of them is written.

    `sums` (forward, on a device alone) is FP32 [2, channels of y]: sums of y's elements and of their squares by channel where
    the library gathers them on the way, else NaN.

    `norm` (backward data, with `sums`, on a device alone) is input, mean, 1/deviation, scale and shift of the batch norm
    whose result, through a ReLU, is the convolution's operand: with n = (input - mean) / deviation and g = x where
    n * scale + shift > 0, else 0, `sums` is FP32 [2, channels of x], the sums of g and of g * n by channel, or NaN; and
    the library may leave g in x.
  }];
  let arguments = (ins RT_ConvKindAttr:$kind, AnyStridedMemRef:$x, AnyStridedMemRef:$w, AnyStridedMemRef:$y,
    Optional<AnyStridedMemRef>:$workspace, Optional<AnyStridedMemRef>:$sums, Variadic<AnyStridedMemRef>:$norm,
    DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low, DenseI64ArrayAttr:$pads_high,
    I64Attr:$groups);
  let extraClassDeclaration = callKind # [{
    /// The operand that `kind` makes.
    ::mlir::OpOperand &getMade();
  }];
  let assemblyFormat = "$kind $x `,` $w `,` $y (`workspace` $workspace^ `:` type($workspace))? (`sums` $sums^ `:` type($sums))? (`norm` $norm^ `:` type($norm))? attr-dict `:` type($x) `,` type($w) `,` type($y)";
}
def RT_AttentionOp : RT_Call<"attention", "Attention", [AttrSizedOperandSegments]> {
  let summary = "o = dropout(softmax(scale q k^T + bias)) v by batch and head, on a device (mpt_cuda_attention)";
  let description = [{
    q [batch, heads, queries, depth], k [batch, kv heads, keys, depth], v [batch, kv heads, keys, value depth],
    o [batch, heads, queries, value depth], of FP16 or BF16, contiguous along the last dimension. bias, where there is one,
    has q's batch, heads, queries and keys with strides of 0 where it repeats. `causal`: query i sees keys 0 to i.
    stats, FP32 [batch, heads, queries], becomes each row's log of the sum of exponentials. Scores, probabilities and sums
    are FP32 or, where the library's GEMMs need it, probabilities of q's type. `key`, i64 [2], where there is one: probabilities go
    through mpt.dropout with it, `ratio` and `stream` (mpt_cuda_attention_dropout).
  }];
  let arguments = (ins RT_Read:$q, RT_Read:$k, RT_Read:$v, RT_MaybeRead:$bias, RT_MaybeRead:$key, RT_Written:$o,
    RT_Written:$stats, F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$ratio,
    DefaultValuedAttr<I64Attr, "0">:$stream);
  let assemblyFormat = "$q `,` $k `,` $v (`bias` $bias^ `:` type($bias))? (`dropout` $key^ `:` type($key))? `into` $o `,` $stats attr-dict `:` type($q) `,` type($k) `,` type($v) `into` type($o) `,` type($stats)";
}
def RT_AttentionGradientOp : RT_Call<"attention_gradient", "Attention", [AttrSizedOperandSegments]> {
  let summary = "gradients of rt.attention's q, k and v from that of o (mpt_cuda_attention_gradient)";
  let description = [{
    Shapes are those of rt.attention; d_o is like o, dq, dk and dv like q, k and v. The bias gets no gradient.
  }];
  let arguments = (ins RT_Read:$q, RT_Read:$k, RT_Read:$v, RT_MaybeRead:$bias, RT_MaybeRead:$key, RT_Read:$o, RT_Read:$stats,
    RT_Read:$d_o, RT_Written:$dq, RT_Written:$dk, RT_Written:$dv, F64Attr:$scale, UnitAttr:$causal,
    DefaultValuedAttr<F64Attr, "0.0">:$ratio, DefaultValuedAttr<I64Attr, "0">:$stream);
  let assemblyFormat = "$q `,` $k `,` $v (`bias` $bias^ `:` type($bias))? (`dropout` $key^ `:` type($key))? `of` $o `,` $stats `from` $d_o `into` $dq `,` $dk `,` $dv attr-dict `:` type($q) `,` type($k) `,` type($v) `of` type($o) `,` type($stats) `from` type($d_o) `into` type($dq) `,` type($dk) `,` type($dv)";
}
def RT_RecurrenceOp : RT_Call<"recurrence", "Recurrence", [AttrSizedOperandSegments]> {
  let summary = "mpt.recurrence, or with `backward` mpt.recurrence_backward, on the host (mpt_rt_recurrence)";
  let description = [{
    `inputs` and `outputs` are those of the op on tensors, in its order and dense; `workspace` is scratch of as many bytes as
    mpt_recurrence_workspace says.
  }];
  let arguments = (ins MPT_RecurrentCellAttr:$cell, Arg<Variadic<AnyStridedMemRef>, "", [MemRead]>:$inputs,
    Arg<Variadic<AnyStridedMemRef>, "", [MemWrite]>:$outputs, RT_Written:$workspace, UnitAttr:$reverse, UnitAttr:$backward);
  let assemblyFormat = "$cell $inputs `into` $outputs `workspace` $workspace attr-dict `:` type($inputs) `into` type($outputs) `workspace` type($workspace)";
}
def RT_RepeatOp : RT_Call<"repeat", "Recurrence", [IsolatedFromAbove, NoTerminator, SingleBlock,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "its body's calls, `count` times, on buffers that move on";
  let description = [{
    The body's arguments are the buffers as the first pass sees them; in pass i each begins i * advance elements further on
    (advances may be negative). What the body reads and writes, the op does.

    C1: `count` is at least 1. C2: an argument of the body and an advance a buffer, of its element type.

    ```mlir
    rt.repeat 7 times (%sums, %y) advancing [0, 512] : memref<1x512xf32>, memref<1x512xf32> {
    ^bb0(%s: memref<1x512xf32>, %step: memref<1x512xf32>):
      rt.launch @kernel(%s, %step) {extent = 1 : i64, grain = 1 : i64, num_inputs = 1 : i64} : memref<1x512xf32>, memref<1x512xf32>
    }
    ```
  }];
  let arguments = (ins I64Attr:$count, Variadic<AnyStridedMemRef>:$buffers, DenseI64ArrayAttr:$advances);
  let regions = (region SizedRegion<1>:$body);
  let hasVerifier = 1;
  let assemblyFormat = "$count `times` `(` $buffers `)` `advancing` $advances attr-dict `:` type($buffers) $body";
  let extraClassDeclaration = callKind # [{
    /// The buffer whose places the body's `argument` shows, and how far it moves on, in elements.
    ::mlir::Value getBuffer(::mlir::BlockArgument argument) { return getBuffers()[argument.getArgNumber()]; }
    int64_t getAdvance(::mlir::BlockArgument argument) { return getAdvances()[argument.getArgNumber()]; }
  }];
}
def RT_CopyOp : RT_Call<"copy", "Copy"> {
  let summary = "dense copy of bytes";
  let arguments = (ins RT_Read:$source, RT_Written:$target);
  let assemblyFormat = "$source `to` $target attr-dict `:` type($source) `,` type($target)";
}
def RT_ZeroOp : RT_Call<"zero", "Fill"> {
  let summary = "sets every byte of a dense buffer to 0";
  let arguments = (ins RT_Written:$target);
  let assemblyFormat = "$target attr-dict `:` type($target)";
}

#endif
