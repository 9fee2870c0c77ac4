// SPDX-License-Identifier: Apache-2.0
// Kernels of PTX and of machine code, by their names.
#include "Code.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <map>

using namespace standin;

namespace {

class Ptx : public DeviceCode {
public:
  explicit Ptx(const std::string &text) {
    for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
      size_t name = at + strlen(".entry "), open = text.find('(', name), close = text.find(')', open),
             body = text.find('{', close);
      if (body == std::string::npos)
        return;
      Entry entry;
      for (size_t p = open; (p = text.find(".param", p)) < close; ++p)
        ++entry.args;
      for (const char *limit : {".maxntid", ".reqntid"})
        if (size_t p = text.find(limit, close); p < body) {
          const char *number = text.c_str() + p + strlen(limit);
          entry.threads = 1;
          for (bool more = true; more; number += more) {
            char *end;
            entry.threads *= strtoll(number, &end, 10);
            number = end + strspn(end, " ");
            more = *number == ',';
          }
        }
      entries[text.substr(name, open - name)] = entry;
    }
  }
  bool find(const std::string &kernel, Entry &out) const override {
    auto it = entries.find(kernel);
    if (it != entries.end())
      out = it->second;
    return it != entries.end();
  }

private:
  std::map<std::string, Entry> entries;
};

class MachineCode : public DeviceCode {
public:
  explicit MachineCode(const char *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    bytes.assign(image, image + header.e_shoff + uint64_t(header.e_shnum) * header.e_shentsize);
  }
  bool find(const std::string &kernel, Entry &) const override {
    std::string section = ".text." + kernel; // and the zero byte
    return std::search(bytes.begin(), bytes.end(), section.c_str(), section.c_str() + section.size() + 1) !=
           bytes.end();
  }

private:
  std::string bytes;
};

} // namespace

std::unique_ptr<DeviceCode> DeviceCode::read(const char *image) {
  if (memcmp(image, ELFMAG, SELFMAG) == 0)
    return std::make_unique<MachineCode>(image);
  return std::make_unique<Ptx>(image);
}
