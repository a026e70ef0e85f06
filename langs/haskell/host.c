/* A Haskell program without its main module: that one comes as a file. What GHC
   itself writes for a program differs only in where the closure is found. */
#include <Rts.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Where that file is still being made, by the process of this id, there is no program without it. */
static void await(const char *maker) {
    int status = 0;
    if (waitpid(atoi(maker), &status, 0) < 0) exit(1);
    if (WIFSIGNALED(status)) exit(128 + WTERMSIG(status));
    if (WEXITSTATUS(status)) exit(WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    if (argc == 3) await(argv[2]);
    void *program = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    StgClosure *start = program ? dlsym(program, "ZCMain_main_closure") : NULL;
    if (!start) {
        fprintf(stderr, "Checker.hs: %s\n", argc > 1 ? dlerror() : "no program");
        return 1;
    }
    RtsConfig config = defaultRtsConfig;
    config.rts_opts_enabled = RtsOptsIgnoreAll;
    config.rts_opts = LIMITS;
    config.rts_hs_main = true;
    return hs_main(1, argv, start, config);
}
