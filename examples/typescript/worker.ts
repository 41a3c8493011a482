// A typed worker for Node 20 or newer. It claims messages, renews their leases while it works, and
// settles them. Start `penstock serve`, then in this directory:
//
//   npm install
//   npm run types        # makes schema.d.ts from the OpenAPI document of the server
//   npm run build
//   npm start mail       # the queue; set PENSTOCK_KEY for a server with --auth
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Claimed = components["schemas"]["Delivery"];
type Answer<T> = { data?: T; error?: components["schemas"]["Envelope"]; response: Response };

const LEASE_S = 30;
const queue = process.argv[2] ?? "default";
const key = process.env.PENSTOCK_KEY;
const api = createClient<paths>({
  baseUrl: process.env.PENSTOCK_SERVER ?? "http://127.0.0.1:7070",
  headers: key === undefined ? {} : { Authorization: `Bearer ${key}` },
});
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());

// Replace this with your code. What it returns is the result of the message.
async function work(message: Claimed): Promise<unknown> {
  return { echo: message.body };
}

class Refused extends Error {
  constructor(readonly status: number, error: components["schemas"]["Envelope"] | undefined) {
    super(`${status} ${error?.error.code}: ${error?.error.message}`);
  }
}

// Repeats a call while the server is unavailable (503) or busy (429).
async function call<T>(send: () => Promise<Answer<T>>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    let pause = 1;
    try {
      const { data, error, response } = await send();
      if (response.ok) return data as T;
      if (response.status !== 429 && response.status !== 503) throw new Refused(response.status, error);
      pause = Number(response.headers.get("retry-after") ?? 1);
    } catch (error) {
      // fetch throws a TypeError if there is no connection.
      if (!(error instanceof TypeError)) throw error;
    }
    await sleep(pause * 1000, undefined, { signal });
  }
}

// A conflict (409) means that the lease was lost, or that an earlier attempt succeeded.
async function settle(send: () => Promise<Answer<unknown>>): Promise<void> {
  try {
    await call(send);
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 409) throw error;
    console.error(`dropped: ${error.message}`);
  }
}

async function keepLease(token: string, signal: AbortSignal): Promise<void> {
  try {
    for (;;) {
      await sleep((LEASE_S * 1000) / 3, undefined, { signal });
      await call(() => api.POST("/v1/extend", { body: { token, lease: LEASE_S }, signal }), signal);
    }
  } catch (error) {
    if (!signal.aborted) console.error(`lease not renewed: ${error}`);
  }
}

async function handle(message: Claimed): Promise<void> {
  const { token } = message;
  const done = new AbortController();
  const heart = keepLease(token, done.signal);
  try {
    const result = await work(message);
    await settle(() => api.POST("/v1/complete", { body: { token, result } }));
    console.log(`completed ${message.id}`);
  } catch (error) {
    if (error instanceof Refused) throw error;
    await settle(() => api.POST("/v1/nack", { body: { token, error: String(error) } }));
    console.log(`failed ${message.id}: ${error}`);
  } finally {
    done.abort();
    await heart;
  }
}

const consumer = `${hostname()}-${process.pid}`;
const asked = { queues: [{ queue }], wait: 20, lease: LEASE_S, consumer };
const { signal } = stopping;
while (!signal.aborted) {
  try {
    const claimed = await call(() => api.POST("/v1/claim", { body: asked, signal }), signal);
    for (const message of claimed.messages) await handle(message);
  } catch (error) {
    // Only a claim that can never succeed, such as one with a wrong key, ends the worker.
    if (!signal.aborted) {
      console.error(error instanceof Refused ? error.message : error);
      process.exit(1);
    }
  }
}
