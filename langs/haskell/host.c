/* A Haskell program without its main module: that one comes as a file. What GHC
   itself writes for a program differs only in where the closure is found. */
#include <Rts.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* Ahead of a run that file is made by a child; in a run of its own there is none. */
static void await_maker(void) {
    int status;
    if (wait(&status) < 0) return;
    if (WIFSIGNALED(status)) exit(128 + WTERMSIG(status));
    if (WEXITSTATUS(status)) exit(WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    await_maker();
    void *program = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    StgClosure *start = program ? dlsym(program, "ZCMain_main_closure") : NULL;
    if (!start) {
        fprintf(stderr, "Checker.hs: %s\n", argc == 2 ? dlerror() : "no program");
        return 1;
    }
    RtsConfig config = defaultRtsConfig;
    config.rts_opts_enabled = RtsOptsIgnoreAll;
    config.rts_opts = LIMITS;
    config.rts_hs_main = true;
    return hs_main(1, argv, start, config);
}
