//! Python functions in many forms.

/// A source, the name of a function, the source with it emptied, and a call of it.
pub type Form = (&'static str, &'static str, &'static str, &'static str);

pub const PLAIN: [Form; 22] = [
    ("def f():\n    return 1\n", "f", "def f():\n    raise NotImplementedError\n", "f()"),
    ("def f(): return 1\n", "f", "def f(): raise NotImplementedError\n", "f()"),
    ("def f():return(1)#c", "f", "def f():raise NotImplementedError#c", "f()"),
    ("def f(): a = 1; return a\n", "f", "def f(): raise NotImplementedError\n", "f()"),
    ("def f(): pass;\nx = 1\n", "f", "def f(): raise NotImplementedError;\nx = 1\n", "f()"),
    ("def f(): ...", "f", "def f(): raise NotImplementedError", "f()"),
    (
        "async def f(a):\n\tawait a\n\treturn a\n",
        "f",
        "async def f(a):\n\traise NotImplementedError\n",
        "asyncio.run(f(1))",
    ),
    (
        "def f(a,  # (\n      b=\"):\",  # ':'\n      *c, d: int = (1,), **e) -> \"x:\":  # :\n  return {1: 2}\n",
        "f",
        "def f(a,  # (\n      b=\"):\",  # ':'\n      *c, d: int = (1,), **e) -> \"x:\":  # :\n  raise NotImplementedError\n",
        "f(1)",
    ),
    (
        "def f(a=lambda: 1, b=lambda x, y=2: {x: y}):\n    return a\n",
        "f",
        "def f(a=lambda: 1, b=lambda x, y=2: {x: y}):\n    raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\r\n    x = 1\r\n    return x\r\n\r\ny = 1\r\n",
        "f",
        "def f():\r\n    raise NotImplementedError\r\n\r\ny = 1\r\n",
        "f()",
    ),
    ("def f(): \\\n    return 1\n", "f", "def f(): \\\n    raise NotImplementedError\n", "f()"),
    (
        "def \\\n f \\\n ():\n  return \\\n   1\n",
        "f",
        "def \\\n f \\\n ():\n  raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n    # before\n\n    a = 1  # a\n    # between\n    return a  # beside\n    # below\n# after\n",
        "f",
        "def f():\n    # before\n\n    raise NotImplementedError  # beside\n    # below\n# after\n",
        "f()",
    ),
    (
        "def f(a):\n    if a:\n        return 1\n        # inside\n    # below\n\nx = 1\n",
        "f",
        "def f(a):\n    raise NotImplementedError\n        # inside\n    # below\n\nx = 1\n",
        "f(1)",
    ),
    (
        "def f():\n    def inner():\n        return 1\n\n    class C:\n        pass\n\n    return inner\n",
        "f",
        "def f():\n    raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n    @staticmethod\n    def inner(): pass\n    return inner\nz = 1\n",
        "f",
        "def f():\n    raise NotImplementedError\nz = 1\n",
        "f()",
    ),
    (
        "import functools\n@functools.lru_cache(  # c\n    maxsize=None)\n@functools.wraps(print)\ndef f():\n    yield 1\n",
        "f",
        "import functools\n@functools.lru_cache(  # c\n    maxsize=None)\n@functools.wraps(print)\ndef f():\n    raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n    return '''\ndef f():\n    return 2\n'''\ndef g():\n    return 3\n",
        "f",
        "def f():\n    raise NotImplementedError\ndef g():\n    return 3\n",
        "f()",
    ),
    (
        "try:\n    import nothing_here\nexcept ImportError:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\n",
        "f",
        "try:\n    import nothing_here\nexcept ImportError:\n    def f():\n        raise NotImplementedError\nelse:\n    def f():\n        raise NotImplementedError\n",
        "f()",
    ),
    (
        "from typing import overload\n@overload\ndef f(a: int) -> int: ...\n@overload\ndef f(a: str) -> str: ...\ndef f(a):\n    return a\n",
        "f",
        "from typing import overload\n@overload\ndef f(a: int) -> int: raise NotImplementedError\n@overload\ndef f(a: str) -> str: raise NotImplementedError\ndef f(a):\n    raise NotImplementedError\n",
        "f(1)",
    ),
    (
        "\u{feff}# coding: utf-8\nü = 'é'\ndef f(ä): return f'{ä!r:>{10}} \"'\nö = 1\n",
        "f",
        "\u{feff}# coding: utf-8\nü = 'é'\ndef f(ä): raise NotImplementedError\nö = 1\n",
        "f(1)",
    ),
    (
        "def f(x):\n  match x:\n    case [1, *_]: return 1\n    case _:\n      while True:\n        with open(x) as g: return g\n\x0c\nx = 1",
        "f",
        "def f(x):\n  raise NotImplementedError\n\x0c\nx = 1",
        "f(1)",
    ),
];

pub const NAMED: [Form; 10] = [
    (
        "class C:\n    def m(self): return 1\n    def n(self): return 2\ndef m(): return 3\n",
        "C.m",
        "class C:\n    def m(self): raise NotImplementedError\n    def n(self): return 2\ndef m(): return 3\n",
        "C().m()",
    ),
    (
        "class C:\n    def m(self): return 1\ndef m(): return 3\n",
        "m",
        "class C:\n    def m(self): return 1\ndef m(): raise NotImplementedError\n",
        "m()",
    ),
    (
        "class A:\n  class B:\n    @classmethod\n    async def m(cls): return 1\n",
        "A.B.m",
        "class A:\n  class B:\n    @classmethod\n    async def m(cls): raise NotImplementedError\n",
        "asyncio.run(A.B.m())",
    ),
    (
        "def outer():\n    a = 0\n    def inner():\n        nonlocal a\n        return a\n    return inner()\n",
        "outer.inner",
        "def outer():\n    a = 0\n    def inner():\n        raise NotImplementedError\n    return inner()\n",
        "outer()",
    ),
    (
        "def outer():\n    class C:\n        def m(self): return 1\n    return C().m()\n",
        "outer.C.m",
        "def outer():\n    class C:\n        def m(self): raise NotImplementedError\n    return C().m()\n",
        "outer()",
    ),
    (
        "class C:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): self.v = v\n",
        "C.p",
        "class C:\n    @property\n    def p(self): raise NotImplementedError\n    @p.setter\n    def p(self, v): raise NotImplementedError\n",
        "C().p",
    ),
    (
        "def f(): return 1\nclass f2:\n    def f(self): return 1\ndef f(): return 2\n",
        "f",
        "def f(): raise NotImplementedError\nclass f2:\n    def f(self): return 1\ndef f(): raise NotImplementedError\n",
        "f()",
    ),
    (
        "class C:\n    if True:\n        def m(self):\n            return 1\n    else:\n        def m(self):\n            return 2\n",
        "C.m",
        "class C:\n    if True:\n        def m(self):\n            raise NotImplementedError\n    else:\n        def m(self):\n            raise NotImplementedError\n",
        "C().m()",
    ),
    (
        "for i in range(2):\n  def f(): return i\n  g = lambda: f()\n",
        "f",
        "for i in range(2):\n  def f(): raise NotImplementedError\n  g = lambda: f()\n",
        "g()",
    ),
    (
        "def f():\n    return 1\n\n\ndef f_2():\n    return f()\n",
        "f",
        "def f():\n    raise NotImplementedError\n\n\ndef f_2():\n    return f()\n",
        "f_2()",
    ),
];

pub const DOCUMENTED: [Form; 20] = [
    (
        "def f():\n    \"\"\"Doc.\n\n    >>> return\n    \"\"\"\n    return 1\n",
        "f",
        "def f():\n    \"\"\"Doc.\n\n    >>> return\n    \"\"\"\n    raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n  '''a'''\n  return 1\n",
        "f",
        "def f():\n  '''a'''\n  raise NotImplementedError\n",
        "f()",
    ),
    ("def f():\n  'a'\n  return 1\n", "f", "def f():\n  'a'\n  raise NotImplementedError\n", "f()"),
    (
        "def f():\n  r\"\\a\" # c\n  return 1\n",
        "f",
        "def f():\n  r\"\\a\" # c\n  raise NotImplementedError\n",
        "f()",
    ),
    ("def f():\n  U'a'; return 1\n", "f", "def f():\n  U'a'; raise NotImplementedError\n", "f()"),
    ("def f(): 'a'; return 1\n", "f", "def f(): 'a'; raise NotImplementedError\n", "f()"),
    (
        "def f():\n  'a' \"b\" \\\n  '''c'''\n  return 1\n",
        "f",
        "def f():\n  'a' \"b\" \\\n  '''c'''\n  raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n  ('a'  # 1\n   'b')\n  # 2\n  return 1\n",
        "f",
        "def f():\n  ('a'  # 1\n   'b')\n  # 2\n  raise NotImplementedError\n",
        "f()",
    ),
    (
        "def f():\n  (('a'))\n  return 1\n",
        "f",
        "def f():\n  (('a'))\n  raise NotImplementedError\n",
        "f()",
    ),
    ("def f():\n  'a',\n  return 1\n", "f", "def f():\n  raise NotImplementedError\n", "f()"),
    ("def f():\n  f'a'\n  return 1\n", "f", "def f():\n  raise NotImplementedError\n", "f()"),
    ("def f():\n  b'a'\n  return 1\n", "f", "def f():\n  raise NotImplementedError\n", "f()"),
    ("def f():\n  'a' f'b'\n  return 1\n", "f", "def f():\n  raise NotImplementedError\n", "f()"),
    (
        "def f():\n  'a'.upper()\n  return 1\n",
        "f",
        "def f():\n  raise NotImplementedError\n",
        "f()",
    ),
    ("def f():\n  '''a'''\n", "f", "def f():\n  '''a'''\n  raise NotImplementedError\n", "f()"),
    ("def f():\r\n\t'a'  # c", "f", "def f():\r\n\t'a'  # c\r\n\traise NotImplementedError", "f()"),
    (
        "def f(): 'a'  # c\nx = 1\n",
        "f",
        "def f(): 'a'; raise NotImplementedError  # c\nx = 1\n",
        "f()",
    ),
    (
        "def f():\n  'a';\nx = 1\n",
        "f",
        "def f():\n  'a'; raise NotImplementedError;\nx = 1\n",
        "f()",
    ),
    (
        "def f(): \\\n  'a'\nx = 1\n",
        "f",
        "def f(): \\\n  'a'; raise NotImplementedError\nx = 1\n",
        "f()",
    ),
    (
        "class C:\n  'c'\n  def m(self):\n    '''a\n    '''\n    # only\n\n  x = 1\n",
        "C.m",
        "class C:\n  'c'\n  def m(self):\n    '''a\n    '''\n    raise NotImplementedError\n    # only\n\n  x = 1\n",
        "C().m()",
    ),
];
