// SPDX-License-Identifier: Apache-2.0
// Choices as text: one a line, "maker, key, search, value".
#include "cuda/Choices.h"

#include "core/Error.h"

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

constexpr const char *names[] = {"off", "quick", "full"}; // of Effort

/// Every folder of a path that is missing.
void makeFolders(const std::string &file) {
  for (size_t at = file.find('/', 1); at != std::string::npos; at = file.find('/', at + 1))
    mkdir(file.substr(0, at).c_str(), 0777);
}

} // namespace

void Choices::parse(const std::string &text, char field, char line, Table &into) {
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one, line);) {
    std::array<std::string, 4> parts; // maker, key, search, value
    std::istringstream fields(one);
    bool ok = true;
    for (std::string &part : parts)
      ok = ok && std::getline(fields, part, field);
    for (int i = 0; ok && i < 3; ++i)
      if (parts[2] == names[i])
        into[{parts[0], parts[1]}] = {static_cast<Effort>(i), parts[3]};
  }
}

std::string Choices::print(const Table &table, char field, char line, Effort least) {
  std::string text;
  for (const auto &[id, choice] : table)
    if (choice.search >= least)
      text +=
          id.first + field + id.second + field + names[static_cast<int>(choice.search)] + field + choice.value + line;
  return text;
}

void Choices::read() {
  std::ifstream from(file);
  parse({std::istreambuf_iterator<char>(from), {}}, '\t', '\n', stored);
  isRead = true;
}

const std::string *Choices::find(const std::string &maker, const std::string &key, Effort search) {
  const std::pair id(maker, key);
  if (auto it = used.find(id); it != used.end())
    return &it->second.value;
  if (auto other = foreign.find(key); other != foreign.end()) {
    warn("'%s' was saved with algorithms of %s; this is %s, where they are chosen anew: results may differ in their "
         "last bits",
         origin.c_str(), other->second.c_str(), maker.c_str());
    foreign.clear();
  }
  if (!isRead && !file.empty())
    read();
  auto it = stored.find(id);
  if (it == stored.end() || it->second.search < search)
    return nullptr;
  return &(used[id] = it->second).value;
}

void Choices::remember(const std::string &maker, const std::string &key, Effort search, const std::string &value) {
  used[{maker, key}] = {search, value};
  if (search > Effort::Off && ++unwritten == together)
    write();
}

void Choices::write() {
  if (!unwritten)
    return;
  unwritten = 0;
  if (file.empty())
    return;
  makeFolders(file);
  stored.clear();
  read(); // choices of other processes meanwhile
  for (const auto &[id, choice] : used) {
    auto [there, isNew] = stored.try_emplace(id, choice);
    if (!isNew && choice.search >= there->second.search)
      there->second = choice;
  }
  std::string temporary = file + "." + std::to_string(getpid());
  std::ofstream to(temporary);
  to << print(stored, '\t', '\n', Effort::Quick);
  to.close();
  if (!to || rename(temporary.c_str(), file.c_str()) != 0)
    unlink(temporary.c_str());
}

// Without characters that JSON escapes.
std::string Choices::text() const { return print(used, '|', ';', Effort::Off); }

bool Choices::take(const std::string &text, const std::string &path) {
  Table taken;
  parse(text, '|', ';', taken);
  if (taken.empty() || taken == used)
    return false;
  used = std::move(taken);
  origin = path;
  foreign.clear();
  for (const auto &[id, choice] : used)
    foreign[id.second] = id.first;
  return true;
}
