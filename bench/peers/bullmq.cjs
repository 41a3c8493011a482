// BullMQ, the queue of Node on Redis: fill URL COUNT, or drain URL COUNT.
// Prints one line of JSON, as script.py does. Ends when no job is left.
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { Queue, Worker } = require("bullmq");

const [, , step, url, countText] = process.argv;
const count = Number(countText);
const WARM_UP = 200;
const BULK = 1000;
const BODY = 200;
const { hostname: host, port, pathname } = new URL(url);
const db = Number(pathname.slice(1));
const connection = { host, port: Number(port), db, maxRetriesPerRequest: null };
const now = () => Number(process.hrtime.bigint()) / 1e9;

function body(number) {
  const head = `{"number":${number},"sent_at":0.0,"padding":"`;
  return JSON.parse(head + "x".repeat(BODY - head.length - 2) + '"}');
}

const queue = new Queue("bench", { connection, defaultJobOptions: { removeOnComplete: true } });

async function fill(total) {
  const jobs = Array.from({ length: BULK }, (_, number) => ({ name: "noop", data: body(number) }));
  const began = now();
  for (let done = 0; done < total; done += BULK) await queue.addBulk(jobs.slice(0, total - done));
  return now() - began;
}

async function drain() {
  let done = 0;
  let began = 0;
  let all;
  const ran = new Promise((resolve) => (all = resolve));
  const noop = async () => {
    done += 1;
    if (done === WARM_UP) began = now();
    else if (done === WARM_UP + count) all();
  };
  const worker = new Worker("bench", noop, { connection, concurrency: 100 });
  await ran;
  while ((await left()) > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  const seconds = now() - began;
  await worker.close();
  return seconds;
}

async function left() {
  const counts = await queue.getJobCounts("wait", "active", "prioritized", "delayed");
  return Object.values(counts).reduce((sum, each) => sum + each, 0);
}

async function main() {
  const messages = step === "fill" ? count + WARM_UP : count;
  const seconds = step === "fill" ? await fill(messages) : await drain();
  const { version } = JSON.parse(readFileSync(join(process.env.NODE_PATH, "bullmq/package.json")));
  const line = { package: "bullmq", version, step, messages, seconds };
  console.log(JSON.stringify({ ...line, rate: messages / seconds }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
