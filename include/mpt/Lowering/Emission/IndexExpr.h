// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of generated loops: affine expressions of loop variables that simplify across reshapes.
#ifndef MPT_LOWERING_EMISSION_INDEXEXPR_H
#define MPT_LOWERING_EMISSION_INDEXEXPR_H

#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mpt {

inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// constant + sum of coefficient * variable; variables are numbered by an IndexSpace and never negative.
class IndexExpr {
public:
  struct Term {
    unsigned variable;
    int64_t coefficient;
    bool operator==(const Term &other) const { return variable == other.variable && coefficient == other.coefficient; }
    bool operator<(const Term &other) const {
      return variable != other.variable ? variable < other.variable : coefficient < other.coefficient;
    }
  };
  IndexExpr(int64_t constant = 0) : constant(constant) {}
  static IndexExpr variable(unsigned id) {
    IndexExpr result;
    result.terms.push_back({id, 1});
    return result;
  }
  int64_t coefficient(unsigned variable) const;
  bool isConstant() const { return terms.empty(); }
  bool operator==(const IndexExpr &other) const { return constant == other.constant && terms == other.terms; }
  bool operator<(const IndexExpr &other) const {
    return constant != other.constant ? constant < other.constant : terms < other.terms;
  }

  int64_t constant;
  std::vector<Term> terms; ///< ascending by variable, no zero coefficients
};

/// Variables of one kernel and the arithmetic on expressions of them.
class IndexSpace {
public:
  enum class Kind : uint8_t { Loop, Quotient, Remainder, Opaque };
  struct Variable {
    Kind kind = Kind::Loop;
    int64_t extent = 1;      ///< values are in [0, extent)
    unsigned depth = 0;      ///< the loop scope that defines it
    bool lane = false;       ///< differs between the lanes of a vector
    bool contiguous = false; ///< lane: rises by one a lane
    IndexExpr source;        ///< Quotient, Remainder: of this expression
    int64_t divisor = 1;     ///< Quotient, Remainder: by this
    mlir::Value value;       ///< index; for a lane loop its first lane; null until needed
    mlir::Value lanes;       ///< vector of index, where lanes are irregular
    unsigned width = 1;      ///< contiguous: the number of lanes, which divides the first lane
  };

  unsigned add(Variable variable);
  Variable &operator[](unsigned id) { return variables[id]; }
  const Variable &operator[](unsigned id) const { return variables[id]; }

  IndexExpr add(const IndexExpr &a, const IndexExpr &b);
  IndexExpr scale(const IndexExpr &a, int64_t factor);
  /// floor(a / divisor) and the remainder, for a >= 0.
  std::pair<IndexExpr, IndexExpr> divide(const IndexExpr &a, int64_t divisor);
  /// Row-major position of `at` in `shape`, and back.
  IndexExpr linearize(llvm::ArrayRef<IndexExpr> at, llvm::ArrayRef<int64_t> shape);
  llvm::SmallVector<IndexExpr> delinearize(IndexExpr linear, llvm::ArrayRef<int64_t> shape);

  unsigned depth(const IndexExpr &a) const;
  unsigned depth(llvm::ArrayRef<IndexExpr> at) const;
  bool isLane(const IndexExpr &a) const;
  bool isLane(llvm::ArrayRef<IndexExpr> at) const;
  int64_t minimum(const IndexExpr &a) const;
  int64_t maximum(const IndexExpr &a) const;
  /// The number of lanes when `a` rises by one a lane from a multiple of `unit` (0: of that number); else 0.
  unsigned alignedWidth(const IndexExpr &a, unsigned unit = 0) const;

  /// Whether divisions look for a remainder that changes in fewer loops than their dividend, such as the channel of an
  /// element where a loop goes in steps of whole rows of channels. Elements at such a remainder are read once.
  bool hoistsRemainders = false;

private:
  unsigned derived(Kind kind, const IndexExpr &source, int64_t divisor);
  bool isRemainder(const IndexExpr &a, int64_t multiple) const;
  std::optional<IndexExpr> hoistedRemainder(const IndexExpr &source, int64_t divisor);
  bool joinHoisted(IndexExpr &a);
  void simplify(IndexExpr &a);

  std::vector<Variable> variables;
  std::map<unsigned, IndexExpr> hoisted; ///< of quotients whose remainder is no variable of their source
  std::map<std::tuple<Kind, IndexExpr, int64_t>, unsigned> interned;
};

/// One read or write of memory by a kernel: its address by loop indices, and how much it moves.
struct MemoryAccess {
  IndexExpr address; ///< elements from the start of the buffer
  int64_t bytes;
  bool store;
  unsigned buffer; ///< number of the kernel's argument, or ~0u
};

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_INDEXEXPR_H
