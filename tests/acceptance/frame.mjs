// SPDX-License-Identifier: Apache-2.0
//
// What every acceptance script stands on: real weir processes on free ports, a plain HTTP client
// that can hang up at any byte, readings of /debug/state, /metrics and /proc, and the one way to
// end. A script ends by Finish (exit 0 holds, 1 falls short) or Skip (exit 77, cannot run here);
// its last line is `figure=<number> unit=<unit> limit=<limit>`. Nothing outlives the script:
// processes are killed and the temporary folder is removed on every way out.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const kRoot = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
export const kBuild = resolve(process.env.WEIR_BUILD_DIR ?? join(kRoot, 'build'));
export const kWeir = join(kBuild, 'weir/weir');
export const kTemp = mkdtempSync(join(tmpdir(), 'weir-accept-'));
const kHardLimitMs = 10 * 60 * 1000;

const args = process.argv.slice(2);
for (const arg of args) {
  if (!['--quick', '--long'].includes(arg)) {
    console.error(`usage: ${process.argv[1]} [--quick | --long]`);
    process.exit(2);
  }
}
export const kQuick = args.includes('--quick');
export const kLong = args.includes('--long');
// Picks by form: the quick one in a few seconds, the full one in at most ten minutes.
export const sized = (quick, full) => (kQuick ? quick : full);

const children = new Set();
let ended = false;
const started = Date.now();

const exitTasks = [];
export const onExit = (task) => exitTasks.unshift(task);  // runs before the folder is removed

function cleanUp() {
  for (const child of children) {
    try { child.kill('SIGKILL'); } catch { /* already gone */ }
  }
  for (const task of exitTasks) task();
  const mounted = readFileSync('/proc/mounts', 'utf8').includes(` ${kTemp}/`);
  if (process.env.WEIR_KEEP_LOGS || mounted) console.log(`kept ${kTemp}`);  // never remove through a mount
  else rmSync(kTemp, { recursive: true, force: true });
}
process.on('exit', cleanUp);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => process.exit(130));
process.on('uncaughtException', (error) => fall(error));
process.on('unhandledRejection', (error) => fall(error));
if (!kLong) setTimeout(() => fall(new Error('took longer than ten minutes')), kHardLimitMs).unref();

function fall(error) {
  if (ended) return;
  ended = true;
  console.log(`error: ${error?.stack ?? error}`);
  for (const child of children) console.log(logTail(child));
  console.log('figure=nan unit=error limit=none');
  process.exit(1);
}

// The verdict. `holds` says whether the whole line holds; figure and limit are what it is about.
export function finish(figure, unit, limit, holds) {
  if (ended) return;
  ended = true;
  if (!holds && !process.env.WEIR_PLANTED) for (const child of children) console.log(logTail(child));
  console.log(`took ${((Date.now() - started) / 1000).toFixed(1)} s`);
  console.log(`figure=${figure} unit=${unit} limit=${limit}`);
  process.exit(holds ? 0 : 1);
}

// Cannot run here. `reason` must say what is missing on this machine or in this build.
export function skip(reason) {
  ended = true;
  console.log(`cannot run here: ${reason}`);
  console.log('figure=nan unit=skipped limit=none');
  process.exit(77);
}

// A list of what went wrong; a script that has none holds.
export const problems = [];
export function expect(condition, text) {
  if (!condition) {
    problems.push(text);
    if (problems.length <= 20) console.log(`PROBLEM ${text}`);
  }
  return Boolean(condition);
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// Waits until `probe` answers something true; rejects with `what` after `ms`.
export async function until(probe, ms, what) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${ms} ms in vain: ${what}`);
    await pause(50);
  }
}

// Runs at most `width` of the jobs (functions) at once; answers their results in order.
export async function inParallel(jobs, width) {
  const results = new Array(jobs.length);
  let next = 0;
  const lane = async () => {
    for (let i = next++; i < jobs.length; i = next++) results[i] = await jobs[i]();
  };
  await Promise.all(Array.from({ length: Math.min(width, jobs.length) }, lane));
  return results;
}

// A small repeatable generator (mulberry32): the same seed gives the same run.
export function randomFrom(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    real: next,
    int: (low, high) => low + Math.floor(next() * (high - low + 1)),  // both ends included
    ids: (count, high) => Array.from({ length: count }, () => Math.floor(next() * high)),
  };
}

export function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? NaN : sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

// Below the range of which the kernel takes ports for outgoing connections, or one of these could
// take it before the server that it is meant for.
export async function freePort() {
  for (;;) {
    const port = 12000 + Math.floor(Math.random() * 20000);
    const server = net.createServer();
    const free = await new Promise((done) => {
      server.on('error', () => done(false));
      server.listen(port, '127.0.0.1', () => done(true));
    });
    if (!free) continue;
    await new Promise((done) => server.close(done));
    return port;
  }
}

// ---- processes

export function requireWeir(...subcommands) {
  if (!existsSync(kWeir)) skip(`${kWeir} is not built`);
  const help = spawnSync(kWeir, ['--help'], { encoding: 'utf8' }).stdout ?? '';
  for (const name of subcommands) {
    if (!new RegExp(`^\\s+${name}\\b`, 'm').test(help)) skip(`this weir has no subcommand '${name}'`);
  }
}

export function requireBinary(path) {
  const full = join(kBuild, path);
  if (!existsSync(full)) skip(`${full} is not built`);
  return full;
}

export function modelDir(name) {
  for (const path of [join(kRoot, 'deploy/models', name), join(kBuild, 'models', name), join(kRoot, 'tests/golden', name)]) {
    if (existsSync(join(path, 'config.json'))) return path;
  }
  return skip(`there is no model directory '${name}'`);
}

// WEIR_ACCEPT_MODEL names a checkpoint with real arithmetic for scripts that compare text, which else
// run on the hash model. It is served in its native numerics and deterministic.
const kNamedModel = process.env.WEIR_ACCEPT_MODEL;
const kNamedSettings = kNamedModel ? { numerics: 'native', deterministic: true } : {};

// What such a script runs on. `slow(us)` are settings that make a step take so long where the model
// only pretends to compute; answers of a real one are asked to go on past their end, by `extra`.
export function textModel() {
  return describeModel(kNamedModel ?? modelDir('hash'));
}

// The small checkpoint with real arithmetic: V4.1's where it is built, else V3's.
export function smallModel() {
  const named = kNamedModel;
  const built = ['tiny-v41', 'tiny-v3'].flatMap((name) => [join(kRoot, 'deploy/models', name), join(kBuild, 'models', name)]).find((path) => existsSync(join(path, 'config.json')));
  return describeModel(named ?? built ?? skip('no small checkpoint is built'));
}

function describeModel(dir) {
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'));
  const real = !String(config.model_type).startsWith('weir_');
  const vocabulary = config.vocab_size ?? config.text_config?.vocab_size;
  const slow = (us) => (real ? {} : { step_delay_us: us });
  return { dir, vocabulary, real, slow, extra: real ? { ignore_eos: true } : {} };
}

function logTail(child) {
  try {
    return `--- ${child.weirName}: ${readFileSync(child.weirLog, 'utf8').split('\n').slice(-25).join('\n')}`;
  } catch {
    return '';
  }
}

// One weir process. `name` is for people; its log goes to the temporary folder.
export class Weir {
  constructor(name, argv, environment = {}) {
    this.name = name;
    this.log = join(kTemp, `${name}-${children.size}.log`);
    const out = openSync(this.log, 'w');
    this.child = spawn(kWeir, argv, { stdio: ['ignore', out, out], env: { ...process.env, ...environment } });
    closeSync(out);
    this.child.weirName = name;
    this.child.weirLog = this.log;
    children.add(this.child);
    this.exited = new Promise((done) => this.child.on('exit', (code, signal) => {
      children.delete(this.child);
      this.exit = { code, signal };
      done(this.exit);
    }));
  }

  get pid() { return this.child.pid; }
  get alive() { return this.exit === undefined; }
  get logText() { return readFileSync(this.log, 'utf8'); }
  signal(name) { this.child.kill(name); }

  async kill9() {
    this.child.kill('SIGKILL');
    await this.exited;
  }

  // SIGTERM, and what it exited with; rejects if it does not within `ms`.
  async stop(ms = 30000) {
    this.child.kill('SIGTERM');
    return until(() => this.exit, ms, `${this.name} to exit after SIGTERM`);
  }

  // Resident memory in bytes.
  rss() {
    const match = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${this.pid}/status`, 'utf8'));
    return Number(match[1]) * 1024;
  }

  async ready(url, ms = 60000) {
    await until(async () => {
      if (!this.alive) throw new Error(`${this.name} exited with ${JSON.stringify(this.exit)}\n${this.logText.slice(-2000)}`);
      return (await get(`${url}/health/ready`).catch(() => ({ status: 0 }))).status === 200;
    }, ms, `${this.name} to become ready`);
  }
}

const servedAt = new Map();  // url -> model name, for requests that name none

// `weir serve`: every role in one process.
export async function startServe({ model, set = {}, environment, port } = {}) {
  const chosen = port ?? await freePort();
  const argv = ['serve', '--model', model, '--port', String(chosen)];
  const named = Object.entries(kNamedSettings).map(([key, value]) => [`model.${key}`, value]);
  for (const [key, value] of [...named, ...Object.entries(set)]) argv.push('--set', `${key}=${value}`);
  const weir = new Weir('serve', argv, environment);
  const url = `http://127.0.0.1:${chosen}`;
  servedAt.set(url, basename(model));
  await weir.ready(url);
  return { url, processes: [{ role: 'serve', weir, admin: url }], all: [weir], stop: () => weir.stop() };
}

// Separate processes: one router, so many prefill and decode engines. `set` holds config fields by
// section: {router: {...}, prefill: {...}, decode: {...}}.
export class Cluster {
  static async start({ model, prefill = 1, decode = 1, transfer = 'shm', set = {} }) {
    const cluster = new Cluster();
    Object.assign(cluster, { model, transfer, set, processes: [], serial: 0 });
    cluster.httpPort = await freePort();
    cluster.peerPort = await freePort();
    cluster.url = `http://127.0.0.1:${cluster.httpPort}`;
    servedAt.set(cluster.url, basename(model));
    cluster.router = await cluster.add('router');
    for (let i = 0; i < decode; ++i) await cluster.add('decode');
    for (let i = 0; i < prefill; ++i) await cluster.add('prefill');
    await cluster.ready();
    return cluster;
  }

  // Starts one more process of a role; it registers with the router by itself.
  async add(role) {
    const name = `${role}-${++this.serial}`;
    const engine = {
      routers: [`127.0.0.1:${this.peerPort}`],
      peer_address: '127.0.0.1:0',
      admin_address: `127.0.0.1:${await freePort()}`,
      transfer: this.transfer,
      ...(this.transfer === 'ucx' ? { ucx_transports: 'tcp,self', ucx_devices: 'lo' } : {}),
      ...this.set[role],
    };
    const router = { http_address: `127.0.0.1:${this.httpPort}`, peer_address: `127.0.0.1:${this.peerPort}`, ...this.set.router };
    const config = { model: { path: this.model, ...kNamedSettings, ...this.set.model }, [role]: role === 'router' ? router : engine };
    const path = join(kTemp, `${name}.json`);
    writeFileSync(path, JSON.stringify(config, null, 2));
    const weir = new Weir(name, [role, '--config', path]);
    const process = { role, name, weir, admin: role === 'router' ? this.url : `http://${engine.admin_address}` };
    this.processes.push(process);
    return process;
  }

  of(role) { return this.processes.filter((process) => process.role === role && process.weir.alive); }
  get all() { return this.processes.filter(({ weir }) => weir.alive).map(({ weir }) => weir); }

  // Every process says it is ready.
  async ready(ms = 60000) {
    for (const process of this.processes) if (process.weir.alive) await process.weir.ready(process.admin, ms);
  }

  async stop() {
    for (const role of ['router', 'prefill', 'decode']) {
      await Promise.all(this.of(role).map(({ weir }) => weir.stop()));
    }
  }

  async kill() { await Promise.all(this.all.map((weir) => weir.kill9())); }
}

// ---- HTTP

// A request with a whole answer: {status, headers, body, json()}.
export function request(method, url, { body, headers = {}, timeout = 60000 } = {}) {
  return new Promise((done, refuse) => {
    const data = body === undefined ? undefined : typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    const call = http.request(url, { method, agent: false, timeout,
      headers: { ...(data === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(data) }), ...headers } },
    (answer) => {
      const pieces = [];
      answer.on('data', (piece) => pieces.push(piece));
      answer.on('error', refuse);
      answer.on('end', () => {
        const text = Buffer.concat(pieces).toString();
        done({ status: answer.statusCode, headers: answer.headers, body: text, json: () => JSON.parse(text) });
      });
    });
    call.on('timeout', () => call.destroy(new Error(`no answer within ${timeout} ms: ${method} ${url}`)));
    call.on('error', refuse);
    call.end(data);
  });
}
export const get = (url, options) => request('GET', url, { timeout: 5000, ...options });

// A streamed answer. `body.stream` is set. Answers {status, text, reasoning, ids, chunks, finish,
// usage, error, done} when the stream ended, however it ended. `onChunk(chunk, count)` may answer
// 'hang up', which cuts the connection there. `afterBytes` cuts it after so many bytes.
export function stream(url, path, body, { onChunk, headers = {}, timeout = 120000, hangUpAfterMs } = {}) {
  return new Promise((done) => {
    const result = { status: 0, text: '', reasoning: '', chunks: 0, finish: null, usage: null, error: null, done: false, hungUp: false, times: [] };
    const data = JSON.stringify({ ...body, stream: true });
    let rest = '';
    const call = http.request(url + path, { method: 'POST', agent: false, timeout,
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(data), ...headers } });
    const end = (error) => {
      if (error && !result.error && !result.hungUp) result.error = String(error.message ?? error);
      done(result);
    };
    const hangUp = () => { result.hungUp = true; call.destroy(); done(result); };
    if (hangUpAfterMs !== undefined) setTimeout(hangUp, hangUpAfterMs);
    const take = (line) => {
      if (!line.startsWith('data:')) return;
      const payload = line.slice(5).trim();
      if (payload === '[DONE]') { result.done = true; return; }
      const event = JSON.parse(payload);
      if (event.error) { result.error = event.error.message ?? 'error event'; return; }
      if (event.usage) result.usage = event.usage;
      for (const choice of event.choices ?? []) {
        result.text += choice.text ?? choice.delta?.content ?? '';
        result.reasoning += choice.delta?.reasoning_content ?? '';
        if (choice.finish_reason) result.finish = choice.finish_reason;
      }
      ++result.chunks;
      result.times.push(Date.now());
      if (onChunk?.(event, result.chunks, result) === 'hang up') hangUp();
    };
    call.on('response', (answer) => {
      result.status = answer.statusCode;
      result.headers = answer.headers;
      answer.setEncoding('utf8');
      answer.on('data', (piece) => {
        if (result.hungUp) return;
        rest += piece;
        if (result.status !== 200) return;
        const lines = rest.split('\n');
        rest = lines.pop();
        for (const line of lines) if (!result.hungUp) take(line);
      });
      answer.on('end', () => {
        if (result.status !== 200) result.error = rest;
        end();
      });
      answer.on('aborted', () => end(new Error('the connection broke off')));
      answer.on('error', end);
    });
    call.on('timeout', () => call.destroy(new Error(`nothing for ${timeout} ms`)));
    call.on('error', end);
    call.end(data);
  });
}

export const modelAt = (url) => servedAt.get(url);

// Token ids in, text out: what most scripts compare. `seed` makes it sampled, else greedy.
export function complete(url, ids, { maxTokens = 32, seed, model = modelAt(url), extra = {}, ...options } = {}) {
  const sampling = seed === undefined ? { temperature: 0 } : { temperature: 1, seed };
  return stream(url, '/v1/completions', { model, prompt: ids, max_tokens: maxTokens, ...sampling, stream_options: { include_usage: true }, ...extra }, options);
}

// True when the whole answer came: finish reason, [DONE] and no error.
export const isWhole = (answer) => answer.status === 200 && !answer.error && answer.finish !== null && answer.done;

// ---- readings

export const debugState = async (admin) => (await get(`${admin}/debug/state`)).json();

// Sum of all samples of a metric; labels narrow it: metric(admin, 'x_total', {role: 'decode'}).
export async function metric(admin, name, labels = {}) {
  const { body } = await get(`${admin}/metrics`);
  let sum = 0;
  for (const line of body.split('\n')) {
    const match = /^([a-zA-Z_:][\w:]*)(\{(.*)\})? (\S+)$/.exec(line);
    if (!match || match[1] !== name) continue;
    const matches = Object.entries(labels).every(([key, value]) => (match[3] ?? '').includes(`${key}="${value}"`));
    if (matches) sum += Number(match[4]);
  }
  return sum;
}

// Numbers anywhere in /debug/state whose key names something held on behalf of a request.
const kHeld = /^(requests|queued|journals|journal_tokens|slots_used|pages_used|pages_retained|leases|fetches|sequences)$/;
export function heldIn(state, prefix = '') {
  const held = [];
  for (const [key, value] of Object.entries(state ?? {})) {
    const path = prefix ? `${prefix}.${key}` : key;
    if (value && typeof value === 'object') held.push(...heldIn(value, path));
    else if (kHeld.test(key) && Number(value) !== 0) held.push(`${path}=${value}`);
  }
  return held;
}

// Waits until no process holds anything; answers what is still held after `ms` (empty: nothing).
// An engine's readings may be 100 ms old, so nothing counts only when read twice.
export async function untilNothingHeld(processes, ms) {
  const end = Date.now() + ms;
  for (let empty = 0;;) {
    const held = [];
    for (const { name, role, admin, weir } of processes) {
      if (!weir.alive) continue;
      for (const item of heldIn(await debugState(admin))) held.push(`${name ?? role}: ${item}`);
    }
    empty = held.length === 0 ? empty + 1 : 0;
    if (empty === 2 || (held.length > 0 && Date.now() > end)) return held;
    await pause(empty > 0 ? 150 : 100);
  }
}
