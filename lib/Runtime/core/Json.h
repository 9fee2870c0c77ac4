// SPDX-License-Identifier: Apache-2.0
// A small strict JSON reader (RFC 8259) for state-file headers and manifests. Made for hostile input: bounded depth, no
// recursion past it, positions in every error.
#ifndef MPT_RUNTIME_CORE_JSON_H
#define MPT_RUNTIME_CORE_JSON_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpt::rt {

struct Json {
  enum Kind { Null, Bool, Number, String, Array, Object };
  Kind kind = Null;
  bool integral = false; // a Number written without fraction or exponent that fits `integer`
  int64_t integer = 0;   // also 0 or 1 for Bool
  double number = 0;
  std::string string;
  std::vector<Json> array;
  std::vector<std::pair<std::string, Json>> object; // in the order of the text

  /// The first member of that name, or null (also when this is no object).
  const Json *find(std::string_view name) const;
};

/// Parses a whole text. On failure returns false; `error` has the reason and the place.
bool parseJson(std::string_view text, Json &out, std::string &error);

/// Appends `text` as a quoted JSON string.
void appendJsonString(std::string &out, std::string_view text);

} // namespace mpt::rt

#endif
