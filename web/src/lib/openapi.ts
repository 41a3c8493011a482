// Reads the OpenAPI document of this server.
export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  required?: string[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  pattern?: string;
}
export interface Content {
  schema?: Schema;
  example?: unknown;
}
interface Body {
  required?: boolean;
  description?: string;
  content?: Record<string, Content>;
  $ref?: string;
}
export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: Schema;
}
export interface Operation {
  method: string;
  path: string;
  operationId: string;
  summary: string;
  description?: string;
  tags?: string[];
  parameters?: Parameter[];
  requestBody?: Body;
  responses: Record<string, Body>;
}
export interface Document {
  info: { title: string; version: string; description?: string };
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Omit<Operation, "method" | "path">>>;
  components: { schemas: Record<string, Schema>; responses: Record<string, Body> };
}

export const listOperations = (document: Document): Operation[] =>
  Object.entries(document.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, each]) => ({ ...each, method: method.toUpperCase(), path })));

const lastPart = (reference: string): string => reference.split("/").at(-1) ?? "";

export function resolve(document: Document, schema: Schema): Schema {
  return schema.$ref ? { ...document.components.schemas[lastPart(schema.$ref)], description: schema.description ?? document.components.schemas[lastPart(schema.$ref)]?.description } : schema;
}

export const resolveBody = (document: Document, body: Body): Body => (body.$ref ? (document.components.responses[lastPart(body.$ref)] ?? {}) : body);

/** Names the type of a value in a few words. */
export function nameType(schema: Schema): string {
  if (schema.$ref) return lastPart(schema.$ref);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map(nameType).join(" | ");
  if (schema.items) return `${nameType(schema.items)}[]`;
  if (typeof schema.additionalProperties === "object") return `{ [name]: ${nameType(schema.additionalProperties)} }`;
  return [schema.type].flat().filter(Boolean).join(" | ") || "any";
}

/** Finds the object whose fields can be shown: the schema itself, its items or the only choice that is not null. */
export function findObject(document: Document, schema: Schema): Schema | undefined {
  const found = resolve(document, schema);
  if (found.properties) return found;
  if (found.items) return findObject(document, found.items);
  if (typeof found.additionalProperties === "object") return findObject(document, found.additionalProperties);
  const choices = (found.anyOf ?? []).map((each) => findObject(document, each)).filter((each) => each !== undefined);
  return choices.length === 1 ? choices[0] : undefined;
}

export function describeLimits(schema: Schema): string {
  const limits = [
    schema.format, schema.default === undefined || schema.default === null ? "" : `default ${JSON.stringify(schema.default)}`,
    schema.minimum === undefined ? "" : `at least ${schema.minimum}`, schema.maximum === undefined ? "" : `at most ${schema.maximum}`, schema.maxLength === undefined ? "" : `at most ${schema.maxLength} characters`,
  ];
  return limits.filter(Boolean).join(", ");
}

/** Writes a request that can be sent as it is, but for what stands in braces. */
export function writeCurl(base: string, operation: Operation): string {
  const example = operation.requestBody?.content?.["application/json"]?.example;
  const method = operation.method === "GET" || (operation.method === "POST" && example !== undefined) ? "" : ` -X ${operation.method}`;
  const body = example === undefined ? "" : ` -H 'Content-Type: application/json' -d '${JSON.stringify(example).replaceAll("'", `'\\''`)}'`;
  return `curl -s${method} '${base}${operation.path}'${body}`;
}
