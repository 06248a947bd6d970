# SPDX-License-Identifier: Apache-2.0
"""What is recorded beside operators: garbage collection, host load, OS calls, data loaders, parameters."""
