// RUN: mpt-run %s
// One update of each optimizer that looks at a whole parameter, against the formulas in NumPy float64.

func.func @lamb() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.lamb %x0, %x1, %x2, %x3, %x4, %x5 {weight_decay = 0.1 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.3325984477996826, 2.428248882293701, 0.19628828763961792]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 16 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.987500011920929, -1.3875000476837158, 0.5249999761581421]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 16 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.5002655982971191, 0.2532656192779541, 1.998140573501587]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 16 : i64} : tensor<3xf32>
  return
}

func.func @lamb_of_zero() {
  %x0 = mpt.constant dense<[0.0, 0.0, 0.0]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.lamb %x0, %x1, %x2, %x3, %x4, %x5 {} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[-0.028204012662172318, 0.05569535493850708, -0.0075027490966022015]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 16 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.987500011920929, -1.3875000476837158, 0.5249999761581421]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 16 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.5002655982971191, 0.2532656192779541, 1.998140573501587]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 16 : i64} : tensor<3xf32>
  return
}

func.func @lars() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.lars %x0, %x1, %x2, %x3 {trust = 0.01 : f64, epsilon = 0.001 : f64, weight_decay = 0.1 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[1.7233909368515015, 3.8220293521881104, -0.3120048940181732]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 8 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.9016090631484985, -1.5720293521881104, 0.5620049238204956]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 8 : i64} : tensor<3xf32>
  return
}

func.func @lars_of_zero() {
  %x0 = mpt.constant dense<[0.0, 0.0, 0.0]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.lars %x0, %x1, %x2, %x3 {} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[-0.987500011920929, 1.3875000476837158, -0.5249999761581421]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 8 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.987500011920929, -1.3875000476837158, 0.5249999761581421]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 8 : i64} : tensor<3xf32>
  return
}

func.func @adafactor() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1 = mpt.adafactor %x0, %x1, %x2, %x3, %x4 {weight_decay = 0.1 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.3929221630096436, 1.955610990524292, 0.30968934297561646]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 16 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.6102991104125977, 1.606029987335205, 1.227906346321106]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 16 : i64} : tensor<3xf32>
  return
}

func.func @adafactor_factored() {
  %x0 = mpt.constant dense<[[2.625, 2.25, 0.25], [-1.5, 0.75, 3.0]]> : tensor<2x3xf32>
  %x1 = mpt.constant dense<[[0.875, 1.875, -0.375], [0.125, -0.5, 0.25]]> : tensor<2x3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[[0.5], [0.25]]> : tensor<2x1xf32>
  %x5 = mpt.constant dense<[[0.25, 0.5, 0.125]]> : tensor<1x3xf32>
  %y0, %y1, %y2 = mpt.adafactor %x0, %x1, %x2, %x3, %x4, %x5 {clip = 1.0 : f64} : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i64>, tensor<2x1xf32>, tensor<1x3xf32>) -> (tensor<2x3xf32>, tensor<2x1xf32>, tensor<1x3xf32>)
  %e0 = mpt.constant dense<[[2.39174222946167, 1.9821827411651611, 0.41351518034935], [-1.572396993637085, 0.905163586139679, 2.7631630897521973]]> : tensor<2x3xf32>
  check.ulp_close %y0, %e0 {ulps = 16 : i64} : tensor<2x3xf32>
  %e1 = mpt.constant dense<[[0.9044300317764282], [0.19160635769367218]]> : tensor<2x1xf32>
  check.ulp_close %y1, %e1 {ulps = 16 : i64} : tensor<2x1xf32>
  %e2 = mpt.constant dense<[[0.3083936274051666, 1.0742040872573853, 0.11526772379875183]]> : tensor<1x3xf32>
  check.ulp_close %y2, %e2 {ulps = 16 : i64} : tensor<1x3xf32>
  return
}
