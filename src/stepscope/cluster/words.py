# SPDX-License-Identifier: Apache-2.0
"""Findings and problems of a run in words, English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.cluster.finding import Finding, Problem

MOST_TEXT = 200

_PROBLEMS: dict[str, tuple[str, str]] = {
    "missing_ranks": ("{count} {count:rank has|ranks have} no capture: {ranks}", "{count} 个 rank 没有采集数据：{ranks}"),
    "other_steps": (
        "rank {rank} has no step in common with most ranks; it is left out",
        "rank {rank} 与多数 rank 没有相同的 step，未参与比较",
    ),
    "steps_left_out": (
        "{count} {count:step has|steps have} calls that other steps do not have, and {count:is|are} left out: {steps}",
        "{count} 个 step 的通信调用与其他 step 不同，未参与分析：{steps}",
    ),
    "unmatched_group": ("the calls of group {group} do not match across ranks", "通信域 {group} 的调用无法在各 rank 之间对应"),
    "unmatched_calls": (
        "{count} of {rows} {rows:call|calls} could not be matched across ranks",
        "{rows} 个调用中有 {count} 个无法在各 rank 之间对应",
    ),
    "partial_calls": (
        "{count} of {calls} calls lack a member; what the missing ranks did is not known",
        "{calls} 个调用中有 {count} 个缺少成员，缺失 rank 的行为未知",
    ),
    "clock_refused": ("clock of {count:rank|ranks} {ranks} not aligned: {reason}", "rank {ranks} 的时钟未对齐：{reason}"),
    "left_out": (
        "rank {rank} is not in the archive: {reason} (--unaligned puts it there)",
        "归档中没有 rank {rank}：{reason}（可用 --unaligned 加入）",
    ),
    "layout": (
        "the parallel layout contradicts the groups ({text}); the groups are used",
        "并行配置与通信域矛盾（{text}），以通信域为准",
    ),
    "losses": ("rank {rank} lost {count} {count:record|records}", "rank {rank} 丢失 {count} 条记录"),
    "no_calls": (
        "no communication call could be matched, so nothing can be said about slow ranks",
        "没有可对应的通信调用，无法判断慢 rank",
    ),
    "one_step": (
        "in the only step the others wait {wait_ms:.2f} ms ({share:.0%}) for rank {rank}; one step is too few to call it slow",
        "在唯一的 step 中，其他 rank 等待 rank {rank} {wait_ms:.2f} ms（{share:.0%}），仅一个 step 不足以判定其为慢 rank",
    ),
    "no_common_steps": ("the ranks have no step in common", "各 rank 没有相同的 step"),
    "cycle": (
        "the waits of {ranks} ranks contradict each other; nothing is concluded",
        "{ranks} 个 rank 的等待关系相互矛盾，不作结论",
    ),
    "replay": (
        "the replay takes {replayed_ms:.2f} ms a step where {measured_ms:.2f} were measured; nothing is concluded",
        "重放的 step 为 {replayed_ms:.2f} ms，实测为 {measured_ms:.2f} ms，不作结论",
    ),
    "failed": ("{path}: {error}", "{path}：{error}"),
    "duplicate": (
        "rank {rank} was captured twice at the same time; {kept} is used, {path} is not",
        "rank {rank} 在同一时间有两份采集数据：使用 {kept}，忽略 {path}",
    ),
    "two_spans": (
        "rank {rank} has several captures one after the other; all are used",
        "rank {rank} 有多份先后的采集数据，全部使用",
    ),
    "several_runs": (
        "{count} runs are here ({runs}); run {chosen} is shown, choose with --run N",
        "此处有 {count} 次运行（{runs}），显示第 {chosen} 次，可用 --run N 选择",
    ),
    "no_rank": (
        "{count} {count:capture does not say its|captures do not say their} rank; numbers were given by device and name",
        "{count} 份采集数据没有 rank 信息，按设备和名称编号",
    ),
    "old_digest": ("the digest of {path} was of another version and was made again", "{path} 的摘要由其他版本写入，已重新生成"),
    "shallow": (
        "of {count} {count:capture|captures} only small files were read, so what the host did is unknown; --deep reads everything",
        "{count} 份采集数据只读取了小文件，主机侧行为未知；使用 --deep 读取全部数据",
    ),
    "link": ("{path} is a symbolic link and is not followed", "{path} 是符号链接，未跟随"),
    "files": (
        "rank {rank} is missing in cluster_analysis_output: {path}: {error}",
        "rank {rank} 未写入 cluster_analysis_output：{path}：{error}",
    ),
    "recipes": (
        "rank {rank} is missing in the tables of recipes: {path}: {error}",
        "rank {rank} 未计入 recipe 表：{path}：{error}",
    ),
    "worker": ("a worker was lost; {path} was given up after 3 tries", "工作进程丢失，{path} 尝试 3 次后放弃"),
    "shifted_steps": (
        "step numbers of rank {rank} differ by {shift} from those of the others; aligned by their calls",
        "rank {rank} 的 step 编号与其他 rank 相差 {shift}，已按通信调用对齐",
    ),
    "no_baseline": ("{path} has no step that could be compared", "{path} 没有可比较的 step"),
    "interrupted": ("interrupted: {left} captures were not read", "已中断：{left} 份采集数据未读取"),
}

_CAUSES: dict[str, tuple[str, str]] = {
    "frequency": ("all its kernels are slower and its clock is lower", "所有算子变慢且频率偏低"),
    "compute_all_kernels": ("all its kernels are slower", "所有算子都变慢"),
    "kernel": ("few kernels are slower than elsewhere", "少数算子比其他 rank 慢"),
    "more_work": ("it has more work than its peers", "工作量比同类 rank 大"),
    "expert_imbalance": ("its experts get more tokens", "专家分到的 token 更多"),
    "compute": ("it computes longer", "计算时间更长"),
    "data_loading": ("it waits for data", "等待数据加载"),
    "gc": ("garbage collection", "垃圾回收"),
    "allocation": ("memory allocation", "内存分配"),
    "checkpoint": ("saving checkpoints", "保存检查点"),
    "copy": ("copies between host and device", "主机与设备间拷贝"),
    "dispatch": ("its host launches too slowly", "主机下发太慢"),
    "other": ("time outside of anything recorded", "未记录的时间"),
    "link": ("its transfers are slower than those of similar groups", "传输比同类通信域慢"),
    "network": ("its transfers are slower than in other steps", "传输比其他 step 慢"),
    "pipeline_imbalance": ("it has more work than the other stages", "工作量比其他 stage 大"),
    "imbalance": ("it moves from rank to rank", "在不同 rank 之间变动"),
    "unexplained": ("cause not explained by what was recorded", "已记录的数据无法解释原因"),
}

_WHO: dict[str, tuple[str, str]] = {
    "slow_rank": ("rank {ranks} is slow", "rank {ranks} 慢"),
    "slow_host": ("host {host} is slow (ranks {ranks})", "主机 {host} 慢（rank {ranks}）"),
    "slow_link": ("the link between ranks {ranks} is slow", "rank {ranks} 之间的链路慢"),
    "slow_port": ("the links of rank {ranks} are slow", "rank {ranks} 的链路慢"),
    "slow_group": (
        "group {group} (ranks {ranks}) communicates slowly, over which link is unknown",
        "通信域 {group}（rank {ranks}）通信慢，具体链路未知",
    ),
    "network": ("the network is slow for all ranks", "所有 rank 的网络都慢"),
    "pipeline_imbalance": ("pipeline stage {stage} (ranks {ranks}) is the longest", "流水线 stage {stage}（rank {ranks}）最长"),
    "imbalance": ("imbalance of which no rank is to blame", "负载不均，但没有特定的 rank 需要负责"),
}

_LINES: dict[str, tuple[str, str]] = {
    "run": (
        "{found} of {expected} {expected:rank|ranks} on {hosts}, {steps} {steps:step|steps}",
        "{expected} 个 rank 中的 {found} 个，{hosts}，{steps} 个 step",
    ),
    "run_number": ("run {number}: {text}", "第 {number} 次运行：{text}"),
    "earlier": ("{count} earlier {count:run|runs} in the JSON", "JSON 中还有更早的 {count} 次运行"),
    "hosts": ("{count} {count:host|hosts}", "{count} 台主机"),
    "hosts_unknown": ("unknown hosts", "主机未知"),
    "layout": ("layout: {text} ({source})", "并行配置：{text}（{source}）"),
    "step": (
        "median step {median:.2f} ms (95 %: {p95:.2f}); with every rank as its peers {ideal:.2f} ms",
        "单步中位数 {median:.2f} ms（95 %：{p95:.2f}）；若各 rank 与同类一致则为 {ideal:.2f} ms",
    ),
    "step_only": ("median step {median:.2f} ms (95 %: {p95:.2f})", "单步中位数 {median:.2f} ms（95 %：{p95:.2f}）"),
    "goes": (
        "of it computing {computing:.0%}, waiting for others {wait:.0%}, the rest {rest:.0%} (mean over ranks)",
        "其中计算 {computing:.0%}，等待其他 rank {wait:.0%}，其余 {rest:.0%}（各 rank 平均）",
    ),
    "nothing": (
        "nobody is slow: no rank, host, link or stage costs 1 % of a step",
        "没有慢者：没有 rank、主机、链路或 stage 的代价达到 step 的 1 %",
    ),
    "outside": (
        "the recorded ranks wait {wait:.2f} ms a step ({share:.0%}) for ranks that were not recorded",
        "已采集的 rank 每个 step 有 {wait:.2f} ms（{share:.0%}）在等待未采集的 rank",
    ),
    "nothing_recorded": (
        "of the recorded ones nobody is slow: no rank, host, link or stage costs 1 % of a step",
        "已采集的 rank 中没有慢者：没有 rank、主机、链路或 stage 的代价达到 step 的 1 %",
    ),
    "withheld": ("no verdict: see the problems below", "不作结论：见下列问题"),
    "finding": (
        "{number}. {who}: {cost:.2f} ms a step ({share:.1%}), {pattern}",
        "{number}. {who}：每个 step {cost:.2f} ms（{share:.1%}），{pattern}",
    ),
    "why": ("   {cause} (explains {explained:.0%}){victims}", "   {cause}（解释 {explained:.0%}）{victims}"),
    "victims": ("; ranks {ranks} wait for it", "；rank {ranks} 在等待它"),
    "victim": ("; rank {ranks} waits for it", "；rank {ranks} 在等待它"),
    "more": ("{count} more {count:finding|findings} in the JSON", "JSON 中还有 {count} 条发现"),
    "clocks": (
        "clocks: {aligned} ranks aligned to rank {reference}, ± {sigma:.1f} µs at most, offsets up to {offset:.1f} µs",
        "时钟：{aligned} 个 rank 已对齐到 rank {reference}，误差不超过 ± {sigma:.1f} µs，偏移最大 {offset:.1f} µs",
    ),
    "problem": ("problem: {text}", "问题：{text}"),
    "problems": ("{count} more {count:problem|problems} in the JSON", "JSON 中还有 {count} 个问题"),
    "wrote": ("wrote {path}", "已写入 {path}"),
    "baseline": (
        "baseline {path}: median step {before:.2f} ms, now {after:.2f} ({change:+.1%})",
        "基线 {path}：单步中位数 {before:.2f} ms，现在 {after:.2f}（{change:+.1%}）",
    ),
    "baseline_parts": (
        "   of it computing {computing:+.2f} ms, communication {communication:+.2f} ms, free {free:+.2f} ms (mean over ranks)",
        "   其中计算 {computing:+.2f} ms，通信 {communication:+.2f} ms，空闲 {free:+.2f} ms（各 rank 平均）",
    ),
    "baseline_ranks": ("   own time changed most on {text}", "   自身时间变化最大：{text}"),
    "baseline_rank": ("rank {rank} ({change:+.2f} ms)", "rank {rank}（{change:+.2f} ms）"),
    "baseline_new": ("   new: {text}", "   新出现：{text}"),
    "baseline_gone": ("   gone: {text}", "   已消失：{text}"),
    "persistent": ("in {hit} of {all} {all:step|steps}", "出现在 {all} 个 step 中的 {hit} 个"),
    "recurring": ("every {every} {every:step|steps}", "每 {every} 个 step 一次"),
    "one_off": ("in step {steps}", "出现在 step {steps}"),
}


def _filled(pair: tuple[str, str], lang: str, params: dict[str, Any]) -> str:
    shown = {key: _shown(value) for key, value in params.items()}
    return re.sub(r"(?<=\d)%", " %", pair[lang == "zh"].format_map(shown))


class _Count(int):
    """A number in a text; `{count:rank has|ranks have}` is the word that goes with it."""

    def __format__(self, spec: str) -> str:
        one, bar, more = spec.partition("|")
        return (one if self == 1 else more) if bar else super().__format__(spec)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return ranges(value)
    return _Count(value) if isinstance(value, int) and not isinstance(value, bool) else value


def clean(text: str) -> str:
    """Text of a capture: one line, no control characters, not without end."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text)
    return plain if len(plain) <= MOST_TEXT else f"{plain[: MOST_TEXT - 1]}…"


_REASONS = (
    ("no call in common with other ranks", "与其他 rank 没有共同的调用"),
    ("no path of calls to the reference rank", "与基准 rank 之间没有调用相连"),
    ("uncertain by more than 1 ms", "误差超过 1 ms"),
)


def reason_text(reason: str, lang: str) -> str:
    """Why a clock was refused."""
    if lang == "en":
        return reason
    if reason.startswith("only "):
        return f"只有 {reason.split()[1]} 个共同的调用"
    return dict(_REASONS).get(reason, reason)


def problem_text(problem: Problem, lang: str) -> str:
    params = {"rank": problem.rank, **problem.params}
    if "reason" in params:
        params["reason"] = reason_text(str(params["reason"]), lang)
    return _filled(_PROBLEMS[problem.kind], lang, params)


def cause_text(cause: str, lang: str) -> str:
    joint = " and " if lang == "en" else "以及"
    return joint.join(_CAUSES.get(one, (one, one))[lang == "zh"] for one in cause.split("+"))


def who_text(finding: Finding, lang: str) -> str:
    return who(finding.kind, lang, finding.as_dict())


def who(kind: str, lang: str, known: Mapping[str, Any]) -> str:
    """Whom a finding is about.

    Args:
        known: ranks, host, group_name, stage and cause of it.
    """
    if known["cause"] == "network":
        kind = "network"
    elif kind == "slow_link" and len(known["ranks"]) == 1:
        kind = "slow_port"
    host, group = known["host"] or "?", known["group_name"] or ""
    return _filled(_WHO[kind], lang, {"ranks": known["ranks"], "host": host, "group": group, "stage": known["stage"]})


def line(name: str, lang: str, **params: Any) -> str:
    return _filled(_LINES[name], lang, params)


def ranges(numbers: Sequence[Any], most: int = 8) -> str:
    """0, 1, 2, 3, 7 as 0–3, 7; long lists are cut."""
    parts: list[list[Any]] = []
    for number in numbers:
        if parts and isinstance(number, int) and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    texts = [f"{part[0]}–{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts]
    return ", ".join(texts[:most]) + (" …" if len(texts) > most else "")
