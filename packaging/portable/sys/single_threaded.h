// SPDX-License-Identifier: Apache-2.0
// glibc says since 2.32 whether a process has one thread only; before, libstdc++ counts references as if there were several.
#pragma once
static const char __libc_single_threaded = 0;
