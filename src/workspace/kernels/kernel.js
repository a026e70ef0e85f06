// The Node side of a context: runs code in one global scope, and keeps its state.
//
// Requests arrive on the standard input that the kernel was started with, a line of JSON each:
// {"id": ..., "code": ..., "file": ...}. The answer follows what the code printed: a record mark on
// stderr, then on stdout a record mark with the answer as JSON. Both marks hold the id of the
// request, which is random, so no output is taken for one by accident.
//
// Before the first request the kernel prints the line `ready` and waits for {"run_dir": ...}. It may have
// been started before anybody asked for it, so it loads nothing of the workspace until then.
"use strict";
{
  const fs = require("node:fs");
  const path = require("node:path");
  const repl = require("node:repl");
  const { PassThrough } = require("node:stream");
  const { inspect } = require("node:util");
  const vm = require("node:vm");

  const TEXT_CHARS_MAX = 1 << 18;
  const IMAGE_BYTES_MAX = 16 << 20;
  const IMAGES = [
    ["_repr_png_", "image/png", "png"],
    ["_repr_jpeg_", "image/jpeg", "jpg"],
    ["_repr_svg_", "image/svg+xml", "svg"],
  ];
  const TEXTS = [["_repr_html_", "text/html"], ["_repr_json_", "application/json"]];

  let images = 0;
  // Rejects the call that waits for a promise.
  let interrupt = null;

  const writeAll = (descriptor, text) => {
    let data = Buffer.from(text);
    while (data.length > 0) {
      try {
        data = data.subarray(fs.writeSync(descriptor, data));
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
      }
    }
  };

  const answer = (id, value) => {
    writeAll(2, `\x1e${id}\x1e`);
    writeAll(1, `\x1e${id}${JSON.stringify(value)}\x1e`);
  };

  // The REPL of Node evaluates code with `await` at the top, and keeps its declarations.
  const evaluator = repl.start({
    prompt: "",
    input: new PassThrough(),
    output: new PassThrough().resume(),
    terminal: false,
    useGlobal: true,
  });
  // Errors that the code throws end here, or in the callback, depending on the version of Node.
  let fail = () => {};
  evaluator._domain?.removeAllListeners("error");
  evaluator._domain?.on("error", (error) => fail(error));
  globalThis.require = evaluator.context.require ?? require;

  const compile = (code, file) =>
    new vm.Script(code, {
      filename: file,
      importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    });

  // A script that SIGINT can end, or nothing if only the REPL can evaluate the code.
  const scriptOf = (code, file) => {
    // An object, and not a block, as in the REPL.
    if (/^\s*\{/.test(code) && !/;\s*$/.test(code)) {
      try {
        return compile(`(${code.trim()}\n)`, file);
      } catch {
        // It is a block.
      }
    }
    try {
      return compile(code, file);
    } catch (error) {
      if (error instanceof SyntaxError && /\bawait\b/.test(code)) return undefined;
      throw error;
    }
  };

  const evaluate = async (code, file) => {
    const script = scriptOf(code, file);
    // In an object, since a promise that the code has as its value must not be awaited.
    if (script !== undefined) return { value: script.runInThisContext({ breakOnSigint: true }) };
    return new Promise((resolve, reject) => {
      fail = reject;
      interrupt = () => reject(Object.assign(new Error("interrupted"), { name: "Interrupted" }));
      // A comment in the last line would swallow what the REPL adds.
      evaluator.eval(`${code}\n`, evaluator.context, file, (error, value) =>
        error ? reject(error) : resolve({ value }));
    });
  };

  const call = (value, method) => {
    try {
      return typeof value?.[method] === "function" ? value[method]() : undefined;
    } catch {
      return undefined;
    }
  };

  const keep = (image, mimeType, suffix) => {
    const directory = path.join(process.env.OUTPUT_DIR ?? "out", "results");
    fs.mkdirSync(directory, { recursive: true });
    for (;;) {
      images += 1;
      const name = `image_${process.pid}_${images}.${suffix}`;
      try {
        fs.writeFileSync(path.join(directory, name), image, { flag: "wx" });
        return { mime_type: mimeType, file: name, size_bytes: image.length };
      } catch (error) {
        if (error.code !== "EEXIST") throw error;
      }
    }
  };

  const resultsOf = (value) => {
    if (value === undefined) return [];
    const results = [{ mime_type: "text/plain", text: inspect(value).slice(0, TEXT_CHARS_MAX) }];
    for (const [method, mimeType] of TEXTS) {
      const text = call(value, method);
      if (text !== undefined && text !== null) {
        const shown = typeof text === "string" ? text : JSON.stringify(text);
        results.push({ mime_type: mimeType, text: shown.slice(0, TEXT_CHARS_MAX) });
      }
    }
    for (const [method, mimeType, suffix] of IMAGES) {
      let image = call(value, method);
      if (typeof image === "string") image = Buffer.from(image, suffix === "svg" ? "utf8" : "base64");
      if (image instanceof Uint8Array && image.length <= IMAGE_BYTES_MAX) {
        results.push(keep(image, mimeType, suffix));
      }
    }
    return results;
  };

  const errorOf = (error, file) => {
    if (error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") {
      return { name: "Interrupted", value: "interrupted", traceback: "Interrupted: interrupted" };
    }
    const isError = error !== null && typeof error === "object" && "message" in error;
    const name = isError ? String(error.name ?? "Error") : "Error";
    const value = isError ? String(error.message) : inspect(error);
    const stack = isError && typeof error.stack === "string" ? error.stack : `${name}: ${value}`;
    // The frames of the code name its file. Those after the last one are ours.
    const lines = stack.split("\n");
    const isFrame = (line) => /^\s+at /.test(line);
    const last = lines.findLastIndex((line) => isFrame(line) && line.includes(file));
    const shown = lines.filter((line, index) => !isFrame(line) || index <= last);
    const limit = (text) => text.slice(0, TEXT_CHARS_MAX);
    return { name: limit(name), value: limit(value), traceback: limit(shown.join("\n")) };
  };

  const execute = async ({ id, code, file }) => {
    let result;
    try {
      result = { results: resultsOf((await evaluate(code, file)).value) };
    } catch (error) {
      result = { results: [], error: errorOf(error, file) };
    }
    interrupt = null;
    // What the code has written may still be queued.
    await new Promise((resolve) => process.stdout.write("", resolve));
    await new Promise((resolve) => process.stderr.write("", resolve));
    answer(id, result);
  };

  process.on("SIGINT", () => interrupt?.());
  // A rejection that nobody handles ends no context.
  process.on("unhandledRejection", (error) => console.error("Uncaught (in promise)", error));
  process.on("uncaughtException", (error) => console.error("Uncaught", error));

  // In single bytes: what follows the line is for the stream. The read blocks, by which one sees that it
  // waits.
  const firstLine = () => {
    const bytes = [];
    const byte = Buffer.alloc(1);
    while (fs.readSync(0, byte) > 0 && byte[0] !== 10) bytes.push(byte[0]);
    return JSON.parse(Buffer.from(bytes).toString() || "{}");
  };
  writeAll(1, "ready\n");
  const { run_dir: runDir } = firstLine();
  if (typeof runDir === "string") process.env.RUN_DIR ??= runDir;

  const requests = process.stdin;
  // The code gets an empty standard input.
  Object.defineProperty(process, "stdin", { value: fs.createReadStream("/dev/null") });
  let pending = Buffer.alloc(0);
  let turn = Promise.resolve();
  requests.on("data", (data) => {
    pending = Buffer.concat([pending, data]);
    let end;
    while ((end = pending.indexOf(10)) >= 0) {
      const line = pending.subarray(0, end).toString();
      pending = pending.subarray(end + 1);
      turn = turn.then(() => execute(JSON.parse(line)));
    }
  });
  requests.on("end", () => turn.then(() => process.exit(0)));
  answer("", { ready: true });
}
