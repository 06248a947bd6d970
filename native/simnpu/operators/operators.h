// SPDX-License-Identifier: Apache-2.0
// Kernels that the CPU does not have, or has under another name: they run on a worker, on CPU tensors.
#pragma once
#include <ATen/core/stack.h>

#include <string>

namespace simnpu {

using CpuKernel = void (*)(torch::jit::Stack& stack);

CpuKernel own_kernel(const std::string& op);  // nullptr: the CPU's kernel of the same name

// Makes every operator with a CPU kernel an npu operator; returns how many. Without it, operators made of others
// would show up as a second, nested operator.
int64_t register_operators();

}  // namespace simnpu
