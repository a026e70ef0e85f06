// Calls the posted `solution` once per entry of check/asserts.json; reports one JSON array.
//
// Descriptor 3 is the run's stdout. Descriptor 1 is the file named by the first
// argument, so nothing the solution prints, not even a child process of it, can
// come between the items.
'use strict';

const fs = require('fs');
const path = require('path');
const { inspect } = require('util');

const ASSERTS = 'check/asserts.json';
const SOLUTION = path.resolve('check/solution.js');
const RESULTS_FD = 3;
// Ahead of a run: ends when the files are there and the run begins.
const BEGIN_FD = 4;
// Characters of printed text that are repeated on stderr.
const REPEATED_MAX = 4096;

const printed = fs.openSync(process.argv[2], 'r');
const items = [];
// How many of them stand for a call: all but what was printed.
let answers = 0;
// The only answer so far, if that is an error, and what was printed before it.
let loneError = null;
let failures = 0;
let finished = false;
let bigintMark = null;

// Text no solution can guess, so that only real BigInts lose their quotes. Made
// when one is seen: crypto takes longer to load than all else of the harness.
function markBigint(value) {
  bigintMark ??= `bigint:${require('crypto').randomUUID()}:`;
  return bigintMark + value;
}

function unmarkBigints(text) {
  return bigintMark === null ? text : text.replace(new RegExp(`"${bigintMark}(-?\\d+)"`, 'g'), '$1');
}

function toItem(key, value) {
  if (typeof value === 'bigint') return markBigint(value);
  // JSON.stringify would make it null, and null may be what is expected.
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new TypeError(`${value} is not a JSON value`);
  }
  return value;
}

function encode(item) {
  return unmarkBigints(JSON.stringify(item, toItem))
    // The escape of a lone surrogate would cost the reader the whole array.
    .replace(/\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|[^])/g, (escape) => (
      escape.length === 6 ? '\ufffd' : escape));
}

function takePrinted() {
  const text = fs.readFileSync(printed, 'utf8');
  if (text !== '') items.push(encode({ type: 'output', value: text }));
  return text;
}

function add(item) {
  // Encoded before what was printed is taken, so that a value JSON cannot hold
  // leaves the order output, error.
  const encoded = encode(item);
  const output = takePrinted();
  // The platform shows what a call printed from the call's own item.
  const answer = output === '' ? encoded : `${encoded.slice(0, -1)},"output":${encode(output)}}`;
  items.push(answer);
  answers += 1;
  loneError = answers === 1 && item.type === 'error' ? { answer, output } : null;
}

function describe(error) {
  try {
    return error instanceof Error ? String(error) : inspect(error);
  } catch {
    return 'an error that cannot be shown';
  }
}

function addFailure(error) {
  if (failures === 0) fs.writeSync(2, `${inspect(error)}\n`);
  failures += 1;
  add({ type: 'error', value: describe(error) });
}

function readCalls() {
  let asserts;
  try {
    asserts = JSON.parse(fs.readFileSync(ASSERTS, 'utf8'));
  } catch (error) {
    throw new Error(`${ASSERTS}: ${error.message}`);
  }
  const calls = asserts?.arguments;
  if (!Array.isArray(calls) || !calls.every(Array.isArray)) {
    throw new Error(`${ASSERTS}: want {"arguments": [[...], ...]}`);
  }
  return calls;
}

// The second argument is what has another way to load what is no CommonJS.
function requireSolution() {
  const otherWay = process.argv[3];
  if (otherWay === undefined) return require(SOLUTION);
  // Of ES module syntax Node would warn, with advice for another package.json.
  const listeners = process.listeners('warning');
  process.removeAllListeners('warning');
  try {
    return require(SOLUTION);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return require(path.resolve(otherWay))(SOLUTION, error);
  } finally {
    for (const listener of listeners) process.on('warning', listener);
  }
}

function loadSolution() {
  const exported = requireSolution();
  // What TypeScript's `export default` becomes: its workspace has this very file.
  const solution = exported?.__esModule ? exported.default : exported;
  if (typeof solution !== 'function') {
    throw new TypeError('check/solution.js exports no function');
  }
  return solution;
}

async function call(solution, args) {
  try {
    const start = process.hrtime.bigint();
    let value = solution(...args);
    if (value instanceof Promise) value = await value;
    const seconds = Number(process.hrtime.bigint() - start) / 1e9;
    add({ type: 'result', value: value === undefined ? null : value, time: seconds });
  } catch (error) {
    addFailure(error);
  }
}

async function run() {
  let calls;
  try {
    calls = readCalls();
  } catch (error) {
    add({ type: 'error', value: error.message });
    return;
  }
  let solution;
  try {
    solution = loadSolution();
  } catch (error) {
    addFailure(error);
    return;
  }
  for (const args of calls) await call(solution, args);
}

// The platform shows an error that is the only item, and stderr with it, as the error of the
// whole check. Beside any other item it is the row of the first call.
function send() {
  takePrinted();
  if (loneError !== null && loneError.output !== '') {
    fs.writeSync(2, `printed before the error:\n${loneError.output.slice(0, REPEATED_MAX)}\n`);
  }
  const report = loneError === null ? items : [loneError.answer];
  fs.writeFileSync(RESULTS_FD, `[${report.join(',')}]\n`);
}

// Started ahead of the run: reports that, and waits for it.
function awaitRun() {
  // What a run does is done once, so that nothing of it is met for the first time.
  encode({ type: 'result', value: JSON.parse('{"arguments":[[1,"a",null,1.5,true]]}') });
  takePrinted();
  fs.writeSync(RESULTS_FD, 'ready\n');
  fs.readSync(BEGIN_FD, Buffer.alloc(1));
  fs.closeSync(BEGIN_FD);
}

if (process.argv.at(-1) === 'prestart') {
  process.argv.pop();
  awaitRun();
}

// What the console sends to stderr is shown where console.log's output is. console.trace and
// console.assert go by these two.
console.error = console.log;
console.warn = console.log;

// The one place that reports: it is also reached by process.exit in a solution
// and by a promise that never settles.
process.on('exit', (code) => {
  // Without it, the calls that never came would look like none were asked.
  if (!finished) add({ type: 'error', value: `the program ended before its last call: exit ${code}` });
  send();
});

run().then(() => {
  finished = true;
  // Timers and handles the solution left behind are not waited for.
  process.exit(0);
});
