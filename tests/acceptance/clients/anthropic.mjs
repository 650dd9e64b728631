// SPDX-License-Identifier: Apache-2.0
//
// The npm package `@anthropic-ai/sdk` (C-ANT-01 to -09, but for images).
import Anthropic from '@anthropic-ai/sdk';

const tools = [{ name: 'get_weather', input_schema: { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] }, cache_control: { type: 'ephemeral' } }];
const say = (content) => [{ role: 'user', content }];

export async function run({ url, model, check, same, refusal, heldAfter }) {
  const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, timeout: 30000 });
  const ask = (fields) => client.messages.create({ model, max_tokens: 512, ...fields });
  const fact = 'The capital of France is Paris.';

  // C-ANT-02, -06: a whole answer, with system blocks and marks of a cache
  const system = [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }];
  const whole = await ask({ system, messages: say('What is the capital of France?') });
  same([whole.type, whole.role, whole.model, whole.stop_reason, whole.stop_sequence], ['message', 'assistant', model, 'end_turn', null], 'a whole answer');
  same(whole.content.map(({ type, thinking, text }) => [type, thinking ?? text]), [['thinking', 'Everybody knows this.'], ['text', fact]], 'its blocks');
  const { usage } = whole;
  check(usage.input_tokens > 0 && usage.output_tokens > 0 && usage.cache_creation_input_tokens === 0 && usage.cache_read_input_tokens >= 0, `usage ${JSON.stringify(usage)}`);

  // C-ANT-07: counting and models
  const counted = await client.messages.countTokens({ model, system, messages: say('What is the capital of France?') });
  same(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens, 'countTokens');
  const listed = await client.models.list();
  same([listed.data.length, listed.data[0]?.id, listed.data[0]?.type, listed.has_more, listed.first_id, listed.last_id], [1, model, 'model', false, model, model], 'models.list');
  same((await client.models.retrieve(model)).id, model, 'models.retrieve');
  same((await refusal(client.models.retrieve('nobody'))).error?.error?.type, 'not_found_error', 'an unknown model');

  // C-ANT-03, -04: the order of a stream, with thinking
  const events = [];
  for await (const event of await ask({ messages: say('What is the capital of France?'), stream: true })) events.push(event);
  // The library keeps pings to itself.
  const order = events.map(({ type, delta, content_block }) => delta?.type ?? content_block?.type ?? type).filter((type, i, all) => type !== all[i - 1]);
  same(order, ['message_start', 'thinking', 'thinking_delta', 'signature_delta', 'content_block_stop', 'text', 'text_delta', 'content_block_stop', 'message_delta', 'message_stop'], 'the order of events');
  const begun = events[0].message.usage;
  check(begun.input_tokens > 0 && 'cache_read_input_tokens' in begun && 'cache_creation_input_tokens' in begun, `usage at the start ${JSON.stringify(begun)}`);
  same(events.findLast(({ type }) => type === 'message_delta')?.usage.output_tokens, usage.output_tokens, 'usage at the end');
  const thought = whole.content[0];
  const next = await ask({ messages: [...say('What is the capital of France?'), { role: 'assistant', content: [{ ...thought, signature: 'another' }, whole.content[1]] }, ...say('Please count')], thinking: { type: 'disabled' } });
  same([next.content.map(({ type }) => type), next.content[0]?.text], [['text'], 'one two three four five six seven eight nine ten'], 'thinking sent back, and switched off');

  // C-ANT-05: tools, streamed by the helper and back with a result
  const stream = client.messages.stream({ model, max_tokens: 512, messages: say('The weather of both cities, please'), tools });
  let json = '';
  stream.on('inputJson', (piece) => { json += piece; });
  const both = await stream.finalMessage();
  const uses = both.content.filter(({ type }) => type === 'tool_use');
  same([both.stop_reason, uses.map(({ input }) => input)], ['tool_use', [{ location: 'Paris' }, { location: 'Lyon', days: 3 }]], 'two calls');
  check(new Set(uses.map(({ id }) => id)).size === 2 && json.length > 0, 'calls have ids and pieces');
  const results = uses.map(({ id }, i) => ({ type: 'tool_result', tool_use_id: id, ...(i === 0 ? { content: 'It is sunny, 20 degrees.' } : { is_error: true, content: [{ type: 'text', text: 'unknown' }] }) })).reverse();
  const told = await ask({ messages: [...say('The weather of both cities, please'), { role: 'assistant', content: both.content }, { role: 'user', content: [...results, { type: 'text', text: 'Is it sunny?' }] }], tools });
  same(told.content.at(-1).text, 'It is sunny in Paris, with 20 degrees.', 'an answer to results');
  for (const tool_choice of [{ type: 'any', disable_parallel_tool_use: true }, { type: 'auto' }, { type: 'none' }, { type: 'tool', name: 'get_weather' }]) {
    const answer = await refusal(ask({ messages: say('Please count'), tools, tool_choice, max_tokens: 32 }));
    check((answer.status ?? 0) === 200 && answer.value.type === 'message', `tool_choice ${tool_choice.type}: ${answer.message}`);
  }

  // Stops and limits
  const stopped = await ask({ messages: say('Please count'), stop_sequences: [' seven', ' five'], thinking: { type: 'disabled' } });
  same([stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence], ['one two three four', 'stop_sequence', ' five'], 'stop_sequences');
  const short = await ask({ messages: say('Please count'), max_tokens: 4, thinking: { type: 'disabled' } });
  same([short.stop_reason, short.usage.output_tokens], ['max_tokens', 4], 'max_tokens');
  const ahead = await ask({ messages: [...say('Please count'), { role: 'assistant', content: 'one' }], thinking: { type: 'disabled' }, max_tokens: 4 });
  same(ahead.content[0]?.type, 'text', 'an answer that was begun');

  // C-ANT-01: either header, any version, any list of betas; fields of other servers
  const other = new Anthropic({ baseURL: `${url}/anthropic`, apiKey: null, authToken: 'none', maxRetries: 0, defaultHeaders: { 'anthropic-beta': 'files-api-2025-04-14,unknown-1', 'anthropic-version': '1999-01-01' } });
  const plain = await other.beta.messages.create({ model: 'claude-any', max_tokens: 64, messages: say('What is the capital of France?'), metadata: { user_id: 'u' }, service_tier: 'auto', betas: ['context-management-2025-06-27'], context_management: { edits: [] } });
  same(plain.content.at(-1).text, fact, 'the beta namespace under /anthropic');

  // C-ANT-06, -08: errors
  const unknown = await refusal(ask({ messages: say([{ type: 'video', source: {} }]) }));
  same([unknown.status, unknown.error?.type, unknown.error?.error?.type, typeof unknown.error?.request_id], [400, 'error', 'invalid_request_error', 'string'], 'an unknown block');
  check(unknown.message.includes('messages[0].content[0].type'), `the block is named: ${unknown.message}`);
  const image = await refusal(ask({ messages: say([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA==' } }]) }));
  same([image.status, image.error?.error?.type], [400, 'invalid_request_error'], 'an image for a model without vision');
  const foreign = await refusal(client.messages.create({ model: 'gpt', max_tokens: 5, messages: say('x') }));
  same([foreign.status, foreign.error?.error?.type], [404, 'not_found_error'], 'a model that is not served');

  // C-ANT-09: abort
  const aborted = client.messages.stream({ model, max_tokens: 512, messages: say('Tell me a story') });
  await new Promise((done) => { aborted.on('streamEvent', () => done()); aborted.on('error', done); });
  aborted.abort();
  await aborted.done().catch(() => {});
  same(await heldAfter(1000), [], 'held 1 s after an abort');
}
