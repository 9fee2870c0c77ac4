// SPDX-License-Identifier: Apache-2.0
// Models, flags and policies whose steps are mutated, and compared from phase to phase.
#ifndef MPT_TEST_MUTANTS_RECIPES_H
#define MPT_TEST_MUTANTS_RECIPES_H

#include "llvm/ADT/StringRef.h"

#include <vector>

namespace mpt::mutants {

struct Recipe {
  const char *model;
  std::vector<llvm::StringRef> flags;
  llvm::StringRef only = ""; ///< policy that the flags are for; empty for all

  bool suits(llvm::StringRef policy) const { return only.empty() || only == policy; }
};
inline const Recipe recipes[] = {
    {"mlp", {"--optimizer=sgd,lr=0.1,momentum=0.9"}},
    {"mlp", {"--optimizer=adamw", "--clip-norm=0.5"}},
    {"mlp", {"--optimizer=sgd,lr=0.1", "--accumulate=2", "--clip-norm=0.5"}},
    {"mlp", {"--optimizer=adam", "--optimizer=sgd,lr=0.1,params=w1"}},
    {"conv", {"--optimizer=sgd,lr=0.1,momentum=0.9"}},
    {"residual", {"--optimizer=adagrad"}},
    {"attention", {"--optimizer=adamw"}},
    {"embedding", {"--optimizer=sgd,lr=0.1"}},
    {"losses", {"--loss=mse,output=a", "--loss=mse,output=b,weight=0.25", "--optimizer=sgd,lr=0.1"}},
    {"losses", {"--loss=mse,output=a", "--loss=mse,output=b", "--optimizer=adam", "--accumulate=2"}},
    {"mlp", {"--optimizer=adam", "--loss-scale=check=parameter"}, "amp-f16"},
    {"residual", {"--optimizer=adagrad", "--loss-scale=check=parameter"}, "als-f16"},
};
inline const llvm::StringRef policies[] = {"fp32",        "amp-f16",          "amp-bf16",        "pure-f16-static",
                                           "als-f16",     "fp8-e5m2",         "als-f16-product", "fp8-hybrid",
                                           "fp8-current", "autocast-cuda-f16"};

} // namespace mpt::mutants

#endif // MPT_TEST_MUTANTS_RECIPES_H
