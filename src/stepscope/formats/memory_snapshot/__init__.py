# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of PyTorch (`torch.cuda.memory._dump_snapshot`): read as plain data, never unpickled."""
