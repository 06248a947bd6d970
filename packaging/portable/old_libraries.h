// SPDX-License-Identifier: Apache-2.0
// The headers of a new libstdc++ for the C and C++ libraries of manylinux_2_28 (glibc 2.28, GLIBCXX_3.4.24).
#pragma once
#include <bits/c++config.h>
// Calls that glibc has since 2.30.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
// libstdc++ 12 has it twice; the older one does the same.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
