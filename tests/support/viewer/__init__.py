# SPDX-License-Identifier: Apache-2.0
"""What tests of the viewer share: the page in a browser, and numbers that are read from the vendor's files."""
