// The Vercel AI SDK: @ai-sdk/openai-compatible over chat completions, @ai-sdk/openai over responses.
// What it is told and says is described in tests/sessions/doors/gateway/clients/speaking.py.

import { createInterface } from "node:readline";

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const WEATHER = "rain";
const PATIENCE = 1500;

function modelFor(task) {
  const where = { baseURL: task.base_url, apiKey: task.token };
  if (task.api === "responses") return createOpenAI(where)(task.model);
  return createOpenAICompatible({ name: "toolhub", ...where })(task.model);
}

function toolsFor(task, shown) {
  if (!task.tool) return undefined;
  const weather = tool({
    description: "Weather of a town.",
    inputSchema: z.object({ town: z.string() }),
    execute: async ({ town }) => {
      shown.towns.push(town);
      return WEATHER;
    },
  });
  return { [task.tool]: weather };
}

async function answer(task, shown) {
  const messages = [];
  for (const question of task.questions) {
    messages.push({ role: "user", content: question });
    messages.push(...(await talk(task, shown, messages)));
  }
}

// The new messages.
async function talk(task, shown, messages) {
  const leaving = new AbortController();
  const asked = {
    model: modelFor(task),
    tools: toolsFor(task, shown),
    messages,
    stopWhen: stepCountIs(5),
    maxRetries: 0,
    abortSignal: leaving.signal,
  };
  if (!task.streams) {
    if (task.leaves) setTimeout(() => leaving.abort(), PATIENCE);
    const result = await generateText(asked);
    shown.text += result.steps.map((step) => step.text).join("");
    shown.tokens = result.usage.totalTokens;
    return result.response.messages;
  }
  const result = streamText({ ...asked, onError: () => {} });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") shown.text += part.text;
    if (task.leaves && shown.text) {
      leaving.abort();
      return [];
    }
  }
  shown.tokens = (await result.usage).totalTokens;
  return (await result.response).messages;
}

for await (const line of createInterface({ input: process.stdin })) {
  const shown = { text: "", towns: [], tokens: 0, error: null, message: "" };
  try {
    await answer(JSON.parse(line), shown);
  } catch (error) {
    shown.error = error.statusCode ?? 0;
    shown.message = `${error.name}: ${error.message ?? JSON.stringify(error)}`;
  }
  process.stdout.write(`${JSON.stringify(shown)}\n`);
}
