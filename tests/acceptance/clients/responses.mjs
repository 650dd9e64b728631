// SPDX-License-Identifier: Apache-2.0
//
// The Responses part of the npm package `openai` (C-OAI-09, C-AGT-08, D45; agents that speak Responses).
import OpenAI from 'openai';

const tools = [
  { type: 'function', name: 'get_weather', parameters: { type: 'object', properties: { location: { type: 'string' } }, required: ['location'], additionalProperties: false }, strict: true },
  { type: 'web_search' },
];

export async function run({ url, model, check, same, refusal, heldAfter }) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 30000 });
  const fact = 'The capital of France is Paris.';

  // A whole answer
  const whole = await client.responses.create({ model, instructions: 'Be brief.', input: 'What is the capital of France?', store: false, include: ['reasoning.encrypted_content'], metadata: { a: 'b' } });
  same([whole.object, whole.status, whole.model, whole.output_text, whole.error, whole.incomplete_details], ['response', 'completed', model, fact, null, null], 'a whole answer');
  same(whole.output.map(({ type, content }) => [type, content[0].text]), [['reasoning', 'Everybody knows this.'], ['message', fact]], 'its items');
  const { usage } = whole;
  check(usage.input_tokens > 0 && usage.total_tokens === usage.input_tokens + usage.output_tokens && usage.output_tokens_details.reasoning_tokens > 0 && usage.input_tokens_details.cached_tokens >= 0, `usage ${JSON.stringify(usage)}`);

  // A stream by hand and by the helper, which checks the life cycle of items
  const events = [];
  for await (const event of await client.responses.create({ model, input: 'What is the capital of France?', stream: true })) events.push(event);
  check(events.every(({ sequence_number }, i) => sequence_number === i), 'events are numbered from 0');
  same(events.map(({ type }) => type.replace('response.', '')).filter((type, i, all) => type !== all[i - 1]),
       ['created', 'in_progress', 'output_item.added', 'content_part.added', 'reasoning_text.delta', 'reasoning_text.done', 'content_part.done', 'output_item.done',
        'output_item.added', 'content_part.added', 'output_text.delta', 'output_text.done', 'content_part.done', 'output_item.done', 'completed'], 'the order of events');
  const helper = client.responses.stream({ model, input: 'What is the capital of France?' });
  const final = await helper.finalResponse();
  same([final.output_text, final.status, final.usage.output_tokens], [fact, 'completed', usage.output_tokens], 'the helper\'s last response');

  // Tools: both calls, then results in each order, with and without the reasoning
  const question = { role: 'user', content: 'The weather of both cities, please' };
  const both = await client.responses.stream({ model, input: [question], tools }).finalResponse();
  const calls = both.output.filter(({ type }) => type === 'function_call');
  same(calls.map((call) => [call.name, JSON.parse(call.arguments)]), [['get_weather', { location: 'Paris' }], ['get_weather', { location: 'Lyon', days: 3 }]], 'two calls');
  check(new Set(calls.map(({ call_id }) => call_id)).size === 2, 'calls have ids of their own');
  const results = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: 'It is sunny, 20 degrees.' }));
  const rest = both.output.filter(({ type }) => type !== 'function_call');
  for (const [name, items] of Object.entries({
    'calls, then results': [...both.output, ...results],
    'results the other way': [...both.output, ...results.toReversed?.() ?? [...results].reverse()],
    'each call with its result': [...rest, calls[0], results[0], calls[1], results[1]],
    'without reasoning': [...calls, ...results],
    'mixed without reasoning': [calls[0], results[0], calls[1], results[1]],
  })) {
    const told = await refusal(client.responses.create({ model, input: [question, ...items], tools }));
    check(told.status === 'completed' || told.value?.output_text === 'It is sunny in Paris, with 20 degrees.', `${name}: ${told.message ?? told.value?.output_text}`);
  }
  const forced = await client.responses.create({ model, input: 'Please count', tools, tool_choice: { type: 'function', name: 'get_weather' }, max_output_tokens: 16 });
  same(forced.output[0]?.type === 'reasoning', false, 'a forced call does not think');

  // Effort, limits and formats
  const plain = await client.responses.create({ model, input: [{ role: 'developer', content: 'Be brief.' }, { role: 'user', content: [{ type: 'input_text', text: 'Please count' }] }], reasoning: { effort: 'none' }, max_output_tokens: 4 });
  same([plain.status, plain.incomplete_details, plain.output.map(({ type }) => type), plain.usage.output_tokens], ['incomplete', { reason: 'max_output_tokens' }, ['message'], 4], 'a cut answer without thinking');
  const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'], additionalProperties: false };
  const json = await client.responses.parse({ model, input: '{"a": 5}', text: { format: { type: 'json_schema', name: 'thing', strict: true, schema } } });
  same(json.output_parsed, { a: 5 }, 'text.format json_schema');

  // Refusals
  for (const [fields, param] of [[{ previous_response_id: 'resp_1' }, 'previous_response_id'], [{ input: [] }, 'input'], [{ input: [{ type: 'item_reference', id: 'msg_1' }] }, 'input[0]'], [{ temperature: 'warm' }, 'temperature']]) {
    const bad = await refusal(client.responses.create({ model, input: 'x', ...fields }));
    same([bad.status, bad.type, bad.param], [400, 'invalid_request_error', param], `a refusal of ${param}`);
  }

  // Abort
  let seen = 0;
  for await (const event of await client.responses.create({ model, input: 'Tell me a story', stream: true })) {
    if (event.type && ++seen === 5) break;
  }
  same(await heldAfter(1000), [], 'held 1 s after an abort');
}
