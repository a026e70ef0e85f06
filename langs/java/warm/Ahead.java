// What a JVM that is started ahead of its run does with warm/Solution.java: what a checker does,
// but nothing reaches the run's stdout.
package solution;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

class Ahead {
    static void main() {
        PrintStream items = new PrintStream(new ByteArrayOutputStream(), true, StandardCharsets.UTF_8);
        Gson json = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
        System.setOut(new PrintStream(new ByteArrayOutputStream(), true, StandardCharsets.UTF_8));
        Map<String, Object> item = new LinkedHashMap<>();
        item.put("type", "result");
        item.put("value", new Solution().solution(6, 4));
        item.put("time", 1 / 1e9);
        items.println(json.toJson(item));
    }
}
