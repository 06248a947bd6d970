# SPDX-License-Identifier: Apache-2.0
"""Environment variables that stepscope reads, which the reference page and `stepscope doctor` know from here."""

from __future__ import annotations

# Name -> what it does, in English and Chinese.
VARIABLES: dict[str, tuple[str, str]] = {
    "STEPSCOPE_ANALYSIS_JOBS": (
        "how many analyses in the background run at once (default 1)",
        "后台同时进行的分析数（默认 1）",
    ),
    "STEPSCOPE_COLLECTOR": (
        "force a collector: native, kineto or ascend (default: the best that works)",
        "指定采集方式：native、kineto 或 ascend（默认：可用的最佳方式）",
    ),
    "STEPSCOPE_CXXFLAGS": ("further flags for the C++ compiler", "C++ 编译器的附加选项"),
    "STEPSCOPE_KERNELS": ("0: analyse without the C++ kernels", "0：分析时不用 C++ 内核"),
    "STEPSCOPE_MAX_BYTES": ("a recording stops at this size", "采集达到该大小后停止"),
    "STEPSCOPE_MAX_SECONDS": ("a recording stops after this time", "采集达到该时长后停止"),
    "STEPSCOPE_MINDSPORE_RECORDER": ("which recorder MindSpore runs use", "MindSpore 使用的采集器"),
    "STEPSCOPE_MIN_FREE_BYTES": ("a recording stops when less space is free on the disk", "磁盘剩余空间低于该值时停止采集"),
    "STEPSCOPE_POLL_SECONDS": ("how often a running job looks for requests", "运行中的作业检查请求的间隔"),
    "STEPSCOPE_PROFILE": (
        "a plan such as steps=10:12,out=runs: record these steps of any torch program",
        "采集计划，如 steps=10:12,out=runs：采集任意 torch 程序的这些 step",
    ),
    "STEPSCOPE_PROF_ROOTS": ("folders in which captures of a running job may lie", "运行中的作业可写入采集数据的目录"),
    "STEPSCOPE_SERVER_TOKEN": (
        "bearer token for the servers of stepscope ctl http://…",
        "stepscope ctl http://… 所用服务器的 bearer token",
    ),
    "STEPSCOPE_SIM_CHIP": ("which chip the simulated NPU stands for", "模拟 NPU 所代表的芯片"),
    "STEPSCOPE_SIM_DEVICES": ("number of simulated NPUs", "模拟 NPU 的数量"),
    "STEPSCOPE_SIM_FAULT": (
        "what is wrong with a simulated NPU: rank=3,kind=frequency,factor=0.8",
        "模拟 NPU 的故障：rank=3,kind=frequency,factor=0.8",
    ),
    "STEPSCOPE_SIM_KERNEL_TIME": ("times of the simulated NPU: measured or modelled", "模拟 NPU 的时间：实测或建模"),
    "STEPSCOPE_SIM_LINK_TIME": ("as STEPSCOPE_SIM_KERNEL_TIME, for collectives", "同 STEPSCOPE_SIM_KERNEL_TIME，用于集合通信"),
    "STEPSCOPE_SIM_MEMORY_GB": ("memory of each simulated NPU", "每个模拟 NPU 的内存"),
    "STEPSCOPE_SIM_QUEUE_DEPTH": ("length of the task queue of the simulated NPU", "模拟 NPU 任务队列的长度"),
    "STEPSCOPE_SIM_THREADS": ("threads of each simulated NPU", "每个模拟 NPU 的线程数"),
    "STEPSCOPE_SPOOL_DIR": ("where a recording is kept until it is complete", "采集完成前数据的存放目录"),
    "STEPSCOPE_WATCH": ("1, or options: watch the steps of a job all the time", "1 或选项：持续监测作业的 step"),
}
# Set by stepscope itself for the processes that it starts.
INTERNAL = (
    "STEPSCOPE_NPU_WARNED",
    "STEPSCOPE_PROFILE_ANALYSE",
    "STEPSCOPE_PROFILE_PID",
    "STEPSCOPE_SIM_SLOW",
    "STEPSCOPE_STAND_IN",
)
