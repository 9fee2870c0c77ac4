// RUN: mpt-opt %s --fusion-decompose --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-decompose --canonicalize --cse --fusion-form --split-input-file | FileCheck %s --check-prefix=FORM

train.state parameter @w : tensor<32x128xf32>
train.state slot @m : tensor<32x128xui8>
train.state slot @m.scale : tensor<16xf32>

// The whole update has a row a block: one kernel, which reads and writes codes. The gradient, which others
// read as well, keeps its shape.
// CHECK-LABEL: func.func @update
// CHECK-DAG: mpt.abs %{{.*}} : tensor<32x128xf32>
// CHECK-DAG: mpt.gather %{{.*}}, %{{.*}} : (tensor<256xf32>, tensor<16x256xui8>) -> tensor<16x256xf32>
// CHECK-DAG: mpt.bucketize %{{.*}} : (tensor<16x256xf32>, tensor<255xf32>) -> tensor<16x256xui8>
// CHECK: mpt.select %{{.*}} : tensor<16x256xi1>, tensor<16x256xui8>
// FORM-LABEL: func.func @update
// FORM: %[[K:.*]]:3 = mpt.fusion(%{{.*}}) : ({{.*}}) -> (tensor<16x256xf32>, tensor<16xf32>, tensor<16x256xui8>)
// FORM: %[[W:.*]] = mpt.reshape %[[K]]#{{.}} : (tensor<16x256xf32>) -> tensor<32x128xf32>
// FORM: train.write @w, %[[W]]
func.func @update(%half: tensor<32x128xf16>, %lr: tensor<f32>, %ok: tensor<i1>) -> tensor<f32> {
  %w = train.read @w : tensor<32x128xf32>
  %c = train.read @m : tensor<32x128xui8>
  %s = train.read @m.scale : tensor<16xf32>
  %m = mpt.decode_blocks %c, %s : (tensor<32x128xui8>, tensor<16xf32>) -> tensor<32x128xf32>
  %g = mpt.cast %half : tensor<32x128xf16> to tensor<32x128xf32>
  %size = mpt.abs %g : tensor<32x128xf32>
  %max = mpt.reduce max %size {axes = array<i64: 0, 1>} : (tensor<32x128xf32>) -> tensor<f32>
  %new, %m1 = mpt.lion %w, %g, %lr, %m : (tensor<32x128xf32>, tensor<32x128xf32>, tensor<f32>, tensor<32x128xf32>) -> (tensor<32x128xf32>, tensor<32x128xf32>)
  %c1, %s1 = mpt.encode_blocks %m1 : (tensor<32x128xf32>) -> (tensor<32x128xui8>, tensor<16xf32>)
  %all = mpt.broadcast %ok {dims = array<i64>} : (tensor<i1>) -> tensor<32x128xi1>
  %kept = mpt.select %all, %c1, %c : tensor<32x128xi1>, tensor<32x128xui8>
  train.write @w, %new : tensor<32x128xf32>
  train.write @m, %kept : tensor<32x128xui8>
  train.write @m.scale, %s1 : tensor<16xf32>
  return %max : tensor<f32>
}
