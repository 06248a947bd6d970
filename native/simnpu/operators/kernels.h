// SPDX-License-Identifier: Apache-2.0
// What a kernel is called on hardware, on which core it runs there, and how long it would take.
#pragma once
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor_ref.h"

namespace simnpu {

struct KernelCall {
  std::string op;  // with its overload, "aten::add.Tensor"
  bool scalar_operand = false;  // a Python number took part
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
  std::string attributes;  // members of a JSON object: what the operator is called with besides tensors
};

// Stores the description and returns its number, or replaces that of the number given. `modelled_ns` is the time the
// model gives, before any factor.
uint32_t describe(const KernelCall& call, int64_t* modelled_ns, uint32_t number = 0);
uint32_t describe_as(const std::string& json, uint32_t number = 0);

// A value as JSON; empty for what is no attribute of a kernel, such as a device. `type` is that of the operator's schema.
std::string attribute_json(const c10::IValue& value, const std::string& type);

std::string tensors_json(const std::vector<Layout>& layouts, bool image);  // shapes, dtypes and formats of a description

uint32_t descriptions();
std::string description(uint32_t number);

}  // namespace simnpu
