// SPDX-License-Identifier: Apache-2.0
// Minimum cut between two terminals (Dinic, Soviet Math. Doklady 11, 1970), for label problems with two labels.
#ifndef MPT_SUPPORT_MINCUT_H
#define MPT_SUPPORT_MINCUT_H

#include <cstdint>
#include <vector>

namespace mpt {

/// A flow network whose node 0 is the source and node 1 the sink. After solve(), every node is on the source's side or
/// the sink's; the summed capacity of edges from the former to the latter is least.
class MinCut {
public:
  static constexpr int kSource = 0, kSink = 1;
  static constexpr int64_t kInfinite = int64_t(1) << 60;

  MinCut() : first(2, -1) {}
  int addNode();
  /// Costs `forward` when `from` is on the source's side and `to` on the sink's, `backward` the other way round.
  void addEdge(int from, int to, int64_t forward, int64_t backward = 0);
  /// As addEdge() from `from` to each of `to`, but each cost is paid once, however many of `to` are on the other side.
  void addSharedEdge(int from, std::vector<int> to, int64_t forward, int64_t backward);
  /// Cost of the cheapest cut.
  int64_t solve();
  /// Among cheapest cuts, the one with the fewest nodes on the source's side.
  bool onSourceSide(int node) const { return level[node] >= 0; }

private:
  struct Edge {
    int to, next;
    int64_t capacity;
  };
  /// Nodes that hang together without the terminals. Each part is solved by itself, so that many small problems in one
  /// network cost as much as alone.
  struct Part {
    std::vector<int> nodes, fromSource; ///< fromSource: edges
  };
  std::vector<Part> makeParts() const;
  bool findLevels(const Part &part);
  int64_t blockingFlow(const Part &part);

  std::vector<int> first, level, current;
  std::vector<Edge> edges; // edge i's reverse is i ^ 1
};

} // namespace mpt

#endif // MPT_SUPPORT_MINCUT_H
