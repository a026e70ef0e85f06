const assert = require('node:assert');
const test = require('node:test');
const parse = require('./index.js');

test('a key below an array changes no function', () => {
    parse(['--_.concat.constructor.prototype.y', '123']);
    assert.strictEqual((function () {}).y, undefined);
});

test('a key below a constructor changes no function', () => {
    parse('--_.constructor.constructor.prototype.z 1'.split(' '));
    assert.strictEqual((function () {}).z, undefined);
});
