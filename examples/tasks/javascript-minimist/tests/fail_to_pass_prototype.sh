node -e '
const assert = require("assert");
const parse = require("./index.js");
parse(["--_.concat.constructor.prototype.y", "123"]);
assert.strictEqual((function () {}).y, undefined);
parse("--_.constructor.constructor.prototype.z 1".split(" "));
assert.strictEqual((function () {}).z, undefined);
'
