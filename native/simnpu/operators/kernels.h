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

// What is not measured but follows from the shapes of a kernel.
struct Model {
  int64_t duration_ns = 0;  // before any factor
  size_t workspace = 0;  // bytes besides its tensors
};

// Stores the description and returns its number, or replaces that of the number given.
uint32_t describe(const KernelCall& call, Model* model, uint32_t number = 0);
uint32_t describe_as(const std::string& json, uint32_t number = 0);

// A value as JSON; empty for what is no attribute of a kernel, such as a device. `type` is that of the operator's schema.
std::string attribute_json(const c10::IValue& value, const std::string& type);

std::string tensors_json(const std::vector<Layout>& layouts, bool image);  // shapes, dtypes and formats of a description

uint32_t descriptions();
std::string description(uint32_t number);

}  // namespace simnpu
