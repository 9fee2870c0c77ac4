// RUN: split-file %s %t
// RUN: mpt-opt %t/step.mlir --distribution-shard-optimizer --distribution-verify-replicas | FileCheck %s
// RUN: mpt-opt %t/small.mlir --distribution-shard-optimizer | FileCheck %s --check-prefix=SMALL
// RUN: mpt-opt %t/elsewhere.mlir --distribution-shard-optimizer --distribution-verify-replicas | FileCheck %s --check-prefix=ELSEWHERE
// RUN: mpt-opt %t/drawn.mlir --distribution-shard-optimizer --distribution-verify-replicas | FileCheck %s --check-prefix=DRAWN
// RUN: not mpt-opt %t/any.mlir --distribution-shard-optimizer 2>&1 | FileCheck %s --check-prefix=ANY
// RUN: not mpt-opt %t/lamb.mlir --distribution-shard-optimizer 2>&1 | FileCheck %s --check-prefix=LAMB
// RUN: not mpt-opt %t/softmax.mlir --distribution-shard-optimizer 2>&1 | FileCheck %s --check-prefix=SOFTMAX

// ANY: expected a number of replicas for --shard-optimizer, got any
// LAMB: expected an update that is computed element by element for --shard-optimizer, got mpt.lamb, which takes a norm or a mean of 'w'
// SOFTMAX: expected what is computed from a divided gradient element by element, got mpt.softmax

//--- step.mlir
// 70 elements and 2 replicas: shards of 48. The check of gradients and their norm become reductions over all shards.
// CHECK: train.state master @w.master : tensor<7x10xf32> of "w"
// CHECK-SAME: dist.shard = 48 : i64
// CHECK: train.state parameter @w : tensor<7x10xf16>
// CHECK-NOT: dist.shard
// CHECK: train.state slot @w.m : tensor<7x10xf32>
// CHECK-SAME: dist.shard = 48 : i64
// CHECK: func.func @step
// CHECK: %[[FLAT:.*]] = mpt.reshape %{{.*}} : (tensor<7x10xf32>) -> tensor<70xf32>
// CHECK: %[[PADDED:.*]] = mpt.pad %[[FLAT]] {high = array<i64: 26>
// CHECK: %[[ROWS:.*]] = mpt.reshape %[[PADDED]] : (tensor<96xf32>) -> tensor<2x48xf32>
// CHECK: %[[ROW:.*]] = shard.reduce_scatter %[[ROWS]] on @replicas grid_axes = [0] {{.*}}scatter_axis = 0 : tensor<2x48xf32> -> tensor<1x48xf32>
// CHECK: %[[SUM:.*]] = mpt.reshape %[[ROW]] : (tensor<1x48xf32>) -> tensor<48xf32>
// CHECK: %[[TWO:.*]] = mpt.constant dense<2.000000e+00> : tensor<48xf32>
// CHECK: %[[MEAN:.*]] = mpt.div %[[SUM]], %[[TWO]] : tensor<48xf32>
// CHECK: %[[OWN:.*]] = train.all_finite %[[MEAN]] : (tensor<48xf32>)
// CHECK: shard.all_reduce %{{.*}} on @replicas grid_axes = [0] reduction = max : tensor<f32>
// CHECK: %[[ALL:.*]] = mpt.compare
// CHECK: %[[SQUARES:.*]] = mpt.mul %[[MEAN]], %[[MEAN]]
// CHECK: %[[PART:.*]] = mpt.reduce sum %[[SQUARES]]
// CHECK: %[[TOTAL:.*]] = shard.all_reduce %[[PART]] on @replicas grid_axes = [0] : tensor<f32>
// CHECK: %[[NORM:.*]] = mpt.sqrt %[[TOTAL]]
// CHECK-DAG: %[[CLIP:.*]] = mpt.broadcast %{{.*}} -> tensor<48xf32>
// CHECK-DAG: %[[MASTER:.*]] = train.read @w.master : tensor<48xf32>
// CHECK-DAG: %[[SLOT:.*]] = train.read @w.m : tensor<48xf32>
// CHECK: %[[NEW:.*]], %[[NEXT:.*]] = mpt.sgd %[[MASTER]], %{{.*}}, %{{.*}}, %{{.*}}, %[[SLOT]]
// CHECK: %[[NARROW:.*]] = mpt.cast %[[NEW]] : tensor<48xf32> to tensor<48xf16>
// CHECK: train.write @w.master, %[[NEW]] if %[[ALL]] : tensor<i1> : tensor<48xf32>
// CHECK: %[[GATHERED:.*]] = shard.all_gather %{{.*}} on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x48xf16> -> tensor<2x48xf16>
// CHECK: mpt.slice %{{.*}} {sizes = array<i64: 70>
// CHECK: %[[WHOLE:.*]] = mpt.reshape %{{.*}} : (tensor<70xf16>) -> tensor<7x10xf16>
// CHECK: train.write @w, %[[WHOLE]] if %[[ALL]] : tensor<i1> : tensor<7x10xf16>
// CHECK: train.write @w.m, %[[NEXT]] if %[[ALL]] : tensor<i1> : tensor<48xf32>
// CHECK: return %[[NORM]]
module {
  shard.grid @replicas(shape = 2)
  train.state master @w.master : tensor<7x10xf32> of "w" = dense<1.0> : tensor<7x10xf32>
  train.state parameter @w : tensor<7x10xf16> {from = "w.master"}
  train.state slot @w.m : tensor<7x10xf32> of "w" = dense<0.0> : tensor<7x10xf32>
  func.func @step(%x: tensor<7x10xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) -> (tensor<f32> {mpt.name = "grad_norm", train.role = #train<role grad_norm>}) {
    %master = train.read @w.master : tensor<7x10xf32>
    %slot = train.read @w.m : tensor<7x10xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<7x10xf32> -> tensor<7x10xf32>
    %two = mpt.constant dense<2.0> : tensor<7x10xf32>
    %mean = mpt.div %sum, %two : tensor<7x10xf32>
    %g = train.gradient @w, %mean : tensor<7x10xf32>
    %finite = train.all_finite %g : (tensor<7x10xf32>) -> tensor<i1>
    %norm = train.global_norm %g : (tensor<7x10xf32>) -> tensor<f32>
    %clip = mpt.broadcast %norm {dims = array<i64>} : (tensor<f32>) -> tensor<7x10xf32>
    %clipped = mpt.mul %g, %clip : tensor<7x10xf32>
    %new, %next = mpt.sgd %master, %clipped, %lr, %n, %slot {momentum = 0.9 : f64} : (tensor<7x10xf32>, tensor<7x10xf32>, tensor<f32>, tensor<i64>, tensor<7x10xf32>) -> (tensor<7x10xf32>, tensor<7x10xf32>)
    %narrow = mpt.cast %new : tensor<7x10xf32> to tensor<7x10xf16>
    train.write @w.master, %new if %finite : tensor<i1> : tensor<7x10xf32>
    train.write @w, %narrow if %finite : tensor<i1> : tensor<7x10xf16>
    train.write @w.m, %next if %finite : tensor<i1> : tensor<7x10xf32>
    return %norm : tensor<f32>
  }
}

//--- small.mlir
// A shard of a bias would be as large as the bias.
// SMALL-NOT: dist.shard
// SMALL: shard.all_reduce
// SMALL-NOT: shard.reduce_scatter
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<16xf32> = dense<1.0> : tensor<16xf32>
  func.func @step(%x: tensor<16xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) {
    %w = train.read @w : tensor<16xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<16xf32> -> tensor<16xf32>
    %two = mpt.constant dense<2.0> : tensor<16xf32>
    %mean = mpt.div %sum, %two : tensor<16xf32>
    %g = train.gradient @w, %mean : tensor<16xf32>
    %new = mpt.sgd %w, %g, %lr, %n : (tensor<16xf32>, tensor<16xf32>, tensor<f32>, tensor<i64>) -> tensor<16xf32>
    train.write @w, %new : tensor<16xf32>
    return
  }
}

//--- elsewhere.mlir
// Optimizer state that another function reads stays whole: its update takes a slice and is gathered. So does a parameter.
// ELSEWHERE-NOT: dist.shard
// ELSEWHERE-LABEL: func.func @step
// ELSEWHERE: shard.reduce_scatter
// ELSEWHERE-DAG: shard.all_slice %{{.*}} on @replicas grid_axes = [0] slice_axis = 0 : tensor<2x32xf32> -> tensor<1x32xf32>
// ELSEWHERE-DAG: shard.all_slice
// ELSEWHERE: mpt.sgd
// ELSEWHERE: shard.all_gather
// ELSEWHERE: train.write @w, %{{.*}} : tensor<64xf32>
// ELSEWHERE: shard.all_gather
// ELSEWHERE: train.write @w.m, %{{.*}} : tensor<64xf32>
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<64xf32> = dense<1.0> : tensor<64xf32>
  train.state slot @w.m : tensor<64xf32> of "w" = dense<0.0> : tensor<64xf32>
  func.func @step(%x: tensor<64xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) {
    %w = train.read @w : tensor<64xf32>
    %m = train.read @w.m : tensor<64xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<64xf32> -> tensor<64xf32>
    %two = mpt.constant dense<2.0> : tensor<64xf32>
    %mean = mpt.div %sum, %two : tensor<64xf32>
    %g = train.gradient @w, %mean : tensor<64xf32>
    %new, %next = mpt.sgd %w, %g, %lr, %n, %m {momentum = 0.9 : f64} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<i64>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>)
    train.write @w, %new : tensor<64xf32>
    train.write @w.m, %next : tensor<64xf32>
    return
  }
  func.func @evaluate() -> tensor<64xf32> {
    %m = train.read @w.m : tensor<64xf32>
    return %m : tensor<64xf32>
  }
}

//--- drawn.mlir
// Bits that are drawn belong to an element's position in the whole tensor: FP32 is gathered, then rounded.
// DRAWN: %[[NEW:.*]] = mpt.sgd
// DRAWN: %[[ROWS:.*]] = shard.all_gather %{{.*}} : tensor<1x32xf32> -> tensor<2x32xf32>
// DRAWN: %[[WHOLE:.*]] = mpt.reshape %[[ROWS]] : (tensor<2x32xf32>) -> tensor<64xf32>
// DRAWN: %[[NARROW:.*]] = mpt.cast %[[WHOLE]] key
// DRAWN: train.write @w, %[[NARROW]] : tensor<64xbf16>
module {
  shard.grid @replicas(shape = 2)
  train.state rng @rng : tensor<2xi64> = dense<0> : tensor<2xi64>
  train.state parameter @w : tensor<64xbf16> = dense<1.0> : tensor<64xbf16>
  func.func @step(%x: tensor<64xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) {
    %key = train.read @rng : tensor<2xi64>
    %w = train.read @w : tensor<64xbf16>
    %wide = mpt.cast %w : tensor<64xbf16> to tensor<64xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<64xf32> -> tensor<64xf32>
    %two = mpt.constant dense<2.0> : tensor<64xf32>
    %mean = mpt.div %sum, %two : tensor<64xf32>
    %g = train.gradient @w, %mean : tensor<64xf32>
    %new = mpt.sgd %wide, %g, %lr, %n : (tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<i64>) -> tensor<64xf32>
    %narrow = mpt.cast %new key %key : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 1 : i64} : tensor<64xf32> to tensor<64xbf16>
    train.write @w, %narrow : tensor<64xbf16>
    return
  }
}

//--- any.mlir
module {
  shard.grid @replicas(shape = ?)
  func.func @step() {
    return
  }
}

//--- lamb.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<64xf32> = dense<1.0> : tensor<64xf32>
  train.state slot @m : tensor<64xf32> of "w" = dense<0.0> : tensor<64xf32>
  train.state slot @v : tensor<64xf32> of "w" = dense<0.0> : tensor<64xf32>
  func.func @step(%x: tensor<64xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) {
    %w = train.read @w : tensor<64xf32>
    %m = train.read @m : tensor<64xf32>
    %v = train.read @v : tensor<64xf32>
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<64xf32> -> tensor<64xf32>
    %two = mpt.constant dense<2.0> : tensor<64xf32>
    %mean = mpt.div %sum, %two : tensor<64xf32>
    %g = train.gradient @w, %mean : tensor<64xf32>
    %new, %nm, %nv = mpt.lamb %w, %g, %lr, %n, %m, %v : (tensor<64xf32>, tensor<64xf32>, tensor<f32>, tensor<i64>, tensor<64xf32>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>)
    train.write @w, %new : tensor<64xf32>
    train.write @m, %nm : tensor<64xf32>
    train.write @v, %nv : tensor<64xf32>
    return
  }
}

//--- softmax.mlir
module {
  shard.grid @replicas(shape = 2)
  train.state parameter @w : tensor<64xf32> = dense<1.0> : tensor<64xf32>
  func.func @step(%x: tensor<64xf32> {dist.split, mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}, %n: tensor<i64> {mpt.name = "n"}) {
    %sum = shard.all_reduce %x on @replicas grid_axes = [0] : tensor<64xf32> -> tensor<64xf32>
    %two = mpt.constant dense<2.0> : tensor<64xf32>
    %mean = mpt.div %sum, %two : tensor<64xf32>
    %g = train.gradient @w, %mean : tensor<64xf32>
    %s = mpt.softmax %g {axis = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
    train.write @w, %s : tensor<64xf32>
    return
  }
}
