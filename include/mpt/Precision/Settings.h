// SPDX-License-Identifier: Apache-2.0
// Settings of a policy beside its rules: types, rounding, loss scaling, scales of 8-bit tensors.
#ifndef MPT_PRECISION_SETTINGS_H
#define MPT_PRECISION_SETTINGS_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Policy/PolicyDialect.h"

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

using policy::Scaling;

/// Parameters of train.update_scale or train.layer_scale, and whether there is a scale at all.
struct LossScaling {
  Scaling mode = Scaling::none;
  double init = 65536.0, growth = 2.0, backoff = 0.5, min = 0x1p-14, max = 16777216.0;
  int64_t interval = 2000, hysteresis = 1, patience = 16, updateInterval = 1;
  llvm::SmallVector<int64_t> floorSteps;
  llvm::SmallVector<double> floors;
  std::string check = "step", spread = "sum", totalFrom = "rounding", first = "log_normal";
  double underflow = 1e-3, layerMax = 16.0, totalMax = 1024.0, headroom = 256.0, smallest = 0.0, largest = 0.0;

  /// Replaces the settings that `text` names: none, a positive number (a fixed scale), or dynamic with any of init,
  /// growth, backoff, interval, hysteresis, min, max, patience and floors, as in
  /// "dynamic,init=1024,floors=0:1024/40000:8192"; `check`, behind any scale or alone. Returns an error message, or
  /// nothing.
  std::string override(llvm::StringRef text);
  /// A skipped step leaves alone the parameters whose own gradients are not finite, and no others.
  bool checksByParameter() const { return mode != Scaling::none && check == "parameter"; }
  /// The loss is multiplied by a scale, which each parameter gradient is divided by.
  bool multiplies() const { return mode == Scaling::dynamic || (mode == Scaling::fixed && init != 1.0); }
};

struct RoundingMode {
  bool stochastic = false, saturates = false;
  bool compensated = false; ///< the error of a rounding is kept beside the value, and added before the next update
};

/// Parameters of train.tensor_scale, and whether 8-bit tensors have scales.
struct TensorScaling {
  bool enabled = false, delayed = false, mostRecent = false, powerOfTwo = false;
  int64_t history = 1024, margin = 0;
};

/// The error that all roundings make in a result or a gradient by an error model, relative in the L2 norm.
struct ErrorBound {
  std::string output;
  double error;
};

/// A product that may have 8-bit operands, with its measured times and the decision by them.
struct MeasuredProduct {
  std::string product;             ///< its key (Products.h)
  double wide = 0.0, narrow = 0.0; ///< microseconds in 16 bits, and in 8 with conversions
  int64_t ops = 0, narrowOps = 0;  ///< of the training functions; how many of them have 8-bit operands
};

/// Whether activations of nodes, by their names, wait for the backward pass as 8-bit codes with scales.
struct SavedRule {
  bool coded = false;
  std::string regex; ///< of the whole name
};

struct PrecisionSettings {
  std::string name;
  std::string note; ///< how the policy was made, where it was made of measurements
  mlir::Type storage, compute, gradients, accumulate, master;
  mlir::Type slots, parameterGradients; ///< f32 unless the policy says otherwise
  mlir::Type saved;                     ///< of activations that wait for the backward pass
  std::vector<SavedRule> savedNodes;    ///< the last one that matches decides (SavedNodes.h)
  LossScaling scaling;
  RoundingMode operands, gradientCasts, masters;
  RoundingMode slotCasts{/*stochastic=*/true, /*saturates=*/true}; ///< else small steps are lost
  bool slotsAreAsked = false;                                      ///< on the command line, so that some must be narrow
  TensorScaling tensorScaling;
  std::vector<ErrorBound> bounds;                       ///< of the training step, where types were made of measurements
  std::string timedTarget, timedDevice, timedLibraries; ///< where products were measured; empty where none were
  std::vector<MeasuredProduct> products;

  /// Operands of GEMMs are converted from the storage type to 8-bit types.
  bool quantizes() const { return compute.getIntOrFloatBitWidth() == 8 || gradients.getIntOrFloatBitWidth() == 8; }
  /// False for policies that store everything in FP32.
  bool narrows() const { return !storage.isF32(); }

  /// Replaces the type of optimizer state by the one called `text`. Returns an error message, or nothing.
  std::string overrideSlots(llvm::StringRef text);

  /// All of a policy but its rules.
  static PrecisionSettings from(policy::PolicyOp op);
  /// Settings that precision-assign left on the module for later passes (`mpt.policy`); f32 and no scaling without it.
  static PrecisionSettings of(mlir::ModuleOp module);
  mlir::DictionaryAttr toAttribute() const;
};

} // namespace mpt

#endif // MPT_PRECISION_SETTINGS_H
