// Stated gradients, where they equal the derivatives of the values: a square, and two results of which one reaches the loss by another way.
func.func @custom_gradient(%x: tensor<2x3xf64>) -> tensor<2x3xf64> {
  %v = mpt.mul %x, %x : tensor<2x3xf64>
  %c = mpt.cotangent %v : (tensor<2x3xf64>) -> tensor<2x3xf64>
  %t = mpt.add %x, %x : tensor<2x3xf64>
  %g = mpt.mul %t, %c : tensor<2x3xf64>
  %y = mpt.custom_gradient %v cotangents %c inputs %x gradients %g : (tensor<2x3xf64>, tensor<2x3xf64>, tensor<2x3xf64>, tensor<2x3xf64>) -> tensor<2x3xf64>
  return %y : tensor<2x3xf64>
}
func.func @custom_gradient_several(%x: tensor<4xf64>, %w: tensor<4xf64>) -> (tensor<4xf64>, tensor<4xf64>) {
  %u = mpt.mul %x, %w : tensor<4xf64>
  %v = mpt.sub %x, %w : tensor<4xf64>
  %cu = mpt.cotangent %u : (tensor<4xf64>) -> tensor<4xf64>
  %cv = mpt.cotangent %v : (tensor<4xf64>) -> tensor<4xf64>
  %a = mpt.mul %cu, %w : tensor<4xf64>
  %gx = mpt.add %a, %cv : tensor<4xf64>
  %b = mpt.mul %cu, %x : tensor<4xf64>
  %gw = mpt.sub %b, %cv : tensor<4xf64>
  %y, %z = mpt.custom_gradient %u, %v cotangents %cu, %cv inputs %x, %w gradients %gx, %gw : (tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<4xf64>, tensor<4xf64>)
  return %y, %z : tensor<4xf64>, tensor<4xf64>
}
