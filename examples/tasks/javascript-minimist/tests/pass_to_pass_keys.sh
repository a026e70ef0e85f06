node -e '
const assert = require("assert");
const parse = require("./index.js");
const seen = parse(["-xyz", "--n", "3", "--a.b", "c", "--no-color", "--", "p"]);
assert.deepStrictEqual(seen, { x: true, y: true, z: true, n: 3, a: { b: "c" }, color: false, _: ["p"] });
assert.deepStrictEqual(parse(["--x", "1", "--x", "2"]).x, [1, 2]);
assert.strictEqual(parse(["--a.constructor", "b"]).b, undefined);
'
