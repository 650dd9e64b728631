#!/usr/bin/env node
// Compiles every source of the release tree with clang, syntax only, so that thread-safety
// annotations (ABSL_GUARDED_BY and the like) are checked and clang accepts what g++ accepts.
// usage: node tests/trees/thread_safety.mjs [BUILD-DIR]
import { readFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { cpus } from 'node:os';
import { relative, resolve } from 'node:path';

const build = process.argv[2] ?? 'build';
const root = process.cwd();
const all = JSON.parse(readFileSync(`${build}/compile_commands.json`, 'utf8'));
const jobs = new Map();  // one compilation a file: link tests share one
for (const { file, command, directory } of all) {
  const path = relative(root, resolve(directory, file));
  if (path.startsWith('build') || path.startsWith('..') || !path.endsWith('.cc')) continue;
  jobs.set(path, { command, directory });
}

// Keeps what changes meaning: include paths, definitions, the language and instruction sets.
function clangArguments(command) {
  const words = command.replaceAll('\\"', '"').split(' ');
  const kept = [];
  for (let i = 0; i < words.length; ++i) {
    if (words[i] === '-isystem') kept.push('-isystem', words[++i]);
    else if (/^-(I|D|m|std=)/.test(words[i])) kept.push(words[i]);
  }
  return ['-fsyntax-only', '-Wthread-safety', '-Werror', ...kept];
}

let failed = 0;
let done = 0;
async function worker(queue) {
  for (let job = queue.shift(); job; job = queue.shift()) {
    const [path, { command, directory }] = job;
    const args = [...clangArguments(command), resolve(root, path)];
    const output = [];
    const code = await new Promise((settle) => {
      const child = spawn('clang++', args, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
      for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => output.push(chunk));
      child.on('error', (error) => { output.push(Buffer.from(`${error.message}\n`)); settle(1); });
      child.on('close', settle);
    });
    if (++done % 25 === 0) console.log(`${done} of ${jobs.size}`);
    if (code !== 0) {
      ++failed;
      console.log(`FAILED ${path}`);
      console.log(Buffer.concat(output).toString().split('\n').slice(0, 25).join('\n'));
    }
  }
}
const queue = [...jobs];
await Promise.all(cpus().map(() => worker(queue)));
console.log(`${done} sources checked, ${failed} refused`);
process.exit(failed === 0 && done > 0 ? 0 : 1);
