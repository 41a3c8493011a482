// Fetching and acting on one message.
import { client, fetchText, unwrap, type Message } from "./api";
import { splitField } from "./rawjson";

export interface FullMessage {
  message: Message;
  /** The body as it was sent. */
  raw: string | undefined;
}

export const encodeReference = (reference: string): string => reference.split("/").map(encodeURIComponent).join("/");

export async function loadMessage(reference: string, signal: AbortSignal): Promise<FullMessage> {
  const text = await fetchText(`/v1/messages/${encodeReference(reference)}`, signal);
  const { rest, raw } = splitField<Message>(text, "body");
  return { message: rest, raw };
}

export const loadExplanation = async (id: string, signal?: AbortSignal) =>
  (await unwrap(client.GET("/v1/messages/{reference}/explain", { params: { path: { reference: id } }, signal }))).causes;

export const redrive = (id: string) => unwrap(client.POST("/v1/messages/{reference}/redrive", { params: { path: { reference: id } }, body: {} }));
export const cancel = (id: string, force = false) => unwrap(client.POST("/v1/messages/{reference}/cancel", { params: { path: { reference: id } }, body: { force } }));
export const purge = (id: string) => unwrap(client.POST("/v1/messages/{reference}/purge", { params: { path: { reference: id } } }));

const ENDED = new Set(["completed", "failed", "expired", "cancelled"]);
export const canRedrive = (state: string): boolean => state === "dead" || ENDED.has(state);
export const canCancel = (state: string): boolean => state === "ready" || state === "scheduled" || state === "claimed";
