package solution;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;

class Checker {
    // The solution may close or replace System.out; the items keep a stream of their own.
    private static final PrintStream ITEMS =
        new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private static final Gson JSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    static void report(String type, Object value, Double seconds) {
        Map<String, Object> item = new LinkedHashMap<>();
        item.put("type", type);
        item.put("value", value);
        if (seconds != null) item.put("time", seconds);
        ITEMS.println(JSON.toJson(item));
    }

    static void check(Callable<Object> call) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        String type = "result";
        Object value;
        Double seconds = null;
        long start = System.nanoTime();
        try {
            value = call.call();
            seconds = (System.nanoTime() - start) / 1e9;
        } catch (Throwable error) {
            type = "error";
            value = error.toString();
        }
        if (printed.size() > 0) report("output", printed.toString(StandardCharsets.UTF_8), null);
        report(type, value, seconds);
    }

    public static void main(String[] args) {
        check(() -> new Solution().solution(1, 2));
        check(() -> new Solution().solution(40, 2));
    }
}
