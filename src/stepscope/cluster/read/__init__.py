# SPDX-License-Identifier: Apache-2.0
"""From captures to digests: which captures there are, how each is read, where digests are kept, and who does the work."""
