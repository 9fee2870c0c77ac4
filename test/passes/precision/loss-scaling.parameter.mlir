// RUN: mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=check=parameter' --precision-loss-scaling | FileCheck %s
// RUN: not mpt-opt %S/Inputs/three.mlir '--precision-assign=loss-scale=check=parameter' --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=NOLOSS
// RUN: mpt-opt %S/Inputs/linear.mlir '--precision-assign=policy=amp-bf16 loss-scale=check=parameter' --precision-loss-scaling | FileCheck %s --check-prefix=FIXED
// RUN: not mpt-opt %S/Inputs/mlp.mlir '--precision-assign=loss-scale=check=parameter' --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=CLIP
// RUN: not mpt-opt %S/Inputs/marked.mlir '--precision-assign=loss-scale=check=parameter' --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=SUMS
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=policy=fp32 loss-scale=check=parameter' 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=none,check=parameter' 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=8,check=layer' 2>&1 | FileCheck %s --check-prefix=LAYER

// The update of a parameter waits for its own gradient and the loss; statistics, the counter of steps and the scale go by the whole step.
// CHECK: %[[LOSS:.*]] = mpt.reduce
// CHECK-NEXT: %[[L:.*]] = train.all_finite %[[LOSS]]
// CHECK: %[[G:.*]] = train.gradient @w
// CHECK-NEXT: %[[F:.*]] = train.all_finite %[[G]]
// CHECK-NEXT: %[[OWN:.*]] = mpt.and %[[F]], %[[L]]
// CHECK: train.write @w, %{{.*}} if %[[OWN]]
// CHECK: %[[ALL:.*]] = mpt.and %[[F]], %[[L]]
// CHECK-NEXT: %[[SKIPPED:.*]] = mpt.not %[[ALL]]
// CHECK: train.write @mean, %{{.*}} if %[[ALL]]
// CHECK: train.write @mpt.step, %{{.*}} if %[[ALL]]
// CHECK: train.update_scale %{{.*}}, %[[ALL]] {
// CHECK: return {{.*}}%[[SKIPPED]]

// FIXED-NOT: train.unscale
// FIXED: train.write @w, %{{.*}} if

// CLIP: expected an update of fc1.weight by the gradient of 'fc1.weight' alone for a finite check by parameter, got one that the gradient of 'fc2.weight' takes part in, as where gradients are clipped by their global norm; check the step as a whole: --loss-scale=check=step
// SUMS: expected a step without micro-steps for a finite check by parameter
// NOLOSS: expected a result that is the loss for a finite check by parameter, got none
// NOTHING: expected a loss scale before its check, since the policy has no finite check, got check=parameter
// NONE: expected check=step or check=parameter of a loss scale, got none,check=parameter
// LAYER: expected check=step or check=parameter of a loss scale, got 8,check=layer
