// SPDX-License-Identifier: Apache-2.0
// Why a rewrite left something as it is, shown by --debug-only=<pass flag>.
#ifndef MPT_SUPPORT_REFUSAL_H
#define MPT_SUPPORT_REFUSAL_H

#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/Debug.h"
#include <optional>
#include <type_traits>

namespace mpt {

/// Builds and prints "<flag>: <location>: <reason>" when --debug-only names the flag, and stands for failure: it
/// becomes a LogicalResult, FailureOr, optional or bool that says so.
///
///   if (users != 1)
///     return refuse(DEBUG_TYPE, op) << "not an epilogue: expected one user, got " << users;
class Refusal {
public:
  Refusal(const char *flag, mlir::Location loc);
  Refusal(const Refusal &) = delete;
  ~Refusal();

  template <typename T> const Refusal &operator<<(T &&part) const {
    if (reason)
      *reason << std::forward<T>(part);
    return *this;
  }

  operator llvm::LogicalResult() const { return llvm::failure(); }
  template <typename T> operator llvm::FailureOr<T>() const { return llvm::failure(); }
  template <typename T> operator std::optional<T>() const { return std::nullopt; }
  /// To bool itself and to nothing that is made from one.
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, int> = 0> operator T() const { return false; }

private:
  const char *flag;
  mutable std::optional<mlir::Diagnostic> reason;
};

inline Refusal refuse(const char *flag, mlir::Location loc) { return Refusal(flag, loc); }
inline Refusal refuse(const char *flag, mlir::Operation *op) { return Refusal(flag, op->getLoc()); }

/// Prints the messages of patterns to notifyMatchFailure in the same form: the listener of a greedy rewrite,
/// `GreedyRewriteConfig().setListener(&listener)`. LLVM's own listener is compiled out where LLVM has no assertions.
class RefusalListener : public mlir::RewriterBase::Listener {
public:
  explicit RefusalListener(const char *flag) : flag(flag) {}
  void notifyMatchFailure(mlir::Location loc, llvm::function_ref<void(mlir::Diagnostic &)> reason) override;

private:
  const char *flag;
};

/// Switches on the messages of the passes in a list such as "fusion-form,memory-plan". LLVM's own --debug-only exists
/// only where LLVM was built with assertions.
void showRefusals(llvm::StringRef flags);

} // namespace mpt

#endif // MPT_SUPPORT_REFUSAL_H
