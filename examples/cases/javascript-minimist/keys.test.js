const assert = require('node:assert');
const test = require('node:test');
const parse = require('./index.js');

test('options of all forms have their values', () => {
    const seen = parse(['-xyz', '--n', '3', '--a.b', 'c', '--no-color', '--', 'p']);
    assert.deepStrictEqual(seen, { x: true, y: true, z: true, n: 3, a: { b: 'c' }, color: false, _: ['p'] });
});

test('an option that is repeated has all its values', () => {
    assert.deepStrictEqual(parse(['--x', '1', '--x', '2']).x, [1, 2]);
});

test('a constructor that is no function is an ordinary key', () => {
    assert.strictEqual(parse(['--a.constructor', 'b']).b, undefined);
});
