// SPDX-License-Identifier: Apache-2.0
//
// Forty clients ask without pause, and some leave, while engines are killed or told to go at random
// and come back. Everybody who stays gets the text of an undisturbed run; who is told to go exits 0;
// nothing is held in the end.
import { Cluster, complete, expect, inParallel, isWhole, modelDir, pause, randomFrom, untilNothingHeld } from './frame.mjs';

const kClients = 40;

export async function soak(transfer, minutes, seed) {
  const random = randomFrom(seed);
  // Attempts: one stream may meet many deaths here.
  const set = {
    router: { attempts_max: 10 },
    decode: { step_delay_us: 2000, transfer_delay_ms: 20, slots: 24, drain_ms: 200 },
    prefill: { step_delay_us: 4000, chunk_rows: 128 },
  };
  const cluster = await Cluster.start({ model: modelDir('hash'), transfer, prefill: 2, decode: 2, set });
  const prompts = Array.from({ length: 60 }, (_, i) => ({ ids: random.ids(random.int(1, 900), 1024), maxTokens: random.int(1, 300), seed: i % 2 ? i : undefined }));
  const truths = await inParallel(prompts.map((prompt) => () => complete(cluster.url, prompt.ids, prompt)), 1);
  truths.forEach((truth, i) => expect(isWhole(truth), `soak, undisturbed prompt ${i}: ${truth.error ?? 'incomplete'}`));

  const sums = { streams: 0, left: 0, broken: 0, killed: 0, told: 0 };
  let over = false;
  const client = async () => {
    while (!over) {
      const i = random.int(0, prompts.length - 1);
      const leaving = random.real() < 0.2 ? { hangUpAfterMs: random.int(0, 1500) } : {};
      const answer = await complete(cluster.url, prompts[i].ids, { ...prompts[i], ...leaving });
      ++sums.streams;
      if (answer.hungUp) {
        ++sums.left;
        continue;
      }
      const whole = expect(isWhole(answer), `soak over ${transfer}, stream ${sums.streams}, prompt ${i}: ${answer.status} ${answer.error ?? 'incomplete'}`) &&
          expect(answer.text === truths[i].text, `soak over ${transfer}, stream ${sums.streams}, prompt ${i}: another text`);
      if (!whole) ++sums.broken;
    }
  };
  const clients = Array.from({ length: kClients }, client);
  const [router] = cluster.of('router');
  let early;
  for (const started = Date.now(), end = started + minutes * 60000; Date.now() < end;) {
    await pause(random.int(100, 1500));
    if (Date.now() > started + minutes * 20000) early ??= router.weir.rss();
    const role = random.real() < 0.5 ? 'prefill' : 'decode';
    const { weir } = cluster.of(role)[random.int(0, 1)];
    if (random.real() < 0.3) {
      ++sums.told;
      const { code } = await weir.stop();
      expect(code === 0, `soak over ${transfer}: ${weir.name} exit ${code} after SIGTERM`);
    } else {
      ++sums.killed;
      await weir.kill9();
    }
    await cluster.add(role);
    await cluster.ready();
  }
  over = true;
  await Promise.all(clients);
  const late = router.weir.rss();
  for (const item of await untilNothingHeld(cluster.processes, 10000)) expect(false, `soak over ${transfer}: still held: ${item}`);
  const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);
  console.log(`soak over ${transfer}, ${minutes} min: ${sums.streams} streams, ${sums.left} left by their clients, ${sums.broken} broken, ` +
              `${sums.killed} engines killed, ${sums.told} told to go; router ${mib(early)} MiB after a third, ${mib(late)} MiB at the end`);
  await cluster.stop();
  return sums.broken;
}
