// SPDX-License-Identifier: Apache-2.0
// Random numbers of the device: each generator owns a CPU generator, which its kernels draw from.
#pragma once
#include <ATen/core/Generator.h>

namespace simnpu {

const at::Generator& default_generator(int device);
at::Generator new_generator(int device);
at::Generator cpu_generator_of(const at::Generator& generator);

}  // namespace simnpu
