import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Arrays;
import java.util.Properties;

/**
 * Kotlin's compiler in the JVM of the program, which is started ahead of the run. As an agent it comes
 * before the program's main class: the JVM's own launcher looks that up and calls it once the posted
 * files are compiled. The program's class path is that of a run of `test`; the compiler has a loader of
 * its own, which knows nothing of that.
 */
final class Ahead {
    private static final String CLASS_PATH = "java.class.path";
    private static final String[] SOURCES = {"warm/ahead.kt", "warm/solution.kt"};

    /** Its argument has Kotlin's home and then those of the compiler. */
    public static void premain(String argument) throws Throwable {
        String[] words = argument.split(" ");
        String[] options = Arrays.copyOfRange(words, 1, words.length);
        // The JVM has appended this agent.
        String path = System.getProperty(CLASS_PATH);
        System.setProperty(CLASS_PATH, path.substring(0, path.lastIndexOf(':')));
        Properties properties = (Properties) System.getProperties().clone();
        Thread thread = Thread.currentThread();
        ClassLoader loader = thread.getContextClassLoader();
        Compiler compiler = new Compiler(words[0]);
        PrintStream out = System.out;
        // Once: with more, less of the run's time is saved than memory and time ahead is used.
        bringUp(compiler, options);
        System.setOut(out);
        // The run begins with an empty young generation.
        System.gc();
        out.print("ready\n");
        out.flush();
        while (System.in.read() >= 0) continue;
        compiler.compile(options);
        System.setProperties(properties);
        thread.setContextClassLoader(loader);
    }

    /** Compiles the workspace's own sources and runs them. The run finds nothing of them. */
    private static void bringUp(Compiler compiler, String[] options) throws Exception {
        File classes = new File("/tmp/ahead");
        String[] own = options.clone();
        own[own.length - 3] = classes.getPath();
        System.arraycopy(SOURCES, 0, own, own.length - 2, 2);
        compiler.compile(own);
        Method main = new Classes(classes).loadClass("solution.AheadKt").getMethod("main");
        main.invoke(null);
        remove(classes);
    }

    private static final class Compiler {
        private final URLClassLoader loader;
        private final Method main;

        Compiler(String home) throws ReflectiveOperationException, IOException {
            System.setProperty("kotlin.home", home);
            System.setProperty("kotlin.colors.enabled", "false");
            // What it knows of jars is kept for the next time.
            System.setProperty("kotlin.environment.keepalive", "true");
            URL[] jars = {new File(home, "lib/kotlin-compiler.jar").toURI().toURL()};
            loader = new URLClassLoader(jars, ClassLoader.getPlatformClassLoader());
            main = loader.loadClass("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler").getMethod("main", String[].class);
        }

        /** Ends the JVM, as the compiler does on its own, if that fails. */
        void compile(String[] arguments) throws ReflectiveOperationException {
            Thread.currentThread().setContextClassLoader(loader);
            main.invoke(null, (Object) arguments);
        }
    }

    /** The classes of a directory. */
    private static final class Classes extends ClassLoader {
        private final File directory;

        Classes(File directory) {
            super(ClassLoader.getSystemClassLoader());
            this.directory = directory;
        }

        @Override
        protected Class<?> findClass(String name) throws ClassNotFoundException {
            File file = new File(directory, name.replace('.', '/') + ".class");
            try (FileInputStream in = new FileInputStream(file)) {
                byte[] bytes = in.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException missing) {
                throw new ClassNotFoundException(name, missing);
            }
        }
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        if (inside != null) for (File each : inside) remove(each);
        file.delete();
    }
}
