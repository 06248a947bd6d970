// SPDX-License-Identifier: Apache-2.0
// Buttons, boxes, menus and messages that all views share.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../words";
import { Icon, type IconName } from "./icons";

export function IconButton(props: {
  icon: IconName;
  label: string;
  onClick: (event: MouseEvent) => void;
  testid?: string;
  pressed?: boolean;
  small?: boolean;
  current?: boolean;
}): JSX.Element {
  return (
    <button
      type="button"
      class={`icon-button${props.small ? " small" : ""}`}
      title={props.label}
      aria-label={props.label}
      aria-pressed={props.pressed}
      aria-current={props.current ? "page" : undefined}
      data-testid={props.testid}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}

export interface Choice {
  readonly value: string;
  readonly label: string;
  /** A number beside the label of a list, and what it counts. */
  readonly count?: number;
  readonly about?: string;
}

/** A labelled select box; a filter field appears above long lists. */
export function Select(props: {
  label: string;
  value: string;
  options: readonly Choice[];
  onChange: (value: string) => void;
  testid: string;
  size?: number;
  wide?: boolean;
}): JSX.Element {
  const [filter, setFilter] = useState("");
  const long = props.options.length > (props.size ? 24 : 12); // a list shows all its entries anyway
  const wanted = filter.toLowerCase();
  const shown = long && wanted ? props.options.filter((one) => one.label.toLowerCase().includes(wanted) || one.value === props.value) : props.options;
  return (
    <div class={`field${props.wide ? " wide" : ""}`}>
      <label class="field-label">
        <span>{props.label}</span>
        <select
          class={props.size ? "listbox" : ""}
          size={props.size}
          style={props.size ? { height: `${props.size * 24 + 10}px` } : undefined}
          data-testid={props.testid}
          value={props.value}
          onChange={(event) => props.onChange(event.currentTarget.value)}
        >
          {shown.map((one) => (
            <option key={one.value} value={one.value} selected={one.value === props.value} data-count={one.count} title={one.about}>
              {one.label}
            </option>
          ))}
        </select>
      </label>
      {long && (
        <input
          class="field-filter"
          type="search"
          placeholder={`${t("Filter")} (${props.options.length})`}
          aria-label={`${t("Filter")} ${props.label}`}
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      )}
    </div>
  );
}

/** A text field that reports when typing pauses. */
export function Search(props: { label: string; value: string; onChange: (value: string) => void; testid: string; numeric?: boolean }): JSX.Element {
  const [text, setText] = useState(props.value);
  const timer = useRef(0);
  useEffect(() => setText(props.value), [props.value]);
  return (
    <label class="field-label">
      <span>{props.label}</span>
      <span class="search">
        <Icon name="search" />
        <input
          type="search"
          data-testid={props.testid}
          data-search="true"
          placeholder={props.numeric ? "" : t("Text or /regular expression/")}
          inputMode={props.numeric ? "numeric" : "text"}
          value={text}
          onInput={(event) => {
            const value = event.currentTarget.value;
            setText(value);
            clearTimeout(timer.current);
            timer.current = window.setTimeout(() => props.onChange(value), 200);
          }}
        />
      </span>
    </label>
  );
}

/** "All … / Top … to show [10]"; 0 means all. */
export function TopChoice(props: { all: string; top: string; value: number; onChange: (value: number) => void; name: string }): JSX.Element {
  const [count, setCount] = useState(props.value || 10);
  return (
    <fieldset class="top-choice">
      <legend class="unseen">{props.top}</legend>
      <label>
        <input type="radio" name={props.name} checked={props.value === 0} onChange={() => props.onChange(0)} data-testid="radio-all" />
        {props.all}
      </label>
      <label>
        <input type="radio" name={props.name} checked={props.value !== 0} onChange={() => props.onChange(count)} data-testid="radio-top" />
        {props.top}
      </label>
      <input
        type="number"
        min={1}
        max={1000}
        value={count}
        aria-label={props.top}
        data-testid="input-top"
        disabled={props.value === 0}
        onChange={(event) => {
          const value = Math.max(1, Math.min(1000, Number(event.currentTarget.value) || 10));
          setCount(value);
          props.onChange(value);
        }}
      />
    </fieldset>
  );
}

/** A button that opens a small panel below itself; Esc and a click elsewhere close it. */
export function Popover(props: {
  icon?: IconName;
  label: string;
  text?: string;
  testid?: string;
  active?: boolean;
  small?: boolean;
  align?: "left" | "right";
  children: (close: () => void) => ComponentChildren;
}): JSX.Element {
  const [spot, setSpot] = useState<{ top: number; left: number } | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const close = (): void => {
    setSpot(null);
    button.current?.focus();
  };
  const open = spot !== null;
  useEffect(() => {
    if (!open) return undefined;
    const box = panel.current;
    const anchor = button.current;
    if (box && anchor) {
      // Fixed, so that a scrolling table does not cut it off; kept inside the window.
      const at = anchor.getBoundingClientRect();
      const left = props.align === "right" ? at.right - box.offsetWidth : at.left;
      box.style.left = `${Math.max(8, Math.min(left, window.innerWidth - box.offsetWidth - 8))}px`;
      box.style.top = `${Math.max(8, Math.min(at.bottom + 4, window.innerHeight - box.offsetHeight - 8))}px`;
      box.querySelector<HTMLElement>("input, select, button")?.focus();
    }
    const away = (event: PointerEvent): void => {
      const target = event.target as Node;
      if (!panel.current?.contains(target) && !button.current?.contains(target)) setSpot(null);
    };
    document.addEventListener("pointerdown", away, true);
    return () => document.removeEventListener("pointerdown", away, true);
  }, [open]);
  return (
    <span class="popover-anchor">
      <button
        ref={button}
        type="button"
        class={`${props.text ? "button" : `icon-button${props.small ? " small" : ""}`}${props.active ? " active" : ""}`}
        title={props.label}
        aria-label={props.text ? undefined : props.label}
        aria-expanded={open}
        aria-haspopup="dialog"
        data-testid={props.testid}
        onClick={(event) => {
          event.stopPropagation();
          if (open) setSpot(null);
          else setSpot({ top: 0, left: 0 });
        }}
      >
        {props.icon && <Icon name={props.icon} />}
        {props.text && <span>{props.text}</span>}
      </button>
      {open && (
        <div
          ref={panel}
          class="popover"
          role="dialog"
          aria-label={props.label}
          onKeyDown={(event) => {
            event.stopPropagation();
            if (event.key === "Escape") close();
          }}
        >
          {props.children(close)}
        </div>
      )}
    </span>
  );
}

const notice = signal<{ text: string; key: number }>({ text: "", key: 0 });
let saidTimer = 0;

/** A short notice at the bottom of the window, also read aloud. */
export function say(text: string): void {
  notice.value = { text, key: notice.peek().key + 1 };
  clearTimeout(saidTimer);
  saidTimer = window.setTimeout(() => {
    notice.value = { text: "", key: notice.peek().key };
  }, 2500);
}

export function Notices(): JSX.Element {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notice.value.text && <div class="notice">{notice.value.text}</div>}
    </div>
  );
}

export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages on plain http from another machine have no clipboard API.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function download(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function Snippet({ text }: { text: string }): JSX.Element {
  return (
    <div class="snippet">
      <pre tabIndex={0}>{text}</pre>
      <button type="button" class="button" onClick={() => void copyText(text).then(() => say(t("Copied")))}>
        <Icon name="copy" />
        {t("Copy")}
      </button>
    </div>
  );
}

export function Card(props: { title: string; children: ComponentChildren; tools?: ComponentChildren; class?: string; testid?: string; note?: string }): JSX.Element {
  return (
    <section class={`card ${props.class ?? ""}`} data-testid={props.testid} aria-label={props.title}>
      <header class="card-head">
        <h2>{props.title}</h2>
        {props.note && <span class="card-note">{props.note}</span>}
        <span class="spring" />
        {props.tools}
      </header>
      {props.children}
    </section>
  );
}

/** One line; the middle gives way first, since names of kernels differ at both ends. */
export function LongName({ text }: { text: string }): JSX.Element {
  if (text.length < 28) return <span class="clip">{text}</span>;
  return (
    <>
      <span class="clip">{text.slice(0, -10)}</span>
      <span class="tail">{text.slice(-10)}</span>
    </>
  );
}
