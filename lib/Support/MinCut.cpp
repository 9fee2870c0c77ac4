// SPDX-License-Identifier: Apache-2.0
// Dinic's algorithm without recursion: chains of layers make paths of any length.
#include "mpt/Support/MinCut.h"

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

void MinCut::addSharedEdge(int from, std::vector<int> to, int64_t forward, int64_t backward) {
  std::sort(to.begin(), to.end());
  to.erase(std::unique(to.begin(), to.end()), to.end());
  if (to.size() == 1)
    return addEdge(from, to.front(), forward, backward);
  int anySource = addNode(), anySink = addNode();
  addEdge(anySource, from, backward);
  addEdge(from, anySink, forward);
  for (int node : to) {
    addEdge(node, anySource, kInfinite);
    addEdge(anySink, node, kInfinite);
  }
}

std::vector<MinCut::Part> MinCut::makeParts() const {
  std::vector<Part> parts;
  std::vector<int> part(first.size(), -1);
  for (int root = kSink + 1; root < static_cast<int>(first.size()); ++root) {
    if (part[root] >= 0)
      continue;
    part[root] = static_cast<int>(parts.size());
    parts.emplace_back().nodes.push_back(root);
    std::vector<int> &nodes = parts.back().nodes;
    for (size_t head = 0; head < nodes.size(); ++head)
      for (int e = first[nodes[head]]; e >= 0; e = edges[e].next)
        if (int to = edges[e].to; to > kSink && part[to] < 0) {
          part[to] = part[root];
          nodes.push_back(to);
        }
  }
  for (int e = first[kSource]; e >= 0; e = edges[e].next)
    if (edges[e].to != kSink)
      parts[part[edges[e].to]].fromSource.push_back(e);
  return parts;
}

bool MinCut::findLevels(const Part &part) {
  for (int node : part.nodes)
    level[node] = -1;
  level[kSink] = -1;
  std::vector<int> queue;
  auto reach = [&](int e, int from) {
    int to = edges[e].to;
    if (edges[e].capacity > 0 && level[to] < 0) {
      level[to] = level[from] + 1;
      if (to != kSink)
        queue.push_back(to);
    }
  };
  for (int e : part.fromSource)
    reach(e, kSource);
  for (size_t head = 0; head < queue.size(); ++head)
    for (int e = first[queue[head]]; e >= 0; e = edges[e].next)
      reach(e, queue[head]);
  return level[kSink] >= 0;
}

int64_t MinCut::blockingFlow(const Part &part) {
  int64_t total = 0;
  std::vector<int> path; // edges from the source to the node being extended
  int node = kSource;
  auto start = part.fromSource.begin();
  auto leads = [&](int e, int from) { return edges[e].capacity > 0 && level[edges[e].to] == level[from] + 1; };
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
    if (node == kSource) {
      while (start != part.fromSource.end() && !leads(*start, kSource))
        ++start;
      if (start == part.fromSource.end())
        return total;
      path.push_back(*start);
      node = edges[*start].to;
      continue;
    }
    int &e = current[node];
    while (e >= 0 && !leads(e, node))
      e = edges[e].next;
    if (e >= 0) {
      path.push_back(e);
      node = edges[e].to;
      continue;
    }
    node = edges[path.back() ^ 1].to; // dead end: never enter it again
    path.pop_back();
    if (node == kSource)
      ++start;
    else
      current[node] = edges[current[node]].next;
  }
}

int64_t MinCut::solve() {
  int64_t total = 0;
  level.assign(first.size(), -1);
  level[kSource] = 0;
  current = first;
  for (int e = first[kSource]; e >= 0; e = edges[e].next)
    if (edges[e].to == kSink)
      total += edges[e].capacity; // between the terminals: paid whatever the parts do
  for (const Part &part : makeParts())
    while (findLevels(part)) {
      for (int node : part.nodes)
        current[node] = first[node];
      total += blockingFlow(part);
    }
  return total;
}
