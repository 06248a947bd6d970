# SPDX-License-Identifier: Apache-2.0
"""What only captures of MindSpore have: cells of a network, scopes in the names of kernels, input pipelines."""
