// SPDX-License-Identifier: Apache-2.0
// Options of a trainer: from text to values.
#include "core/Options.h"

#include "core/Error.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace mpt::rt {

mpt_status Options::read(const mpt_trainer_options &given) {
  if (given.num_options < 0 || (given.num_options && !given.options))
    return fail(MPT_INVALID_ARGUMENT, "expected num_options options, got %lld and %s",
                static_cast<long long>(given.num_options), given.options ? "an array" : "NULL");
  options.assign(given.options, given.options + given.num_options);
  for (size_t i = 0; i < options.size(); ++i) {
    if (!options[i].key || !options[i].value)
      return fail(MPT_INVALID_ARGUMENT, "option %zu: expected a key and a value, got NULL", i);
    for (size_t j = 0; j < i; ++j)
      if (strcmp(options[i].key, options[j].key) == 0)
        return fail(MPT_INVALID_ARGUMENT, "option '%s' is given twice", options[i].key);
  }
  return MPT_OK;
}

const mpt_option *Options::find(const char *key) {
  known.push_back(key);
  auto found = std::find_if(options.begin(), options.end(), [&](const mpt_option &o) { return !strcmp(o.key, key); });
  return found == options.end() ? nullptr : &*found;
}

mpt_status Options::text(const char *key, std::string &out) {
  if (const mpt_option *option = find(key))
    out = option->value;
  return MPT_OK;
}

mpt_status Options::flag(const char *key, bool &out) {
  int chosen = out;
  mpt_status status = choice(key, {"0", "1"}, chosen);
  out = chosen != 0;
  return status;
}

mpt_status Options::number(const char *key, int64_t least, int64_t &out) {
  const mpt_option *option = find(key);
  if (!option)
    return MPT_OK;
  char *end = nullptr;
  long long value = strtoll(option->value, &end, 10);
  if (end == option->value || *end || value < least)
    return fail(MPT_INVALID_ARGUMENT, "option '%s': expected a whole number of %lld or more, got '%s'", key,
                static_cast<long long>(least), option->value);
  out = value;
  return MPT_OK;
}

mpt_status Options::choice(const char *key, std::initializer_list<const char *> words, int &out) {
  const mpt_option *option = find(key);
  if (!option)
    return MPT_OK;
  std::string expected;
  int index = 0;
  for (const char *word : words) {
    if (strcmp(option->value, word) == 0) {
      out = index;
      return MPT_OK;
    }
    expected += (index++ ? ", " : "") + std::string(word);
  }
  return fail(MPT_INVALID_ARGUMENT, "option '%s': expected one of %s, got '%s'", key, expected.c_str(), option->value);
}

mpt_status Options::finish() const {
  std::string list;
  for (const char *key : known)
    list += (list.empty() ? "" : ", ") + std::string(key);
  for (const mpt_option &option : options)
    if (std::none_of(known.begin(), known.end(), [&](const char *key) { return strcmp(key, option.key) == 0; }))
      return fail(MPT_INVALID_ARGUMENT, "unknown option '%s': this runtime has %s", option.key, list.c_str());
  return MPT_OK;
}

} // namespace mpt::rt
