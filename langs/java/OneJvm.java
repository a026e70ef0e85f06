import com.sun.tools.javac.Main;
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
    public static void main(String[] args) throws Throwable {
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
