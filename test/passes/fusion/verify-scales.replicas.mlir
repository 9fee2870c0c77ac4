// RUN: mpt-opt %s --fusion-verify-scales --split-input-file --verify-diagnostics
// Scales go with values from one function of a step of replicas to a later one.

// A scaled gradient is kept, summed and unscaled two functions later; the one between reads no scale.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<4xf32>
  func.func @combine(%g: tensor<4xf32> {mpt.name = "replica.sum.1", train.role = #train<role sum>}) attributes {dist.phase = 4 : i64} {
    train.write @w, %g : tensor<4xf32>
    return
  }
  func.func @between_2(%dy: tensor<4xf32> {mpt.name = "replica.kept.1", train.role = #train<role kept>}) -> (tensor<4xf32> {mpt.name = "replica.sum.1", train.role = #train<role sum>}) attributes {dist.phase = 3 : i64} {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %0 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.div %dy, %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func @between_1(%dy: tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}, %all: tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}) -> (tensor<4xf32> {mpt.name = "replica.kept.1", train.role = #train<role kept>}) attributes {dist.phase = 2 : i64} {
    %0 = mpt.sub %dy, %all : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func @replica(%x: tensor<4xf32> {mpt.name = "x"}) -> (tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}, tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}) attributes {dist.phase = 1 : i64} {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %0 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %x, %0 : tensor<4xf32>
    return %1, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// The unscaling is gone, two functions after the scaling.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<4xf32>
  func.func @combine(%g: tensor<4xf32> {mpt.name = "replica.sum.1", train.role = #train<role sum>}) attributes {dist.phase = 3 : i64} {
    // expected-error @below {{expected a value without a scale for state w, got the scale argument 0}}
    train.write @w, %g : tensor<4xf32>
    return
  }
  func.func @between_1(%dy: tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}) -> (tensor<4xf32> {mpt.name = "replica.sum.1", train.role = #train<role sum>}) attributes {dist.phase = 2 : i64} {
    return %dy : tensor<4xf32>
  }
  func.func @replica(%x: tensor<4xf32> {mpt.name = "x"}) -> (tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}) attributes {dist.phase = 1 : i64} {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %0 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %x, %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// A scale that a replica makes of its own values is not the others' scale: replicas cannot add values that carry it.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  func.func @replica(%x: tensor<4xf32> {mpt.name = "x"}, %r: tensor<f32> {mpt.name = "r"}) -> (tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}) attributes {dist.phase = 1 : i64} {
    %s = mpt.abs %r {train.scale} : tensor<f32>
    %0 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %x, %0 : tensor<4xf32>
    // expected-error @below {{expected result 0 without a scale}}
    return %1 : tensor<4xf32>
  }
}

// -----

// A scale of a replica's own is kept, and another one computed of it in both functions.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<4xf32>
  func.func @combine(%g: tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}) attributes {dist.phase = 3 : i64} {
    train.write @w, %g : tensor<4xf32>
    return
  }
  func.func @between_1(%dy: tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}, %s: tensor<f32> {mpt.name = "replica.kept.1", train.role = #train<role kept>}) -> (tensor<4xf32> {mpt.name = "replica.sum.0", train.role = #train<role sum>}) attributes {dist.phase = 2 : i64} {
    %most = mpt.constant dense<2.0> : tensor<f32>
    %own = mpt.min %s, %most : tensor<f32>
    %0 = mpt.broadcast %own {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.div %dy, %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func @replica(%x: tensor<4xf32> {mpt.name = "x"}, %r: tensor<f32> {mpt.name = "r"}) -> (tensor<4xf32> {mpt.name = "replica.kept.0", train.role = #train<role kept>}, tensor<f32> {mpt.name = "replica.kept.1", train.role = #train<role kept>}) attributes {dist.phase = 1 : i64} {
    %s = mpt.abs %r {train.scale} : tensor<f32>
    %most = mpt.constant dense<2.0> : tensor<f32>
    %own = mpt.min %s, %most : tensor<f32>
    %0 = mpt.broadcast %own {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %x, %0 : tensor<4xf32>
    return %1, %s : tensor<4xf32>, tensor<f32>
  }
}

// -----

// Replicas agree on the largest magnitudes of a tensor and of a gradient: these are for the history of 8-bit scales.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state statistic @mpt.amax_history : tensor<2x16xf32> = dense<0.0> : tensor<2x16xf32>
  func.func @combine(%m: tensor<2xf32> {mpt.name = "replica.max.0", train.role = #train<role max>}) attributes {dist.phase = 2 : i64} {
    %h = train.read @mpt.amax_history : tensor<2x16xf32>
    %next = train.roll %h, %m : tensor<2x16xf32>, tensor<2xf32>
    train.write @mpt.amax_history, %next : tensor<2x16xf32>
    return
  }
  func.func @replica(%x: tensor<1xf32> {mpt.name = "x"}) -> (tensor<2xf32> {mpt.name = "replica.max.0", train.role = #train<role max>}) attributes {dist.phase = 1 : i64} {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %0 = mpt.reshape %s : (tensor<f32>) -> tensor<1xf32>
    %dy = mpt.mul %x, %0 : tensor<1xf32>
    %both = mpt.concat %x, %dy {axis = 0 : i64} : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
    return %both : tensor<2xf32>
  }
}

// -----

// The same becomes a parameter.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<1xf32>
  func.func @combine(%m: tensor<1xf32> {mpt.name = "replica.max.0", train.role = #train<role max>}) attributes {dist.phase = 2 : i64} {
    // expected-error @below {{expected a value without a scale for state w}}
    train.write @w, %m : tensor<1xf32>
    return
  }
  func.func @replica(%x: tensor<1xf32> {mpt.name = "x"}) -> (tensor<1xf32> {mpt.name = "replica.max.0", train.role = #train<role max>}) attributes {dist.phase = 1 : i64} {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %0 = mpt.reshape %s : (tensor<f32>) -> tensor<1xf32>
    %dy = mpt.mul %x, %0 : tensor<1xf32>
    return %dy : tensor<1xf32>
  }
}
