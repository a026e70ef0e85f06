package solution

import com.google.gson.GsonBuilder
import java.io.ByteArrayOutputStream
import java.io.FileDescriptor
import java.io.FileOutputStream
import java.io.PrintStream

// The solution may close or replace System.out; the items keep a stream of their own.
private val items = PrintStream(FileOutputStream(FileDescriptor.out), true, "UTF-8")
private val json = GsonBuilder().disableHtmlEscaping().serializeNulls().create()

private fun report(type: String, value: Any?, seconds: Double? = null) {
    val item = mutableMapOf("type" to type, "value" to value)
    if (seconds != null) item["time"] = seconds
    items.println(json.toJson(item))
}

private fun check(call: () -> Any?) {
    val printed = ByteArrayOutputStream()
    System.setOut(PrintStream(printed, true, "UTF-8"))
    val start = System.nanoTime()
    val outcome = runCatching(call)
    val seconds = (System.nanoTime() - start) / 1e9
    if (printed.size() > 0) report("output", printed.toString("UTF-8"))
    outcome.fold({ report("result", it, seconds) }, { report("error", it.toString()) })
}

fun main() {
    check { solution(1, 2) }
    check { solution(40, 2) }
}
