// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace simnpu {

// How hardware's reductions are done with those of gloo.
class Reduction {
 public:
  explicit Reduction(const c10d::ReduceOp& wanted) {
    switch (static_cast<c10d::ReduceOp::RedOpType>(wanted)) {
      case c10d::ReduceOp::SUM: number = 0; break;
      case c10d::ReduceOp::AVG:
        number = 0;
        average_ = true;
        break;
      case c10d::ReduceOp::PRODUCT: number = 1; break;
      case c10d::ReduceOp::MAX: number = 2; break;
      case c10d::ReduceOp::MIN: number = 3; break;
      default: TORCH_CHECK(false, "hccl reduces with SUM, AVG, PRODUCT, MAX or MIN only");
    }
  }

  c10d::ReduceOp of(const at::Tensor& view) const {
    using Op = c10d::ReduceOp;
    static constexpr Op::RedOpType types[] = {Op::SUM, Op::PRODUCT, Op::MAX, Op::MIN};
    static constexpr Op::RedOpType logical[] = {Op::MAX, Op::MIN, Op::MAX, Op::MIN};  // or, and
    return view.scalar_type() == at::kBool ? logical[number] : types[number];
  }

  // gloo knows no truth values: they are reduced as bytes of 0 and 1.
  static at::Tensor operand(const at::Tensor& view) {
    return view.scalar_type() == at::kBool ? view.view(at::kByte) : view;
  }

  void divide(at::Tensor& sum, int ranks) const {
    if (average_)
      sum.is_floating_point() || sum.is_complex() ? sum.div_(ranks) : sum.div_(ranks, "trunc");
  }

  uint8_t number;

 private:
  bool average_ = false;
};

}  // namespace simnpu
