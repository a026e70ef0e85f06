// The platform's own checker knows no interop of modules: there `import * as _` is
// lodash itself, a function, and its template begins with that line. The compiler's
// interop makes an object of it, unless what it imports says it is a module.
'use strict';

const { prototype } = require('module');
const load = prototype.require;

prototype.require = function requireCallable(name) {
  const loaded = load.call(this, name);
  if (name === 'lodash' && !loaded.__esModule) {
    Object.defineProperties(loaded, { __esModule: { value: true }, default: { value: loaded } });
  }
  return loaded;
};
