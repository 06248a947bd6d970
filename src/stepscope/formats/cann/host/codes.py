# SPDX-License-Identifier: Apache-2.0
"""Names of the codes in host records (docs/formats/cann.md 3.1, 3.3, 3.4, 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats import NONE32

_RESERVED = 255


def _by_number(words: str, first: int = 0) -> dict[int, str]:
    """Words by their number in order; `-` leaves a number out."""
    return {number: word for number, word in enumerate(words.split(), first) if word != "-"}


ACL_GROUPS = _by_number(
    "ACL_OP ACL_MODEL ACL_RTS ACL_OTHERS ACL_NN ACL_ASCENDC HOST_HCCL - ACL_DVPP ACL_GRAPH ACL_ATB HIXL", 1
)  # fmt: skip

AI_CORE, AI_CPU, FFTS_GRAPH, COMMUNICATION, HCCL_AI_CPU = 0, 1, 6, 9, 256
CORES = {
    **_by_number("AI_CORE AI_CPU AI_VECTOR_CORE WRITE_BACK MIX_AIC MIX_AIV FFTS_PLUS DSA_SQE DVPP COMMUNICATION FUSION INVALID"),
    HCCL_AI_CPU: "HCCL_AI_CPU",
}
# Core of a kernel that only the runtime described.
RUNTIME_CORES = {
    "KERNEL_AICORE": 0, "KERNEL_AICPU": 1, "KERNEL_AIVEC": 2, "KERNEL_MIX_AIC": 4, "KERNEL_MIX_AIV": 5, "SIMT": 2, "KERNEL_SIMT": 2,
}  # fmt: skip

DATA_TYPES = {
    **_by_number(
        "FLOAT FLOAT16 INT8 INT32 UINT8 - INT16 UINT16 UINT32 INT64 UINT64 DOUBLE BOOL STRING DUAL_SUB_INT8 DUAL_SUB_UINT8 "
        "COMPLEX64 COMPLEX128 QINT8 QINT16 QINT32 QUINT8 QUINT16 RESOURCE STRING_REF DUAL DT_VARIANT DT_BF16 DT_UNDEFINED DT_INT4 "
        "DT_UINT1 DT_INT2 DT_UINT2 DT_COMPLEX32 DT_HIFLOAT8 DT_FLOAT8_E5M2 DT_FLOAT8_E4M3FN DT_FLOAT8_E8M0 DT_FLOAT6_E3M2 "
        "DT_FLOAT6_E2M3 DT_FLOAT4_E2M1 DT_FLOAT4_E1M2 DT_HIFLOAT4 DT_MAX"
    ),
    **_by_number(
        "NUMBER_TYPE_BEGIN_ BOOL_ INT_ INT8_ INT16_ INT32_ INT64_ UINT_ UINT8_ UINT16_ UINT32_ UINT64_ FLOAT_ FLOAT16_ FLOAT32_ "
        "FLOAT64_ COMPLEX_ NUMBER_TYPE_END_",
        229,
    ),
    NONE32: "UNDEFINED",
}
FORMATS = {
    **_by_number(
        "NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 FRACTAL_DECONV_TRANSPOSE "
        "FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN FRACTAL_DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT "
        "FILTER_HWCK HASHTABLE_LOOKUP_LOOKUPS HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT "
        "HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D CN NC DHWNC "
        "FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS FRACTAL_ZN_RNN NYUV NYUV_A NCL "
        "FRACTAL_Z_WINO C1HWC0 FRACTAL_NZ_C0_16 FRACTAL_NZ_C0_32 FRACTAL_NZ_C0_2 FRACTAL_NZ_C0_4 FRACTAL_NZ_C0_8 END"
    ),
    **_by_number(
        "UNKNOWN_ DEFAULT_ NC1KHKWHWC0_ ND_ NCHW_ NHWC_ HWCN_ NC1HWC0_ FRAC_Z_ C1HWNCOC0_ FRAC_NZ_ NC1HWC0_C04_ FRACTAL_Z_C04_ "
        "NDHWC_ FRACTAL_ZN_LSTM_ FRACTAL_ZN_RNN_ ND_RNN_BIAS_ NDC1HWC0_ NCDHW_ FRACTAL_Z_3D_ DHWNC_ DHWCN_",
        200,
    ),
    _RESERVED: "MAX",
}

HCCL_DATA_TYPES = _by_number(
    "INT8 INT16 INT32 FP16 FP32 INT64 UINT64 UINT8 UINT16 UINT32 FP64 BFP16 INT128 - HIF8 FP8E4M3 FP8E5M2 FP8E8M0"
)
HCCL_LINKS = _by_number("ON_CHIP HCCS PCIE ROCE SIO HCCS_SW STANDARD_ROCE UB UBoE")
HCCL_TRANSPORTS = _by_number("SDMA RDMA LOCAL UB ROCE")
HCCL_RDMA = _by_number("RDMA_SEND_NOTIFY RDMA_SEND_PAYLOAD")
HCCL_REDUCE = _by_number("SUM MUL MAX MIN")

COPY_DIRECTIONS = dict(
    enumerate(
        (
            "host to host", "host to device", "device to host", "device to device", "managed memory", "addr device to device",
            "host to device ex", "device to host ex",
        )
    )
)  # fmt: skip
MARK_KINDS = {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"}


def format_text(number: int) -> str:
    """Base format, and the sub format behind a colon."""
    if number == NONE32:
        return "UNDEFINED"
    base, sub = number & 0xFF, number >> 8 & 0xFFFF
    word = FORMATS.get(base, str(base))
    return f"{word}:{sub}" if sub else word


def data_type_text(number: int) -> str:
    return DATA_TYPES.get(number, str(number))


def code_names(numbers: npt.NDArray[Any], words: Mapping[int, str], *, unknown: bool = True) -> pl.Series:
    """Names of a column of codes; a code without a name becomes its number as text, or null."""
    unique, inverse = np.unique(numbers, return_inverse=True)
    texts = [words.get(code, str(code) if unknown else None) for code in unique.tolist()]
    return pl.Series(texts, dtype=pl.String).gather(inverse)


def hccl_code_names(numbers: npt.NDArray[Any], words: Mapping[int, str]) -> pl.Series:
    """As `code_names`; 255 (reserved) and 4294967295 (not valid) are null (docs/formats/cann.md 3.5)."""
    unset = (numbers == _RESERVED) | (numbers == NONE32)
    return code_names(numbers, words).set(pl.Series(unset), None)
