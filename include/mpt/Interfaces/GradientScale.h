// SPDX-License-Identifier: Apache-2.0
// Scale types of values, and the interface by which an op says how they go through it; apart from the other interfaces
// because only precision-verify asks for it.
#ifndef MPT_INTERFACES_GRADIENTSCALE_H
#define MPT_INTERFACES_GRADIENTSCALE_H

#include "mlir/IR/OpDefinition.h"
#include <optional>

namespace mpt {

/// The factor by which loss scaling has multiplied a value (docs/scale-types.md).
class ScaleType {
public:
  enum class Kind {
    zero,    ///< every element is zero: fits any scale
    product, ///< all elements carry one product of integer powers of scales; the empty one is unscaled
    scales,  ///< every element is a scale of its own
    mixed    ///< elements carry scales that are not known, or are statistics of values with scales
  };
  /// A scale, and its exponent, which is not 0.
  using Power = std::pair<mlir::Value, int64_t>;

  static ScaleType unscaled() { return ScaleType(Kind::product); }
  /// A positive number that scales may be bounded by.
  static ScaleType bound();
  static ScaleType zero() { return ScaleType(Kind::zero); }
  static ScaleType mixed() { return ScaleType(Kind::mixed); }
  static ScaleType scales() { return ScaleType(Kind::scales); }
  /// The type of `scale` itself, which is nothing but that scale.
  static ScaleType of(mlir::Value scale);

  bool isZero() const { return kind == Kind::zero; }
  bool isProduct() const { return kind == Kind::product; }
  bool isUnscaled() const { return isProduct() && powers.empty(); }
  bool isElementwise() const { return kind == Kind::scales || kind == Kind::mixed; }
  bool isScales() const { return kind == Kind::scales; }
  /// The value is a product of scales, and no more: gradients may be multiplied by it and divided by it.
  bool isScale() const { return isPure && isProduct() && !powers.empty(); }
  /// A product of scales and of a positive number: of such values new scales are made.
  bool isScaleMaterial() const { return isProduct() && isPositive; }
  llvm::ArrayRef<Power> getPowers() const { return powers; }
  /// The same scales, whether or not the value is more than a product of them.
  bool carriesAs(const ScaleType &other) const { return kind == other.kind && powers == other.powers; }

  /// Of a value that is more than the scale that it carries.
  ScaleType withoutPurity() const;
  /// The type of a product: exponents add.
  ScaleType times(const ScaleType &other) const;
  /// The type of the n-th power, and of the root where `root` is above 1; nothing where that has no integer exponents.
  std::optional<ScaleType> power(int64_t n, int64_t root = 1) const;

  /// As messages say it: "no scale", "the scale mpt.loss_scale^2".
  std::string str() const;

private:
  explicit ScaleType(Kind kind) : kind(kind) {}

  Kind kind;
  bool isPure = false, isPositive = false; ///< a pure value is positive
  llvm::SmallVector<Power, 1> powers;      ///< in order of the values' addresses
};

/// The scales of one op that a rule reads and sets. Results are unscaled unless a rule says otherwise.
class ScaleInference {
public:
  virtual ~ScaleInference() = default;
  virtual ScaleType of(mlir::Value value) const = 0;
  virtual void set(mlir::Value result, ScaleType type) = 0;
  /// The type of a value read from the state of this name; `read` stands for the scale that it may be.
  virtual ScaleType ofState(mlir::Value read, llvm::StringRef state) const = 0;
  /// The op is refused: an error at it.
  virtual mlir::InFlightDiagnostic refuse() = 0;
};

/// The value of a scalar i1; nothing where it is not known.
using Flag = std::optional<bool>;

} // namespace mpt

#include "mpt/Interfaces/GradientScale.h.inc"

#endif // MPT_INTERFACES_GRADIENTSCALE_H
