// Dinic's algorithm without recursion: chains of layers make paths of any length.
#include "mpt/Precision/MinCut.h"

#include <algorithm>

using namespace mpt;

int MinCut::addNode() {
  first.push_back(-1);
  return static_cast<int>(first.size()) - 1;
}

void MinCut::addEdge(int from, int to, int64_t forward, int64_t backward) {
  if (from == to)
    return;
  edges.push_back({to, first[from], forward});
  first[from] = static_cast<int>(edges.size()) - 1;
  edges.push_back({from, first[to], backward});
  first[to] = static_cast<int>(edges.size()) - 1;
}

bool MinCut::findLevels() {
  level.assign(first.size(), -1);
  std::vector<int> queue{kSource};
  level[kSource] = 0;
  for (size_t head = 0; head < queue.size(); ++head)
    for (int e = first[queue[head]]; e >= 0; e = edges[e].next)
      if (edges[e].capacity > 0 && level[edges[e].to] < 0) {
        level[edges[e].to] = level[queue[head]] + 1;
        queue.push_back(edges[e].to);
      }
  return level[kSink] >= 0;
}

int64_t MinCut::blockingFlow() {
  int64_t total = 0;
  std::vector<int> path; // edges from the source to the node being extended
  int node = kSource;
  while (true) {
    if (node == kSink) {
      int64_t amount = kInfinite;
      for (int e : path)
        amount = std::min(amount, edges[e].capacity);
      total += amount;
      size_t keep = path.size();
      for (size_t i = path.size(); i-- > 0;) {
        edges[path[i]].capacity -= amount;
        edges[path[i] ^ 1].capacity += amount;
        if (edges[path[i]].capacity == 0)
          keep = i;
      }
      path.resize(keep); // go on from before the first saturated edge
      node = path.empty() ? kSource : edges[path.back()].to;
    }
    int &e = current[node];
    while (e >= 0 && !(edges[e].capacity > 0 && level[edges[e].to] == level[node] + 1))
      e = edges[e].next;
    if (e >= 0) {
      path.push_back(e);
      node = edges[e].to;
      continue;
    }
    if (path.empty())
      return total;
    node = edges[path.back() ^ 1].to; // dead end: never enter it again
    path.pop_back();
    current[node] = edges[current[node]].next;
  }
}

int64_t MinCut::solve() {
  int64_t total = 0;
  while (findLevels()) {
    current = first;
    total += blockingFlow();
  }
  return total;
}
