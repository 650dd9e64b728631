// SPDX-License-Identifier: Apache-2.0
//
// The npm package `ai` with four of its providers (C-AIS-01 to -09, but for images).
import { createAnthropic } from '@ai-sdk/anthropic';
import { createDeepSeek } from '@ai-sdk/deepseek';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false;
const fact = 'The capital of France is Paris.';

export async function run({ url, model, check, same }) {
  const apiKey = 'none';
  const providers = {
    deepseek: createDeepSeek({ baseURL: `${url}/v1`, apiKey })(model),
    compatible: createOpenAICompatible({ name: 'weir', baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true })(model),
    openai: createOpenAI({ baseURL: `${url}/v1`, apiKey })(model),
    anthropic: createAnthropic({ baseURL: `${url}/anthropic/v1`, apiKey })(model),
  };
  for (const [name, provider] of Object.entries(providers)) {
    // Nothing is stored here, so OpenAI's provider must send what it got instead of naming it.
    const common = { model: provider, maxRetries: 0, providerOptions: { openai: { store: false } } };

    // C-AIS-01: text, reasoning, the reason of the end and usage, streamed
    const streamed = streamText({ ...common, prompt: 'What is the capital of France?' });
    let text = '';
    for await (const piece of streamed.textStream) text += piece;
    same([text, await streamed.finishReason], [fact, 'stop'], `${name}: streamed`);
    const usage = await streamed.usage;
    check(usage.inputTokens > 0 && usage.outputTokens > 0, `${name}: usage ${JSON.stringify(usage)}`);
    // Those two of the providers that show text of OpenAI's reasoning only as summaries show none.
    if (name !== 'openai') same(await streamed.reasoningText, 'Everybody knows this.', `${name}: reasoning`);

    // C-AIS-02, -05, -06: a loop of tools in two steps
    const asked = [];
    const get_weather = tool({ description: 'The weather', inputSchema: z.object({ location: z.string(), days: z.number().optional() }), execute: async (input) => { asked.push(input); return 'It is sunny, 20 degrees.'; } });
    for (const ask of [generateText, streamText]) {
      const looped = await ask({ ...common, prompt: 'The weather of both cities, please', tools: { get_weather }, stopWhen: stepCountIs(3) });
      const steps = await looped.steps;
      same([await looped.text, steps.length, steps[0]?.finishReason, steps[0]?.toolCalls.map(({ toolCallId }) => toolCallId).filter((id, i, all) => all.indexOf(id) === i).length],
           ['It is sunny in Paris, with 20 degrees.', 2, 'tool-calls', 2], `${name}: a loop of tools by ${ask.name}`);
    }
    same(asked.slice(0, 2), [{ location: 'Paris' }, { location: 'Lyon', days: 3 }], `${name}: the calls`);

    // C-AIS-03, -09: objects by a schema, though the prompt does not name JSON
    if (name !== 'anthropic') {
      const { object } = await generateObject({ ...common, schema: z.object({ a: z.number() }), prompt: '{"a": 5}' });
      same(object, { a: 5 }, `${name}: generateObject`);
    }

    // C-AIS-08: a failure is told
    const failures = [];
    const failing = streamText({ ...common, topP: 5, prompt: 'x', onError: ({ error }) => failures.push(error) });
    await failing.consumeStream({ onError: () => {} });
    check(failures.length === 1 && failures[0].statusCode === 400, `${name}: onError ${failures.map(({ statusCode, message }) => `${statusCode} ${message}`)}`);
  }
  // C-AIS-07: what Anthropic's provider adds by itself
  const { toolCalls } = await generateText({ model: providers.anthropic, maxRetries: 0, maxOutputTokens: 256, prompt: 'How is the weather in Paris?', toolChoice: 'required',
    tools: { get_weather: tool({ inputSchema: z.object({ location: z.string() }), providerOptions: { anthropic: { eagerInputStreaming: true } } }) },
    providerOptions: { anthropic: { disableParallelToolUse: true } } });
  same(toolCalls.map(({ input }) => input), [{ location: 'Paris' }], 'tool_choice any');
}
