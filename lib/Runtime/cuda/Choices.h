// SPDX-License-Identifier: Apache-2.0
// Choices by measurement: algorithms, plans, ways to compute. Kept in a file from process to process, and with a
// trainer's state, so that a run that is taken up again is bitwise identical.
#ifndef MPT_RUNTIME_CUDA_CHOICES_H
#define MPT_RUNTIME_CUDA_CHOICES_H

#include "cuda/CudaOptions.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace mpt::rt {

/// A key's text of a description: the words that it consists of.
template <typename Desc> std::string wordsOf(const Desc &desc) {
  static_assert(sizeof(Desc) % 8 == 0, "whole words");
  uint64_t words[sizeof(Desc) / 8];
  memcpy(words, &desc, sizeof desc);
  std::string text;
  for (uint64_t word : words)
    text += std::to_string(static_cast<int64_t>(word)) + ",";
  return text;
}

class Choices {
public:
  /// `file`: of all processes of a user; none where empty.
  explicit Choices(std::string file) : file(std::move(file)) {}
  ~Choices() { write(); }

  /// The choice for `key` with `maker` (device, library and its version): by this trainer, by the one
  /// whose state it took over, or in another process that searched no less than `search`. Null where nobody chose.
  const std::string *find(const std::string &maker, const std::string &key, Effort search);
  void remember(const std::string &maker, const std::string &key, Effort search, const std::string &value);
  /// So many choices are written together: a first run that is killed has not measured in vain.
  static constexpr int together = 16;
  /// Adds this process's choices to the file; a file that cannot be written costs a search.
  void write();

  /// All that this trainer uses, as text for its state.
  std::string text() const;
  /// Uses the choices `text` of the state of `path`. False where that changes nothing.
  bool take(const std::string &text, const std::string &path);

private:
  struct Choice {
    Effort search;
    std::string value;
    bool operator==(const Choice &o) const { return search == o.search && value == o.value; }
  };
  using Table = std::map<std::pair<std::string, std::string>, Choice>; // by maker and key
  static void parse(const std::string &text, char field, char line, Table &into);
  static std::string print(const Table &table, char field, char line, Effort least);
  void read();

  const std::string file;
  Table used, stored;                         // stored: in the file
  std::map<std::string, std::string> foreign; // key to maker of a state that was taken over, until it was said
  std::string origin;                         // that state's path
  bool isRead = false;
  int unwritten = 0;
};

} // namespace mpt::rt

#endif
