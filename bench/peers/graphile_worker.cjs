// graphile-worker, the fastest of the peers, for Node: fill URL COUNT, or drain URL COUNT.
// Prints one line of JSON, as script.py does. Ends when no job is left in its table.
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { run, makeWorkerUtils, runMigrations, Logger } = require("graphile-worker");
const { Pool } = require("pg");

const [, , step, url, countText] = process.argv;
const count = Number(countText);
const WARM_UP = 200;
const BULK = 1000;
const BODY = 200;
const LEFT = "SELECT count(*)::int AS left FROM graphile_worker._private_jobs";
const PRESET = {
  worker: {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: 25,
    preparedStatements: true,
    localQueue: { size: 500 },
    completeJobBatchDelay: 10,
    failJobBatchDelay: 10,
  },
};
const logger = new Logger(() => () => {});
const now = () => Number(process.hrtime.bigint()) / 1e9;

function body(number) {
  const head = `{"number":${number},"sent_at":0.0,"padding":"`;
  return JSON.parse(head + "x".repeat(BODY - head.length - 2) + '"}');
}

async function fill(total) {
  await runMigrations({ connectionString: url, logger });
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  const jobs = Array.from({ length: BULK }, (_, number) => ({
    identifier: "noop",
    payload: body(number),
  }));
  const began = now();
  for (let done = 0; done < total; done += BULK) await utils.addJobs(jobs.slice(0, total - done));
  const seconds = now() - began;
  await utils.release();
  return seconds;
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
  const runner = await run({ preset: PRESET, taskList: { noop }, logger, noHandleSignals: true });
  await ran;
  await settled();
  const seconds = now() - began;
  await runner.stop();
  return seconds;
}

async function settled() {
  const pool = new Pool({ connectionString: url, max: 1 });
  while ((await pool.query(LEFT)).rows[0].left > 0) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await pool.end();
}

async function main() {
  const messages = step === "fill" ? count + WARM_UP : count;
  const seconds = step === "fill" ? await fill(messages) : await drain();
  const manifest = join(process.env.NODE_PATH, "graphile-worker/package.json");
  const { version } = JSON.parse(readFileSync(manifest));
  const line = { package: "graphile-worker", version, step, messages, seconds };
  console.log(JSON.stringify({ ...line, rate: messages / seconds }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
