// SPDX-License-Identifier: Apache-2.0
//
// The npm packages `@langchain/openai`, `@langchain/deepseek` and `@langchain/anthropic` (C-LC-01 to -05).
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatDeepSeek } from '@langchain/deepseek';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

const fact = 'The capital of France is Paris.';

// The text of a message whose content may be parts.
const textOf = ({ content }) => (typeof content === 'string' ? content : content.map((part) => part.text ?? '').join(''));

export async function run({ url, model, check, same }) {
  const configuration = { baseURL: `${url}/v1` };
  const models = {
    openai: new ChatOpenAI({ model, apiKey: 'none', configuration, maxRetries: 0 }),
    deepseek: new ChatDeepSeek({ model, apiKey: 'none', configuration, maxRetries: 0 }),
    anthropic: new ChatAnthropic({ model, apiKey: 'none', anthropicApiUrl: url, maxRetries: 0, maxTokens: 512 }),
  };
  for (const [name, chat] of Object.entries(models)) {
    // C-LC-01, -05: a stream and its usage
    let all;
    for await (const chunk of await chat.stream('What is the capital of France?')) all = all ? all.concat(chunk) : chunk;
    same(textOf(all), fact, `${name}: streamed`);
    check(all.usage_metadata?.input_tokens > 0 && all.usage_metadata.output_tokens > 0, `${name}: usage ${JSON.stringify(all.usage_metadata)}`);
    if (name === 'deepseek') same(all.additional_kwargs.reasoning_content, 'Everybody knows this.', `${name}: reasoning`);

    // C-LC-02, -04: calls and their results, without the reasoning where the library keeps it
    const get_weather = tool(async () => '', { name: 'get_weather', description: 'The weather', schema: z.object({ location: z.string(), days: z.number().optional() }) });
    const bound = chat.bindTools([get_weather]);
    const question = new HumanMessage('The weather of both cities, please');
    const called = await bound.invoke([question]);
    same(called.tool_calls?.map(({ args }) => args), [{ location: 'Paris' }, { location: 'Lyon', days: 3 }], `${name}: calls`);
    const results = called.tool_calls.map(({ id }) => new ToolMessage({ tool_call_id: id, content: 'It is sunny, 20 degrees.' }));
    same(textOf(await bound.invoke([question, called, ...results])), 'It is sunny in Paris, with 20 degrees.', `${name}: results`);
  }

  // C-LC-03: structured output by a schema of draft 2020-12
  const schema = { $schema: 'https://json-schema.org/draft/2020-12/schema', title: 'thing', type: 'object', properties: { a: { type: 'integer' } }, required: ['a'], additionalProperties: false };
  same(await models.openai.withStructuredOutput(schema, { name: 'thing', method: 'jsonSchema', strict: true }).invoke('{"a": 5}'), { a: 5 }, 'withStructuredOutput');

  // C-LC-06: many at once
  const answers = await models.openai.batch(Array.from({ length: 20 }, () => 'What is the capital of France?'), { maxConcurrency: 10 });
  check(answers.length === 20 && answers.every((answer) => textOf(answer) === fact), 'a batch');
}
