// RUN: mpt-opt %s --split-input-file --verify-diagnostics

func.func @order(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  // expected-error@+1 {{C1: expected every dimension of the tensor once, got [1, 1]}}
  %t = mpt.transpose %a {permutation = array<i64: 1, 0>, library.layouts = [#library.layout<[1, 1]>]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %t : tensor<3x2xf32>
}

// -----

func.func @count(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  // expected-error@+1 {{expected one #library.layout for each of 1 results, got 2}}
  %t = mpt.transpose %a {permutation = array<i64: 1, 0>, library.layouts = [#library.layout<[1, 0]>, #library.layout<[1, 0]>]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %t : tensor<3x2xf32>
}

// -----

func.func @rank(%a: tensor<2x3xf32>) -> tensor<3x2xf32> {
  // expected-error@+1 {{expected a #library.layout of the rank of 'tensor<3x2xf32>', got #library.layout<[0, 2, 1]>}}
  %t = mpt.transpose %a {permutation = array<i64: 1, 0>, library.layouts = [#library.layout<[0, 2, 1]>]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %t : tensor<3x2xf32>
}

// -----

func.func @placed(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{expected numbers of operands, got array<i64: 1>}}
  return {library.placed = array<i64: 1>} %a : tensor<2x3xf32>
}

// -----

func.func @lent(%a: tensor<2x3xf32>) {
  // expected-error@+1 {{expected a state or unit for each of 1 results, got [@w, unit]}}
  %t = mpt.fusion(%a) {library.lent = [@w, unit]} : (tensor<2x3xf32>) -> tensor<2x3xf32> {
  ^bb0(%p: tensor<2x3xf32>):
    %s = mpt.neg %p : tensor<2x3xf32>
    mpt.yield %s : tensor<2x3xf32>
  }
  return
}
