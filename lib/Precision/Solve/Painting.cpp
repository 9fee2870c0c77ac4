// SPDX-License-Identifier: Apache-2.0
// Two sweeps for what lies between allowed ops, then a flood through clear ones.
#include "Painting.h"

using namespace mpt;

std::vector<bool> mpt::paint(llvm::ArrayRef<PaintVertex> vertices) {
  size_t count = vertices.size();
  std::vector<bool> narrow(count), below(count), above(count);
  std::vector<llvm::SmallVector<unsigned, 2>> sources(count);
  for (size_t i = 0; i < count; ++i)
    for (unsigned user : vertices[i].users)
      sources[user].push_back(static_cast<unsigned>(i));
  // An allowed op upstream and one downstream, through free vertices alone.
  for (size_t i = 0; i < count; ++i)
    for (unsigned source : sources[i])
      below[i] = below[i] || vertices[source].allow || (vertices[source].isFree && below[source]);
  for (size_t i = count; i-- > 0;)
    for (unsigned user : vertices[i].users)
      above[i] = above[i] || vertices[user].allow || (vertices[user].isFree && above[user]);
  llvm::SmallVector<unsigned> work;
  for (size_t i = 0; i < count; ++i) {
    narrow[i] = vertices[i].allow || (vertices[i].isFree && below[i] && above[i]);
    if (narrow[i])
      work.push_back(static_cast<unsigned>(i));
  }
  while (!work.empty()) {
    unsigned vertex = work.pop_back_val();
    for (llvm::ArrayRef<unsigned> neighbours :
         {llvm::ArrayRef<unsigned>(vertices[vertex].users), llvm::ArrayRef<unsigned>(sources[vertex])})
      for (unsigned next : neighbours)
        if (!narrow[next] && vertices[next].isFree && vertices[next].clear) {
          narrow[next] = true;
          work.push_back(next);
        }
  }
  return narrow;
}
