// SPDX-License-Identifier: Apache-2.0
// Options of a trainer by name (mpt_trainer_options.options): who reads one makes it known, and the rest is refused.
#ifndef MPT_RUNTIME_CORE_OPTIONS_H
#define MPT_RUNTIME_CORE_OPTIONS_H

#include "mpt-c/runtime.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace mpt::rt {

class Options {
public:
  /// Fails on a NULL among keys and values, and on a key that is given twice.
  mpt_status read(const mpt_trainer_options &given);

  /// Each makes `key` known and, where the option is given, sets `out` to its value. A wrong value is an error that
  /// names the expected ones.
  mpt_status text(const char *key, std::string &out);
  mpt_status flag(const char *key, bool &out); ///< 0 or 1
  mpt_status number(const char *key, int64_t least, int64_t &out);
  mpt_status choice(const char *key, std::initializer_list<const char *> words, int &out);

  /// Fails when an option was given that nobody read, with the keys that there are.
  mpt_status finish() const;

private:
  const mpt_option *find(const char *key);

  std::vector<mpt_option> options;
  std::vector<const char *> known;
};

} // namespace mpt::rt

#endif
