// SPDX-License-Identifier: Apache-2.0
// Which memory is a file's, from /proc.
#include "mpt/Support/MappedFiles.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/LineIterator.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace llvm;
using namespace mpt;

MappedFiles::MappedFiles() {
  auto maps = MemoryBuffer::getFileAsStream("/proc/self/maps");
  if (!maps)
    return;
  // "7f00-7f20 r--p 00000000 08:01 1234 /path"
  for (line_iterator line(**maps); !line.is_at_eof(); ++line) {
    SmallVector<StringRef, 8> words;
    line->split(words, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
    auto [from, to] = words.front().split('-');
    Range range;
    if (words.size() < 6 || words[1] != "r--p" || words[4] == "0" || from.getAsInteger(16, range.begin) ||
        to.getAsInteger(16, range.end))
      continue;
    ranges.push_back(range);
  }
}

void MappedFiles::release(const char *data, size_t size) const {
  size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = alignTo(reinterpret_cast<uintptr_t>(data), page);
  uintptr_t end = alignDown(reinterpret_cast<uintptr_t>(data) + size, page);
  bool inside = any_of(ranges, [&](Range range) { return begin >= range.begin && end <= range.end; });
  if (inside && begin < end)
    madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}
