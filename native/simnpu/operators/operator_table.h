// SPDX-License-Identifier: Apache-2.0
// What the schema of an operator says about how to run it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "operators/signatures.h"

namespace simnpu {

enum class Returned : uint8_t { tensor, tensors, other };

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);
  void find_out_variant();
  bool writes_to(int argument) const {
    return std::find(out_arguments.begin(), out_arguments.end(), argument) != out_arguments.end();
  }

  c10::OperatorHandle handle;
  std::string name;
  size_t arguments;
  CpuKernel own = nullptr;
  std::optional<c10::OperatorHandle> out_variant;  // writes into outputs that exist, without a copy
  bool always_waits = false;  // what comes out depends on values
  bool waits_for_masks = false;  // ... only when an index is a mask
  bool takes_host_tensors = false;
  bool makes_tensors = false;
  bool has_tensor_arguments = false;
  std::vector<bool> is_generator;
  std::vector<bool> is_written;
  std::vector<bool> is_number;  // values that change without changing the outputs' layout, such as a learning rate
  std::vector<int> alias_of;  // for each return: the argument it is, or -1
  std::vector<Returned> returned;
  std::vector<int> out_arguments;

  Signatures signatures;
};

Operator& operator_of(const c10::OperatorHandle& handle);

}  // namespace simnpu
