// SPDX-License-Identifier: Apache-2.0
// Loads traces into Perfetto's trace processor (WebAssembly) and prints what a query answers, one line of JSON per trace.
// Usage: node perfetto_engine.mjs FOLDER SQL TRACE...; FOLDER holds engine_bundle.js and trace_processor.wasm.

import { readFileSync } from 'node:fs';
import { join, basename } from 'node:path';
import vm from 'node:vm';

const [folder, sql, ...traces] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorRpc.TraceProcessorMethod
const METHOD_FIELD = 2, APPEND_FIELD = 101, QUERY_FIELD = 103, FATAL_FIELD = 5, ANSWER_FIELD = 203;
const CHUNK = 16 * 1024 * 1024;

// The engine is made for a worker of a browser: a context with what such a worker has, and without what Node.js adds.
function startWorker() {
  class FileRequest {
    open(_method, address) { this.address = address; }
    send() {
      const data = readFileSync(join(folder, basename(this.address)));
      this.status = 200;
      this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
    }
  }
  const scope = {
    console: { ...console, log() {}, warn() {}, info() {} }, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout,
    crypto, XMLHttpRequest: FileRequest, importScripts() {}, location: { href: 'http://localhost/engine_bundle.js' },
    WorkerGlobalScope: class {},
  };
  scope.self = scope;
  vm.createContext(scope);
  vm.runInContext(readFileSync(join(folder, 'engine_bundle.js'), 'utf8'), scope);
  scope.Bytes = vm.runInContext('Uint8Array', scope); // the engine tells its arrays from those of another context
  return scope;
}

class Port {
  constructor(onAnswer) { this.onAnswer = onAnswer; }
  postMessage(data) { this.onAnswer(data); }
}

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    const low = Number(rest & 127n);
    if (rest < 128n) return Buffer.from([...bytes, low]);
    bytes.push(low | 128);
  }
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, data) => Buffer.concat([varint((field << 3) | 2), varint(data.length), data]);

function* fields(data) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = data[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < data.length) {
    const tag = Number(next());
    const field = tag >> 3, kind = tag & 7;
    if (kind === 0) yield [field, next()];
    else if (kind === 1) { yield [field, data.subarray(at, at + 8)]; at += 8; }
    else { const length = Number(next()); yield [field, data.subarray(at, at + length)]; at += length; }
  }
}
function varints(data) {
  const found = [];
  let value = 0n, shift = 0n;
  for (const byte of data) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) { found.push(Number(BigInt.asIntN(64, value))); value = 0n; shift = 0n; }
  }
  return found;
}

class Engine {
  constructor() {
    const scope = startWorker();
    this.Bytes = scope.Bytes;
    this.sequence = 0;
    this.answers = [];
    this.port = new Port((data) => this.answers.push(Buffer.from(data)));
    scope.onmessage({ data: this.port });
    // The module is compiled at once and starts in the callbacks of promises, which all run before the next turn.
    this.ready = new Promise((done) => setImmediate(done));
  }

  call(method, ...parts) {
    const message = Buffer.concat([number(1, this.sequence++), number(METHOD_FIELD, method), ...parts]);
    this.answers = [];
    this.port.onmessage({ data: new this.Bytes(bytes(1, message)) });
    const found = [];
    for (const [, answer] of fields(Buffer.concat(this.answers))) {
      for (const [field, value] of fields(answer)) {
        if (field === FATAL_FIELD) throw new Error(value.toString());
        found.push([field, value]);
      }
    }
    return found;
  }

  load(data) {
    for (let at = 0; at < data.length; at += CHUNK) this.call(APPEND, bytes(APPEND_FIELD, data.subarray(at, at + CHUNK)));
    this.call(FINALIZE);
  }

  query(text) {
    const names = [], cells = [];
    for (const [field, value] of this.call(QUERY, bytes(QUERY_FIELD, bytes(1, Buffer.from(text))))) {
      if (field !== ANSWER_FIELD) continue;
      for (const [part, data] of fields(value)) {
        if (part === 1) names.push(data.toString());
        if (part === 2 && data.length) throw new Error(data.toString());
        if (part === 3) cells.push(...batch(data));
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += names.length) rows.push(cells.slice(at, at + names.length));
    return { columns: names, rows };
  }
}

function batch(data) {
  const kinds = [], whole = [], real = [], texts = [];
  for (const [field, value] of fields(data)) {
    if (field === 1) kinds.push(...varints(value));
    if (field === 2) whole.push(...varints(value));
    if (field === 3) for (let at = 0; at < value.length; at += 8) real.push(value.readDoubleLE(at));
    if (field === 5) texts.push(...value.toString().split('\0'));
  }
  return kinds.map((kind) => ({ 1: () => null, 2: () => whole.shift(), 3: () => real.shift(), 4: () => texts.shift() })[kind]());
}

for (const trace of traces) {
  const engine = new Engine();
  await engine.ready;
  engine.load(readFileSync(trace));
  console.log(JSON.stringify(engine.query(sql)));
}
