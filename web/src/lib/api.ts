// The client of our own HTTP API. Its types are generated from the OpenAPI document.
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Message = Schemas["MessageView"];
export type Overview = Schemas["Overview"];
export type QueueFigures = Schemas["QueueFigures"];
export type Session = Schemas["SessionView"];

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: { field: string; message: string }[] = [],
  ) {
    super(message);
  }
}

// Below any path of a proxy: relative to the page.
export const base = new URL(".", document.baseURI).href.replace(/\/$/, "");
let csrf: string | null = null;
let onSignedOut: () => void = () => {};

export function useCsrf(token: string | null | undefined): void {
  csrf = token ?? null;
}

export function whenSignedOut(action: () => void): void {
  onSignedOut = action;
}

const guard: Middleware = {
  onRequest({ request }) {
    if (csrf && request.method !== "GET") request.headers.set("X-CSRF-Token", csrf);
    return request;
  },
};
export const client = createClient<paths>({ baseUrl: base, credentials: "same-origin" });
client.use(guard);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Returns the data of an answer, or throws an error that says what happened. */
export async function unwrap<T>(asked: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await asked;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The server cannot be reached. Check that penstock serve is running.");
  }
  if (answer.response.ok || answer.response.status === 304) return answer.data as T;
  throw readError(answer.response.status, answer.error);
}

function readError(status: number, body: unknown): ApiError {
  if (status === 401) onSignedOut();
  const error = (body as { error?: Schemas["Error"] } | undefined)?.error;
  if (!error) return new ApiError(status, "UNKNOWN", `The server answered with status ${status}.`);
  return new ApiError(status, error.code, error.message, error.details);
}

/** Fetches the text of an answer, for bodies whose numbers must stay as they are. */
export async function fetchText(path: string, signal?: AbortSignal): Promise<string> {
  let response: Response;
  try {
    response = await fetch(base + path, { credentials: "same-origin", signal });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The server cannot be reached. Check that penstock serve is running.");
  }
  const text = await response.text();
  if (response.ok) return text;
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  throw readError(response.status, body);
}

/** Sends JSON to a path that the generated client does not know: for features of newer servers. */
export async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (csrf) headers["X-CSRF-Token"] = csrf;
  const asked = fetch(base + path, {
    method,
    headers,
    credentials: "same-origin",
    body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
  }).then(async (response) => {
    const text = await response.text();
    let data: unknown;
    try {
      data = text ? JSON.parse(text) : undefined;
    } catch {
      data = undefined;
    }
    return { data: data as T, error: data, response };
  });
  return unwrap(asked);
}

/** True if the same request may succeed later: the network, the server or its store was away. */
export const isTransient = (error: unknown): boolean => error instanceof ApiError && (error.status === 0 || error.status >= 500);

export const explainError = (error: unknown): string => (error instanceof Error ? error.message : String(error));
