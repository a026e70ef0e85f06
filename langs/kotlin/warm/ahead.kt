// What a JVM that is started ahead of its run does with solution.kt: what a checker does, but nothing
// reaches the run's stdout.
package solution

import com.google.gson.GsonBuilder
import java.io.ByteArrayOutputStream
import java.io.PrintStream

private val items = PrintStream(ByteArrayOutputStream(), true, "UTF-8")
private val json = GsonBuilder().disableHtmlEscaping().serializeNulls().create()

private fun report(type: String, value: Any?, seconds: Double? = null) {
    val item = mutableMapOf("type" to type, "value" to value)
    if (seconds != null) item["time"] = seconds
    items.println(json.toJson(item))
}

fun main() {
    val printed = ByteArrayOutputStream()
    System.setOut(PrintStream(printed, true, "UTF-8"))
    val start = System.nanoTime()
    val outcome = runCatching { solution(6, 4) }
    if (printed.size() > 0) report("output", printed.toString("UTF-8"))
    outcome.fold({ report("result", it, (System.nanoTime() - start) / 1e9) }, { report("error", it.toString()) })
}
