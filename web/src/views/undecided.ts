// SPDX-License-Identifier: Apache-2.0
// When an answer about all ranks is withheld.

/** Kinds of problems of a run after which nobody is named, so nobody is cleared either. */
export const UNDECIDED: readonly string[] = ["one_step", "replay", "cycle", "no_calls", "no_common_steps"];
