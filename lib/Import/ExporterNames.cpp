// SPDX-License-Identifier: Apache-2.0
// Names of tensors as exporters and optimizers write them: of modules' paths, of operators, of buffers.
#include "ExporterNames.h"

#include "mpt/Import/Import.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace mpt;

/// By torch's exporters, of values that they lift or fold.
static Made madeByTorch(StringRef name) {
  name = name.rtrim("0123456789");
  while (name.consume_back("_cast") || name.consume_back("_default") || name.consume_back("_"))
    name = name.rtrim("0123456789");
  return llvm::StringSwitch<Made>(name)
      .Cases({"", "val", "lifted_tensor", "c_lifted_tensor", "_tensor_constant", "tensor_constant", "constant"},
             Made::Somehow)
      .Cases({"scalar_tensor", "min_val", "max_val", "convert_element_type", "arange", "full", "full_like", "zeros"},
             Made::Somehow)
      .Cases({"ones", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like"},
             Made::Somehow)
      .Cases({"new_empty", "eye", "linspace", "logspace", "triu", "tril", "tri", "diag", "outer", "one_hot"},
             Made::Somehow)
      .Cases({"add", "sub", "mul", "div", "neg", "pow", "exp", "log", "sqrt", "rsqrt", "reciprocal", "abs"},
             Made::Somehow)
      .Cases({"sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "where", "masked_fill"}, Made::Somehow)
      .Cases({"softplus", "gelu", "silu", "mish", "elu", "expm1", "erf", "linalg_vector_norm"}, Made::Somehow)
      .Cases({"rsub", "floor", "ceil", "round", "trunc", "sign", "square", "fmod", "remainder", "log1p", "exp2"},
             Made::Somehow)
      .Cases({"minimum", "maximum", "clamp_min", "clamp_max", "scatter", "scatter_add", "index_put", "meshgrid"},
             Made::Somehow)
      .Cases({"select_scatter", "slice_scatter", "diag_embed", "floor_divide", "clamp", "to", "pad"}, Made::Somehow)
      .Cases({"sum", "mean", "prod", "cumsum", "cumprod", "matmul", "mm", "bmm", "einsum", "linear"}, Made::Somehow)
      .Cases({"view", "reshape", "expand", "permute", "transpose", "squeeze", "unsqueeze", "flatten", "repeat"},
             Made::ByMovement)
      .Cases({"cat", "stack", "slice", "select", "index", "getitem", "gather", "roll", "flip", "tile"},
             Made::ByMovement)
      .Cases({"lift_fresh_copy", "lift_fresh", "detach", "clone", "alias", "copy", "_to_copy", "type_as"},
             Made::ByMovement)
      .Cases({"contiguous", "repeat_interleave", "index_select", "diagonal", "split", "chunk", "unbind", "unfold"},
             Made::ByMovement)
      .Default(Made::No);
}

Made mpt::madeByTools(StringRef name) {
  auto [node, result] = name.rsplit("_output_");
  if (result.empty() || !llvm::all_of(result, llvm::isDigit) || !node.contains('/'))
    return madeByTorch(name);
  StringRef op = node.substr(node.rfind('/') + 1);
  if (op.rtrim("0123456789").ends_with("_"))
    op = op.rtrim("0123456789").drop_back();
  return moves("", op) && op != "Constant" ? Made::ByMovement : Made::Somehow; // a number in the code of a module
}

StringRef mpt::withoutNumber(StringRef name) {
  auto [first, number] = name.rsplit('.');
  return !number.empty() && llvm::all_of(number, llvm::isDigit) && !first.contains('.') ? first : name;
}

bool mpt::isGeneratedName(StringRef name) { return madeByTools(withoutNumber(name)) != Made::No; }

/// Values of a module's code are named after the operation that makes them; a number tells nothing.
bool mpt::isMadeInCode(StringRef name) {
  name = withoutNumber(name);
  StringRef last = name.substr(name.rfind('.') + 1), word = last.rtrim("0123456789");
  return madeByTools(last) == Made::Somehow && !word.empty() && word != "val_" && word != "val";
}

bool mpt::isBufferName(StringRef name) {
  StringRef last = name.substr(name.rfind('.') + 1), word = last.substr(last.rfind('_') + 1);
  return word == "cos" || word == "sin" ||
         llvm::StringSwitch<bool>(last)
             .Cases({"running_mean", "running_var", "num_batches_tracked"}, true)
             .Cases({"cos_cached", "sin_cached", "inv_freq", "position_ids"}, true)
             .Cases({"betas", "alphas", "alphas_cumprod", "sqrt_alphas_cumprod"}, true)
             .Cases({"mask", "attn_mask", "causal_mask", "masked_bias", "relative_position_index"}, true)
             .Default(false);
}

bool mpt::isTorchPath(StringRef name) {
  StringRef last = name.substr(name.rfind('.') + 1);
  // Tensors in the code of a module are lifted to it.
  bool buffer =
      isBufferName(name) || llvm::is_contained({"lifted_tensor_", "_tensor_constant"}, last.rtrim("0123456789"));
  // Slashes are of a node's result that an optimizer has folded.
  bool plain = !name.contains('/') && !name.contains("::");
  return !last.empty() && !buffer && plain && (name.contains('.') || !isGeneratedName(name));
}
