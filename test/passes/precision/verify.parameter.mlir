// Commits under a finite check by parameter: each by its own gradient and the loss, and by nothing else.
// RUN: mpt-opt %s --precision-verify
// RUN: sed 's/@v, %nv if %cv/@v, %nv if %cw/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: sed 's/%nv if %cv : tensor<i1>/%nv/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: sed 's/%nv if %cv/%nv if %fv/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=LOSS
// RUN: sed 's/%nv if %cv/%nv if %all/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=MORE
// RUN: sed 's/%ns if %cw/%ns if %all/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=SLOT
// RUN: sed 's/%now if %all/%now if %cw/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=STEP
// RUN: sed 's/%lr, %number,/%lr, %now,/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: sed 's/mpt.and %cw, %not/mpt.and %cw, %cw/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=ALL
// RUN: sed 's/mpt.and %cw, %not/mpt.and %cv, %not/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=THEIRS
// RUN: sed 's/mpt.sub %v, %h/mpt.sub %g, %h/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: sed 's/mpt.sub %v, %h/mpt.sub %m, %h/' %s | not mpt-opt --precision-verify 2>&1 | FileCheck %s --check-prefix=STATE

// A commit under another parameter's flag.
// OTHER: expected a condition that holds only where the gradient of v is finite
// A commit without a condition.
// NONE: expected a condition: a step whose gradients are not finite must leave v as it is
// A commit that does not look at the loss.
// LOSS: expected a condition that holds only where the loss is finite
// A commit that another gradient decides about.
// MORE: expected a condition that holds wherever the gradient of v and the loss are finite, got one that more decides about
// An optimizer state that the whole step decides about.
// SLOT: expected a condition that holds wherever the gradient of w and the loss are finite
// The step's own counter under one parameter's flag.
// STEP: expected a condition that holds only where the gradient of v is finite
// An update that counts steps, and not its own.
// COUNT: expected the number of the step plus w.extra_updates, which counts the updates of w in skipped steps
// A counter that counts all updates.
// ALL: expected a counter of the updates of w in steps that are skipped
// A counter that counts another parameter's updates.
// THEIRS: expected a counter of the updates of w in steps that are skipped
// An update that another gradient takes part in.
// BOTH: expected an update of v by the gradient of 'v' alone for a finite check by parameter, got one that the gradient of 'w' takes part in
// An update by a state that a skipped step leaves as it is.
// STATE: expected an update of v by the gradient of 'v' alone for a finite check by parameter, got one by 'mean'

module attributes {mpt.policy = {loss_scaling = {mode = "fixed", init = 1.0, check = "parameter"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state slot @w.sum : tensor<4xf32> of "w"
  train.state counter @w.extra_updates : tensor<i64> of "w"
  train.state parameter @v : tensor<4xf32>
  train.state statistic @mean : tensor<4xf32>
  train.state counter @mpt.step : tensor<i64>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>, %lr: tensor<f32>) -> (tensor<f32> {train.role = #train<role loss>}, tensor<i1> {train.role = #train<role skipped>}) {
    %w = train.read @w : tensor<4xf32>
    %sum = train.read @w.sum : tensor<4xf32>
    %extra = train.read @w.extra_updates : tensor<i64>
    %v = train.read @v : tensor<4xf32>
    %m = train.read @mean : tensor<4xf32>
    %old = train.read @mpt.step : tensor<i64>
    %one = mpt.constant dense<1> : tensor<i64>
    %loss = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    %fl = train.all_finite %loss : (tensor<f32>) -> tensor<i1>
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %dw = mpt.mul %seed, %x : tensor<4xf32>
    %dv = mpt.mul %seed, %y : tensor<4xf32>
    %g = train.gradient @w, %dw : tensor<4xf32>
    %h = train.gradient @v, %dv : tensor<4xf32>
    %fw = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %fv = train.all_finite %h : (tensor<4xf32>) -> tensor<i1>
    %cw = mpt.and %fw, %fl : tensor<i1>
    %cv = mpt.and %fv, %fl : tensor<i1>
    %all = mpt.and %cw, %cv : tensor<i1>
    %not = mpt.not %all : tensor<i1>
    %now = mpt.add %old, %one : tensor<i64>
    %number = mpt.add %now, %extra : tensor<i64>
    %nw, %ns = mpt.adagrad %w, %g, %lr, %number, %sum : (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    %nv = mpt.sub %v, %h : tensor<4xf32>
    %more = mpt.add %extra, %one : tensor<i64>
    %count = mpt.and %cw, %not : tensor<i1>
    train.write @w, %nw if %cw : tensor<i1> : tensor<4xf32>
    train.write @w.sum, %ns if %cw : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %cv : tensor<i1> : tensor<4xf32>
    train.write @mean, %x if %all : tensor<i1> : tensor<4xf32>
    train.write @mpt.step, %now if %all : tensor<i1> : tensor<i64>
    train.write @w.extra_updates, %more if %count : tensor<i1> : tensor<i64>
    return %loss, %not : tensor<f32>, tensor<i1>
  }
}
