# SPDX-License-Identifier: Apache-2.0
"""What the numbers of MindSpore's host records stand for (docs/formats/mindspore.md 7.2)."""

from __future__ import annotations

import re

UNKNOWN = "Default"

STAGES = (
    "Default", "Python", "Capture", "RunGraph", "RunGrad", "RunOp", "Asnumpy", "CompileGradGraph", "WaitPipeline", "SyncStream",
)  # fmt: skip

MODULES = (
    "Default", "GraphExecutorPy", "RuntimeFramework", "PynativeFramework", "Kernel", "Python", "Capture", "Other",
)  # fmt: skip

EVENTS = (
    "Default", "KernelInfer", "KernelResize", "KernelInferAndResize", "KernelLaunch", "KernelLaunckCallback", "KernelUpdate",
    "KernelPrepareData", "GraphLaunch", "InputProcess", "OutputProcess", "WaitTaskFinish", "PreLaunch", "PostLaunch", "SendOutput",
    "MemoryAlloc", "MemoryFree", "CopyData", "StreamSync", "ProcessMultiStream", "WaitKernelsInferFinish",
    "WaitKernelsResizeFinish", "WaitKernelsLaunchFinish", "KernelInferInner", "KernelInferDataSync", "KernelResizeInner",
    "KernelLaunchInner", "BackendGraphRunInner", "RunOp", "PyNativeFrontendTask", "PyNativeBackendTask", "PyNativeDeviceTask",
    "PyNativeLaunchTask", "PyNativeBpropTask", "Wait", "PyNativeGilAcquire", "PyNativeCast", "PyNativeInfer", "PyNativeOpCompile",
    "PyNativeGradExpander", "PyNativeGradUpdateSens", "PyNativeGradClearTopCell", "PyNativeGradClearAutoGradCell",
    "PyBoostInferOutput", "PyBoostInferByOpDef", "PyBoostCreateOutputTensor", "PyBoostDeviceTask", "PyBoostMallocInput",
    "PyBoostMallocOutput", "PyBoostLaunchAclnn", "PyBoostLaunchAtb", "PyNativeNewGraph", "PyNativeEndGraph", "PythonObserved",
    "CaptureRunGraph", "CaptureProcess", "CaptureCompile", "CaptureGuard", "AclnnHitCacheStage1", "AclnnHitCacheStage2",
    "AclnnMissCacheStage1", "AclnnMissCacheStage2", "AclnnUpdateAddress", "AclnnRunOp", "RunExpanderFunc", "EmitOp", "Execute",
    "ReleaseResource", "NativeFunc",
)  # fmt: skip

_LATER = "PyBoostLaunchAtb"  # added in 2.7


def events_of(version: str) -> tuple[str, ...]:
    """Event names by number in a version of MindSpore; for an unknown version those of the latest."""
    number = re.match(r"(\d+)\.(\d+)", version)
    if number and (int(number[1]), int(number[2])) < (2, 7):
        return tuple(name for name in EVENTS if name != _LATER)
    return EVENTS
