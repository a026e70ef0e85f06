// What every check is compiled after, precompiled by `make warm`.
#include <bits/stdc++.h>

// The header's own functions need these classes' virtual functions, which a precompiled header does
// not hold: each check would instantiate them anew, a quarter of its time. `make warm` compiles them
// into a library.
#if defined __clang__ && _GLIBCXX_RELEASE == 14
#ifdef INSTANCES
#define INSTANCE template
#else
#define INSTANCE extern template
#endif
INSTANCE class std::__format::_Seq_sink<std::string>;
INSTANCE class std::__format::_Seq_sink<std::wstring>;
#undef INSTANCE
#endif
