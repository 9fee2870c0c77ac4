// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s --check-prefix=CPU
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s --check-prefix=GPU

// Each element is read and added once: a loop over the units, one over a unit's lanes, and one along the axis, from its end on.
// Lanes of one line beside the next are a vector.
// CPU: func.func private @[[K:.*]](%{{.*}}: memref<3x4096x64xf32>
// CPU: scf.for
// CPU: scf.for
// CPU: scf.for
// CPU-NOT: scf.for
// CPU: vector.load
// CPU: arith.addf {{.*}} : vector<
// CPU-NOT: vector.load
// CPU: vector.store
// CPU-NOT: scf.for

// A thread walks one of 192 lines.
// GPU: func.func private @[[K:.*]](%{{.*}}: memref<3x4096x64xf32>
// GPU-SAME: mpt.schedule = "running-sum"
// GPU-COUNT-1: arith.addf
// GPU-NOT: arith.addf
func.func @columns(%x: tensor<3x4096x64xf32>) -> tensor<3x4096x64xf32> {
  %y = mpt.fusion(%x) : (tensor<3x4096x64xf32>) -> tensor<3x4096x64xf32> {
  ^bb0(%a: tensor<3x4096x64xf32>):
    %s = mpt.cum_sum %a {axis = 1, reverse = true} : (tensor<3x4096x64xf32>) -> tensor<3x4096x64xf32>
    mpt.yield %s : tensor<3x4096x64xf32>
  }
  return %y : tensor<3x4096x64xf32>
}
