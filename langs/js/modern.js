// Loads a solution that is no CommonJS: ES module syntax, or TypeScript's, which the platform's own
// workspace compiles too. Asked for only where the solution as it stands does not parse.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');
const { spawnSync } = require('child_process');
const { wrap } = require('module');

const NATIVE = '/usr/local/lib/node_modules/@typescript';
// As much as is read: the errors of a whole wrong file are more than a run's output may be.
const SHOWN = 2_000;

function parses(source) {
  try {
    return new vm.Script(wrap(source)) !== null;
  } catch {
    return false;
  }
}

// The compiler without the script around it, which is a Node of its own.
function compilers() {
  const native = fs.existsSync(NATIVE) ? fs.readdirSync(NATIVE) : [];
  return [...native.map((name) => path.join(NATIVE, name, 'lib/tsc')).filter(fs.existsSync), 'tsc'];
}

// What the compiler says of the TypeScript beside `solution`, having written `solution`; none where
// there is no compiler.
function compile(solution) {
  // It lives too short for its garbage to be worth collecting.
  const env = { ...process.env, GOGC: 'off', GOMEMLIMIT: '400MiB' };
  for (const compiler of compilers()) {
    const { error, stdout } = spawnSync(compiler, ['--pretty', 'false'], { env, encoding: 'utf8' });
    if (error === undefined) return stdout;
  }
  return null;
}

// Without a compiler Node's own way is left, where it can require a module: neither types nor, with
// the names of packages that only NODE_PATH tells, imports.
function requireModule(source) {
  const module = { exports: {} };
  Object.assign(globalThis, { module, exports: module.exports, require });
  const copy = path.resolve('check/solution.mjs');
  fs.writeFileSync(copy, source);
  const { default: exported } = require(copy);
  return typeof module.exports === 'function' ? module.exports : exported;
}

module.exports = function requireModern(solution, syntaxError) {
  const source = fs.readFileSync(solution, 'utf8');
  // It was thrown by what ran, as by JSON.parse.
  if (parses(source)) throw syntaxError;
  fs.renameSync(solution, solution.replace(/js$/, 'ts'));
  const said = compile(solution);
  if (said === null) {
    try {
      return requireModule(source);
    } catch (error) {
      const noModule = error instanceof SyntaxError || error.code === 'ERR_REQUIRE_ESM';
      throw noModule ? syntaxError : error;
    }
  }
  // Its other errors do not keep it from writing what runs.
  const errors = said.split('\n').filter((line) => line.includes('error TS1')).join('\n');
  if (errors !== '' || !fs.existsSync(solution)) {
    syntaxError.message += `\n${errors.slice(0, SHOWN)}`;
    throw syntaxError;
  }
  require('./callable.js');
  process.setSourceMapsEnabled(true);
  return require(solution);
};
