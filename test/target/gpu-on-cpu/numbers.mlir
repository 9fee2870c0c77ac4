// Schedules read the numbers of their target's device: 258 rows leave 132 multiprocessors idle, and are slices whose sums another
// launch adds up; for 128 multiprocessors they are a block each.
// REQUIRES: mpt-opt-toy
// RUN: mpt-opt %s --from=fusion --to=memory --target=cuda --quiet | FileCheck %s --check-prefix=SLICES
// RUN: mpt-opt-toy %s --from=fusion --to=memory --target=gpu-on-cpu --quiet | FileCheck %s --check-prefix=ROWS
// SLICES: mpt.arena_bytes = 8256
// SLICES: rt.launch @kernel0(%arg0, %arg1, %{{.*}})
// ROWS: mpt.arena_bytes = 0
// ROWS: rt.launch @kernel0(%arg0, %arg1)
module attributes {mpt.name = "case"} {
func.func @f(%x: tensor<258x32768xf32> {mpt.name = "x"}) -> (tensor<258xf32> {mpt.name = "s"}) {
  %s = mpt.reduce sum %x {axes = array<i64: 1>} : (tensor<258x32768xf32>) -> tensor<258xf32>
  return %s : tensor<258xf32>
}
}
