// The schemas that the bodies of a queue must match.
import { client, unwrap, type Schemas } from "./api";
import { onTopic, query } from "./query.svelte";
import { glob } from "./session.svelte";

type Binding = Schemas["BindingView"];

/** Call while a component is made. A viewer without the right sees no schema. */
export function querySchemas(message: () => { queue: string; type: string } | undefined): () => Binding[] {
  const queue = $derived(message()?.queue);
  const bindings = query(async (signal) => (queue ? (await unwrap(client.GET("/v1/bindings", { params: { query: { queue } }, signal })).catch(() => ({ bindings: [] }))).bindings : []), { when: onTopic("queues") });
  const found = $derived((bindings.value ?? []).filter((each) => glob(each.type, message()?.type ?? "")));
  return () => found;
}
