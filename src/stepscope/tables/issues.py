# SPDX-License-Identifier: Apache-2.0
"""The register of issues: everything that table `quality` can say about a capture, each fault once, in English and Chinese.

A *loss* is recorded data that is not in the tables; only losses are summed, per unit. A *warning* is a reason to look
twice at a result. A *note* is normal and only explains a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Severity = Literal["loss", "warning", "note"]
Unit = Literal["records", "rows", "values", "files", "bytes"]
Language = Literal["en", "zh"]

SEVERITIES: tuple[Severity, ...] = ("loss", "warning", "note")  # most serious first
UNITS: dict[Unit, tuple[str, str, str]] = {  # one and many in English, Chinese with its measure word
    "records": ("record", "records", "条记录"),
    "rows": ("row", "rows", "行"),
    "values": ("value", "values", "个值"),
    "files": ("file", "files", "个文件"),
    "bytes": ("byte", "bytes", "字节"),
}

_FORMS = re.compile(r"\{(\w+)\}|\{([^{}|]*)\|([^{}|]*)\}")


@dataclass(frozen=True)
class Issue:
    """One fault or fact.

    `{count}` in a sentence is the number of units, `{sources}` the number of files or stages that report it; `{one|many}`
    agrees with the number before it.
    """

    name: str
    severity: Severity
    unit: Unit
    sentence: str
    sentence_zh: str
    advice: str
    advice_zh: str

    def sentence_for(self, count: int, sources: int = 1, language: Language = "en") -> str:
        numbers = {"count": count, "sources": sources}
        number = count

        def form(found: re.Match[str]) -> str:
            nonlocal number
            if found[1]:
                number = numbers[found[1]]
                return f"{number:,}"
            return found[2] if number == 1 else found[3]

        return _FORMS.sub(form, self.sentence if language == "en" else self.sentence_zh)

    def advice_for(self, language: Language = "en") -> str:
        return self.advice if language == "en" else self.advice_zh


REGISTER: dict[str, Issue] = {}


def _issue(severity: Severity, name: str, unit: Unit, *, sentence: tuple[str, str], advice: tuple[str, str] = ("", "")) -> Issue:
    assert name not in REGISTER, name
    REGISTER[name] = Issue(name, severity, unit, *sentence, *advice)
    return REGISTER[name]


_CAPTURE_AGAIN = "Capture again; the file is damaged.", "文件已损坏，请重新采集。"
_REPORT = (
    "Update stepscope; if it stays, report it with the name of the file and the version of the profiler.",
    "请升级 stepscope；若仍存在，请附上文件名和采集工具版本反馈。",
)
_NORMAL = "Nothing to do.", "无需处理。"

# The recording itself.

RECORDING_UNFINISHED = _issue(
    "warning",
    "recording-unfinished",
    "files",
    sentence=(
        "the recording did not end: the process was killed, or is still recording",
        "采集没有正常结束：进程被终止，或仍在采集",
    ),
    advice=(
        "The last moments are missing. Call stop(), or let the schedule end, before the process exits.",
        "末尾的数据缺失。请在进程退出前调用 stop()，或等待 schedule 结束。",
    ),
)
RECORDING_ENDED_EARLY = _issue(
    "warning",
    "recording-ended-early",
    "files",
    sentence=("the recording ended early: it reached a limit", "采集提前结束：达到了上限"),
    advice=(
        "Record fewer steps or switch off what is not needed, or raise the limit.",
        "请减少采集的 step 数、关闭不需要的开关，或提高上限。",
    ),
)
DROPPED_WHILE_RECORDING = _issue(
    "loss",
    "dropped-while-recording",
    "records",
    sentence=(
        "{count} {record|records} {was|were} dropped while recording: there was no room in memory",
        "采集时因内存不足丢弃了 {count} 条记录",
    ),
    advice=("Record fewer steps, or switch off stacks and shapes.", "请减少采集的 step 数，或关闭调用栈和 shape 的采集。"),
)
DROPPED_BY_DEVICE = _issue(
    "loss",
    "dropped-by-device",
    "records",
    sentence=(
        "{count} {gap|gaps} in the device's record counter: at least one record was dropped at each",
        "设备记录计数器出现 {count} 处跳变，每处至少丢失一条记录",
    ),
    advice=("Use a lower profiler level or fewer metrics.", "请降低采集级别或减少采集的指标。"),
)

# Files.

UNREADABLE_FILE = _issue(
    "loss",
    "unreadable-file",
    "files",
    sentence=("{count} {file|files} could not be read", "{count} 个文件无法读取"),
    advice=("Check the permissions; if those are right, the file is damaged.", "请检查权限；若权限正常，则文件已损坏。"),
)
UNREADABLE_FOLDER = _issue(
    "loss",
    "unreadable-folder",
    "files",
    sentence=("{count} {folder|folders} could not be read", "{count} 个目录无法读取"),
    advice=("Check that the folder was copied whole, and its permissions.", "请检查目录是否完整拷贝以及其权限。"),
)
UNREADABLE_SETTINGS = _issue(
    "warning",
    "unreadable-settings",
    "files",
    sentence=(
        "{count} {file|files} with settings could not be read: defaults are used",
        "{count} 个配置文件无法读取，使用默认值",
    ),
    advice=("Times or names may be wrong: copy the capture again, whole.", "时间或名称可能有误，请重新完整拷贝采集目录。"),
)
MISSING_SETTINGS = _issue(
    "warning",
    "missing-settings",
    "files",
    sentence=("profiler_info is missing: the settings of the capture are unknown", "缺少 profiler_info，采集配置未知"),
    advice=(
        "Copy profiler_info*.json beside the records; a killed process never writes it.",
        "请把 profiler_info*.json 拷到采集目录；进程被终止时不会写出该文件。",
    ),
)
UNKNOWN_SETTING = _issue(
    "warning",
    "unknown-setting",
    "values",
    sentence=("{count} {setting has|settings have} an unknown value: the default is used", "{count} 项配置的值未知，使用默认值"),
    advice=_REPORT,
)
EMPTY_FILE = _issue(
    "loss",
    "empty-file",
    "files",
    sentence=("{count} {file is|files are} empty", "{count} 个文件为空"),
    advice=("Export again; the disk may have been full.", "请重新导出，可能是磁盘已满。"),
)
TRUNCATED_FILE = _issue(
    "loss",
    "truncated-file",
    "files",
    sentence=(
        "{count} {file ends|files end} early: everything before the cut was read",
        "{count} 个文件不完整，已读取截断处之前的内容",
    ),
    advice=(
        "Copy the file again; if it is still short, the process was killed while writing.",
        "请重新拷贝；若仍不完整，说明写文件时进程被终止。",
    ),
)
MISSING_SLICES = _issue(
    "loss",
    "missing-slices",
    "files",
    sentence=("{count} {slice|slices} in the middle of a series of files {is|are} missing", "文件序列中间缺少 {count} 个分片"),
    advice=("Copy the folder again, whole.", "请重新完整拷贝目录。"),
)
UNKNOWN_FILE = _issue(
    "loss",
    "unknown-file",
    "bytes",
    sentence=("{count} {byte|bytes} in {sources} {file|files} not understood", "{sources} 个文件中有 {count} 字节无法解析"),
    advice=_REPORT,
)
UNREADABLE_BYTES = _issue(
    "loss",
    "unreadable-bytes",
    "bytes",
    sentence=("{count} damaged {byte|bytes} in {sources} {file|files} skipped", "跳过了 {sources} 个文件中 {count} 字节的损坏数据"),
    advice=_CAPTURE_AGAIN,
)
MISSING_COLUMNS = _issue(
    "loss",
    "missing-columns",
    "files",
    sentence=(
        "{count} {file or table lacks|files or tables lack} needed columns and {was|were} not read",
        "{count} 个文件或表缺少必需的列，未读取",
    ),
    advice=_REPORT,
)
DAMAGED_TABLE = _issue(
    "loss",
    "damaged-table",
    "files",
    sentence=(
        "{count} {table of a database is|tables of a database are} damaged: the rows before the damage were read",
        "数据库中有 {count} 张表损坏，已读取损坏处之前的行",
    ),
    advice=("Copy the database again, or export it again.", "请重新拷贝或重新导出数据库。"),
)
UNSUPPORTED_TABLE = _issue(
    "warning",
    "unsupported-table",
    "files",
    sentence=("{count} {table|tables} of a database {is|are} not read by stepscope", "stepscope 不读取数据库中的 {count} 张表"),
    advice=("Query the database itself for them.", "如需使用，请直接查询数据库。"),
)
MISSING_NAMES = _issue(
    "warning",
    "missing-names",
    "files",
    sentence=("the database has no table of strings: names are unknown", "数据库缺少字符串表，名称未知"),
    advice=("Export the database again.", "请重新导出数据库。"),
)
FURTHER_FILES = _issue(
    "note",
    "further-files",
    "files",
    sentence=(
        "{count} more {file|files} of the same kind {was|were} left out: one is enough",
        "另有 {count} 个同类文件未读取：只需其中一个",
    ),
    advice=("Remove the one that was read to use another.", "若要使用其他文件，请移走已读取的那个。"),
)
LINK_NOT_FOLLOWED = _issue(
    "warning",
    "link-not-followed",
    "files",
    sentence=("{count} symbolic {link was|links were} not followed", "{count} 个符号链接未跟随"),
    advice=(
        "Captures are read without following links inside them: copy the file to its place.",
        "读取采集目录时不跟随其中的链接，请把文件拷贝到原位置。",
    ),
)
PATH_IS_LINK = _issue(
    "note",
    "path-is-link",
    "files",
    sentence=("the path is a symbolic link", "该路径是符号链接"),
    advice=_NORMAL,
)
STORE_NOT_WRITTEN = _issue(
    "warning",
    "store-not-written",
    "files",
    sentence=("the tables could not be kept: the next opening reads everything again", "表无法缓存，下次打开需重新读取"),
    advice=("Free some space, or make the folder writable.", "请释放磁盘空间，或使目录可写。"),
)

# Device data as a whole.

RAW_DEVICE_UNREAD = _issue(
    "loss",
    "raw-device-unread",
    "files",
    sentence=("the raw device records of {count} {folder|folders} could not be read", "{count} 个目录的设备原始数据无法读取"),
    advice=("Parse the folder with the vendor's msprof, then analyse again.", "请先用 msprof 解析该目录，再重新分析。"),
)
PARSED_INSTEAD_OF_RAW = _issue(
    "note",
    "parsed-instead-of-raw",
    "files",
    sentence=(
        "the raw device records of {count} {folder|folders} cannot be read: the vendor's parsed files were read instead",
        "{count} 个目录的设备原始数据无法读取，改为读取厂商解析结果",
    ),
    advice=_NORMAL,
)
MISSING_DEVICE_DATA = _issue(
    "loss",
    "missing-device-data",
    "files",
    sentence=(
        "{count} PROF {folder holds|folders hold} neither raw records nor parsed files",
        "{count} 个 PROF 目录既无原始数据也无解析结果",
    ),
    advice=("Copy the folder again, whole, or capture again.", "请重新完整拷贝目录或重新采集。"),
)
ACTIVITY_WITHOUT_DATA = _issue(
    "warning",
    "activity-without-data",
    "files",
    sentence=("{count} {activity|activities} switched on left no data", "{count} 个已开启的 activity 没有数据"),
    advice=("Copy the capture again, whole, or check the log of the job.", "请重新完整拷贝采集目录，或检查训练日志。"),
)
# Clocks.

INCOMPLETE_CLOCK = _issue(
    "warning",
    "incomplete-clock",
    "files",
    sentence=(
        "a clock is missing or incomplete: times may be shifted against each other or the wall clock",
        "时钟信息缺失或不完整：时间可能与其他数据或真实时间有偏移",
    ),
    advice=(
        "Compare durations, not times of day; copy the capture again, whole.",
        "请只比较时长而非时刻；并重新完整拷贝采集目录。",
    ),
)
CALLS_WITHOUT_CLOCK = _issue(
    "loss",
    "calls-without-clock",
    "records",
    sentence=(
        "{count} system {call|calls} could not be placed on the clock of the capture",
        "{count} 次系统调用无法对齐到采集的时钟",
    ),
    advice=("Record again for longer: the two clocks need moments in common.", "请延长采集时间：两个时钟需要共同的时刻。"),
)

# Damaged records and lines.

TRUNCATED_RECORD = _issue(
    "loss",
    "truncated-record",
    "records",
    sentence=("{count} {record was|records were} cut off", "{count} 条记录被截断"),
    advice=("Normal at the end of a killed process; else copy the file again.", "进程被终止时末尾截断属正常；否则请重新拷贝文件。"),
)
DAMAGED_RECORD = _issue(
    "loss",
    "damaged-record",
    "records",
    sentence=("{count} {record is|records are} damaged", "{count} 条记录损坏"),
    advice=_CAPTURE_AGAIN,
)
UNREADABLE_LINE = _issue(
    "loss",
    "unreadable-line",
    "rows",
    sentence=("{count} {line|lines} could not be read", "{count} 行无法读取"),
    advice=("Normal for the last line of a killed process; else export again.", "进程被终止时最后一行属正常；否则请重新导出。"),
)
EXTRA_CELLS = _issue(
    "warning",
    "extra-cells",
    "rows",
    sentence=(
        "{count} {line has|lines have} more cells than the header: these are ignored",
        "{count} 行的单元格多于表头，多余部分已忽略",
    ),
    advice=(
        "Check the names in these lines: a comma without quotes splits a cell.",
        "请检查这些行中的名称：未加引号的逗号会拆分单元格。",
    ),
)
INCOMPLETE_ROW = _issue(
    "loss",
    "incomplete-row",
    "rows",
    sentence=("{count} {row lacks|rows lack} a needed value and {was|were} left out", "{count} 行缺少必需的值，已略去"),
    advice=("Export again.", "请重新导出。"),
)
UNREADABLE_EVENT = _issue(
    "loss",
    "unreadable-event",
    "records",
    sentence=("{count} {event is|events are} damaged and {was|were} left out", "{count} 个事件损坏，已略去"),
    advice=_CAPTURE_AGAIN,
)
EVENT_WITHOUT_TIME = _issue(
    "loss",
    "event-without-time",
    "records",
    sentence=("{count} {event has|events have} no time and {was|were} left out", "{count} 个事件没有时间，已略去"),
    advice=_CAPTURE_AGAIN,
)
ENDS_BEFORE_START = _issue(
    "loss",
    "ends-before-start",
    "records",
    sentence=("{count} {record ends|records end} before {it begins|they begin}", "{count} 条记录的结束早于开始"),
    advice=_CAPTURE_AGAIN,
)
INVALID_DURATION = _issue(
    "warning",
    "invalid-duration",
    "records",
    sentence=(
        "{count} {event has|events have} no valid duration: shown with length 0",
        "{count} 个事件没有有效时长，按 0 显示",
    ),
    advice=("Normal for ranges still open when the recording ended.", "采集结束时仍未关闭的区间属正常情况。"),
)
UNREADABLE_VALUE = _issue(
    "loss",
    "unreadable-value",
    "values",
    sentence=("{count} {value|values} could not be read: shown as missing", "{count} 个值无法读取，显示为缺失"),
    advice=_REPORT,
)
VALUE_OUT_OF_RANGE = _issue(
    "loss",
    "value-out-of-range",
    "values",
    sentence=(
        "{count} {value|values} cannot be what was measured: shown as missing, durations as 0",
        "{count} 个值超出可能的范围，显示为缺失，时长按 0 显示",
    ),
    advice=_REPORT,
)
TEXT_NOT_UTF8 = _issue(
    "warning",
    "text-not-utf8",
    "values",
    sentence=("{count} {text is|texts are} not UTF-8: shown as missing or with �", "{count} 段文本不是 UTF-8，显示为缺失或 �"),
    advice=("Use UTF-8 names in the script.", "请在脚本中使用 UTF-8 名称。"),
)

# Records that are whole but say something unknown.

UNKNOWN_KIND = _issue(
    "loss",
    "unknown-kind",
    "records",
    sentence=("{count} {record|records} of an unknown kind", "{count} 条记录的类型未知"),
    advice=_REPORT,
)
UNKNOWN_DEVICE_CATEGORY = _issue(
    "warning",
    "unknown-device-category",
    "records",
    sentence=(
        "{count} device {event|events} of an unknown category: shown as other work",
        "{count} 个设备事件的类别未知，显示为其他任务",
    ),
    advice=_REPORT,
)
UNSUPPORTED_KIND = _issue(
    "warning",
    "unsupported-kind",
    "records",
    sentence=("{count} {record|records} of a kind that stepscope does not show", "{count} 条记录的类型 stepscope 不显示"),
    advice=("Open the file with the vendor's tool if you need them.", "如需查看，请用厂商工具打开该文件。"),
)
NOT_UNDERSTOOD = _issue(
    "loss",
    "not-understood",
    "records",
    sentence=("{count} {record was|records were} not understood", "{count} 条记录无法理解"),
    advice=_REPORT,
)
UNNAMED_KIND = _issue(
    "warning",
    "unnamed-kind",
    "records",
    sentence=(
        "{count} {record|records} of a kind without a known name: shown by number",
        "{count} 条记录的类型没有已知名称，按编号显示",
    ),
    advice=_REPORT,
)
INCOMPLETE_SAMPLE = _issue(
    "loss",
    "incomplete-sample",
    "records",
    sentence=("{count} {sample is|samples are} incomplete and {was|were} left out", "{count} 个采样不完整，已略去"),
    advice=("Curves have gaps there.", "曲线在该处有空缺。"),
)
EMPTY_SAMPLE = _issue(
    "note",
    "empty-sample",
    "records",
    sentence=("{count} {sample|samples} in which nothing was counted (normal)", "{count} 个采样没有计数（正常）"),
    advice=_NORMAL,
)

# What lies before the recording or across its ends.

ALLOCATED_BEFORE_RECORDING = _issue(
    "note",
    "allocated-before-recording",
    "records",
    sentence=(
        "{count} {block was|blocks were} allocated before recording began (normal)",
        "{count} 个内存块在采集开始前已分配（正常）",
    ),
    advice=("Their releases have no allocation to belong to.", "这些内存块只有释放记录，没有分配记录。"),
)
BEFORE_RECORDING = _issue(
    "note",
    "before-recording",
    "records",
    sentence=(
        "{count} {record|records} began before the recording (normal)",
        "{count} 条记录在采集开始前已开始（正常）",
    ),
    advice=_NORMAL,
)
START_WITHOUT_END = _issue(
    "note",
    "start-without-end",
    "records",
    sentence=(
        "{count} {range|ranges} began but did not end while recording",
        "{count} 个区间已开始但在采集期间未结束",
    ),
    advice=("Normal at the end of a recording.", "在采集末尾属正常。"),
)
END_WITHOUT_START = _issue(
    "note",
    "end-without-start",
    "records",
    sentence=(
        "{count} {range or arrow ends|ranges or arrows end} whose start was not recorded",
        "{count} 个区间或连线的起点未被记录",
    ),
    advice=("Normal at the start of a recording.", "在采集开头属正常。"),
)
UNPAIRED_RECORD = _issue(
    "warning",
    "unpaired-record",
    "records",
    sentence=("{count} {record|records} without the other half: left out", "{count} 条记录缺少配对的另一半，已略去"),
    advice=("A few are normal at the ends of a recording.", "采集首尾出现少量属正常。"),
)
REPEATED_RELEASE = _issue(
    "warning",
    "repeated-release",
    "records",
    sentence=("{count} {release|releases} of blocks that were released before: ignored", "{count} 次重复释放内存块，已忽略"),
    advice=("Some allocations between them were not recorded.", "两次释放之间有分配未被记录。"),
)

# What could not be matched.

LAUNCH_NOT_RECORDED = _issue(
    "note",
    "launch-not-recorded",
    "records",
    sentence=(
        "the launch of {count} device {task|tasks} was not recorded (normal for launches before the recording, and in graphs)",
        "{count} 个设备任务的下发未被记录（采集前下发或图模式下属正常）",
    ),
    advice=("Their time belongs to no operator.", "它们的时间不计入任何算子。"),
)
LAUNCHED_OUTSIDE_OPERATORS = _issue(
    "note",
    "launched-outside-operators",
    "records",
    sentence=(
        "{count} device {task was|tasks were} launched outside every recorded operator",
        "{count} 个设备任务在所有已记录的算子之外下发",
    ),
    advice=("Their time belongs to no operator.", "它们的时间不计入任何算子。"),
)
OPERATOR_UNKNOWN = _issue(
    "warning",
    "operator-unknown",
    "records",
    sentence=(
        "the operator of {count} device {task|tasks} is unknown: host and device records do not match",
        "{count} 个设备任务的算子未知：主机与设备记录不匹配",
    ),
    advice=("A few are normal at the ends of a recording.", "采集首尾出现少量属正常。"),
)
UNMATCHED_COMMUNICATION = _issue(
    "warning",
    "unmatched-communication",
    "records",
    sentence=(
        "{count} communication {record|records} could not be matched between host and device",
        "{count} 条通信记录在主机与设备之间无法匹配",
    ),
    advice=("A few are normal at the ends of a recording.", "采集首尾出现少量属正常。"),
)
UNMATCHED_COUNTERS = _issue(
    "warning",
    "unmatched-counters",
    "records",
    sentence=("{count} {record|records} of hardware counters {belongs|belong} to no task", "{count} 条硬件计数记录不属于任何任务"),
    advice=("A few are normal at the ends of a recording.", "采集首尾出现少量属正常。"),
)
SUPERSEDED_COUNTERS = _issue(
    "note",
    "superseded-counters",
    "records",
    sentence=(
        "{count} further {record|records} of hardware counters of the same task: the latest is kept",
        "同一任务另有 {count} 条硬件计数记录，仅保留最后一条",
    ),
    advice=_NORMAL,
)
OUTSIDE_CALLS = _issue(
    "warning",
    "outside-calls",
    "records",
    sentence=("{count} {record lies|records lie} outside every recorded call", "{count} 条记录不在任何已记录的调用之内"),
    advice=("A few are normal at the ends of a recording.", "采集首尾出现少量属正常。"),
)
SHAPES_UNKNOWN = _issue(
    "warning",
    "shapes-unknown",
    "records",
    sentence=("the input shapes of {count} {operator|operators} are unknown", "{count} 个算子的输入 shape 未知"),
    advice=("Times are right; only the shapes are missing.", "时间无误，仅缺少 shape。"),
)
OUTSIDE_STEPS = _issue(
    "note",
    "outside-steps",
    "records",
    sentence=(
        "{count} communication {operator starts|operators start} between the steps",
        "{count} 个通信算子在 step 之间开始",
    ),
    advice=("Communication files leave them out.", "通信文件不包含这些算子。"),
)
STEPS_NOT_FOUND = _issue(
    "warning",
    "steps-not-found",
    "values",
    sentence=("the steps asked for were not recorded: everything was analysed", "未采集到指定的 step，已分析全部数据"),
    advice=("stepscope info lists the recorded steps.", "可用 stepscope info 查看已采集的 step。"),
)

STORE_OF_OTHER_VERSION = _issue(
    "warning",
    "store-of-other-version",
    "files",
    sentence=(
        "the tables were written by another version of stepscope: what that version did not know is missing",
        "数据表由其他版本的 stepscope 写入：该版本没有的内容缺失",
    ),
    advice=("Open it with the version that wrote it.", "可用写入它的版本打开。"),
)
PART_OF_CAPTURE = _issue(
    "note",
    "part-of-capture",
    "values",
    sentence=("this is a part that was cut out of a capture", "这是从采集数据中截取的一部分"),
    advice=("stepscope slice made it; averages are of this part only.", "由 stepscope slice 生成，平均值仅针对这一部分。"),
)
REDACTED = _issue(
    "note",
    "redacted",
    "values",
    sentence=("names were removed before this capture was shared", "共享之前已去除部分名称"),
    advice=("The detail says which kinds; times are unchanged.", "详情列出了类别，时间数据未改动。"),
)

# Said before anything else about a capture: what follows is only a part of what ran.
HEADLINES = (RECORDING_UNFINISHED, RECORDING_ENDED_EARLY, TRUNCATED_FILE)
