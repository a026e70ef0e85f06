import com.sun.tools.javac.Main;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * javac and then the program, in one JVM: its first argument is the main class, the rest
 * are javac's. What the program can see of it is kept as under a launcher of its own:
 * the system class loader loads it, System.exit and threads are the JVM's affair, and an
 * exception of main leaves this main too, without the frames between.
 */
final class OneJvm {
    private static final String PRESTART = "prestart";
    /** How often the sources are compiled ahead: each time more of the compiler is compiled itself. */
    private static final int ROUNDS = 3;

    public static void main(String[] args) throws Throwable {
        if (args[0].equals(PRESTART)) {
            args = Arrays.copyOfRange(args, 1, args.length);
            awaitRun(args);
        }
        int status = Main.compile(Arrays.copyOfRange(args, 1, args.length));
        if (status != 0) System.exit(status);
        Method main = mainOf(args[0]);
        try {
            main.invoke(null, (Object) new String[0]);
        } catch (InvocationTargetException thrown) {
            throw withoutOurFrames(thrown.getCause());
        } catch (ExceptionInInitializerError thrown) {
            throw withoutOurFrames(thrown);
        }
    }

    /**
     * Started ahead of the run: compiles and runs the workspace's own sources, reports that, and
     * waits for the run, which finds nothing of them but the classes of Java that they have loaded.
     */
    private static void awaitRun(String[] args) throws Exception {
        String command = "sun.java.command";
        System.setProperty(command, System.getProperty(command).replace(" " + PRESTART, ""));
        File classes = new File("/tmp/ahead");
        classes.mkdir();
        String[] sources = {"example/Checker.java", "warm/Ahead.java", "warm/Solution.java"};
        String[] options = Arrays.copyOfRange(args, 1, args.length - 2);
        options[options.length - 1] = classes.getPath();
        PrintStream out = System.out;
        for (int round = 0; round < ROUNDS; round++) {
            if (Main.compile(concat(options, sources)) != 0) System.exit(1);
            Method main = new Classes(classes).loadClass("solution.Ahead").getDeclaredMethod("main");
            main.setAccessible(true);
            main.invoke(null);
        }
        System.setOut(out);
        remove(classes);
        // The run begins with an empty young generation.
        System.gc();
        out.print("ready\n");
        out.flush();
        while (System.in.read() >= 0) continue;
    }

    /** The classes of a directory. Java's own loader of them would ask for sockets. */
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

    private static String[] concat(String[] some, String[] more) {
        String[] all = Arrays.copyOf(some, some.length + more.length);
        System.arraycopy(more, 0, all, some.length, more.length);
        return all;
    }

    private static void remove(File file) {
        File[] inside = file.listFiles();
        if (inside != null) for (File each : inside) remove(each);
        file.delete();
    }

    private static Method mainOf(String name) {
        try {
            Method main = Class.forName(name, false, ClassLoader.getSystemClassLoader())
                .getDeclaredMethod("main", String[].class);
            main.setAccessible(true);
            return main;
        } catch (ReflectiveOperationException missing) {
            System.err.println("Error: no main method to run: " + missing);
            System.exit(1);
            throw new AssertionError(missing);
        }
    }

    /** The frames under the program's main are reflection's and this class's. */
    private static Throwable withoutOurFrames(Throwable thrown) {
        // A bound, for a program may have made a ring of its causes.
        int depth = 0;
        for (Throwable each = thrown; each != null && depth < 100; each = each.getCause(), depth++) {
            StackTraceElement[] frames = each.getStackTrace();
            int end = frames.length;
            while (end > 0 && isOurs(frames[end - 1].getClassName())) end--;
            each.setStackTrace(Arrays.copyOf(frames, end));
        }
        return thrown;
    }

    private static boolean isOurs(String name) {
        return name.equals(OneJvm.class.getName())
            || name.startsWith("jdk.internal.reflect.")
            || name.startsWith("java.lang.reflect.")
            || name.startsWith("java.lang.invoke.");
    }
}
