// What `make warm` compiles and runs: not for what it computes, but so that the classes
// which the compiler and the library need for usual Kotlin are in the archives.
package solution

import java.math.BigInteger
import java.util.ArrayDeque
import java.util.PriorityQueue

data class Point(val x: Int, val y: Int = 0) : Comparable<Point> {
    override fun compareTo(other: Point) = compareValuesBy(this, other, { it.x }, { it.y })
    operator fun plus(other: Point) = Point(x + other.x, y + other.y)
}

sealed class Shape {
    data class Circle(val radius: Double) : Shape()
    class Square(val side: Int) : Shape()
    object Nothing : Shape()
}

enum class Side { LEFT, RIGHT; fun other() = if (this == LEFT) RIGHT else LEFT }

interface Named { val name: String get() = "unnamed" }

class Counter<T>(private val seen: MutableMap<T, Int> = mutableMapOf()) : Named {
    companion object { const val LIMIT = 100 }
    override val name by lazy { "counter" }
    var total = 0
        private set
    fun add(item: T) { seen[item] = (seen[item] ?: 0) + 1; total++ }
    fun most(): T? = seen.maxByOrNull { it.value }?.key
}

fun area(shape: Shape): Double = when (shape) {
    is Shape.Circle -> Math.PI * shape.radius * shape.radius
    is Shape.Square -> (shape.side * shape.side).toDouble()
    Shape.Nothing -> 0.0
}

private tailrec fun gcd(a: Int, b: Int): Int = if (b == 0) a else gcd(b, a % b)

inline fun <T> measured(block: () -> T): T = block()

fun String.vowels() = count { it in "aeiou" }

fun words(text: String): String {
    val built = StringBuilder()
    for ((i, word) in text.trim().split(" ", ",").withIndex()) {
        if (word.isEmpty()) continue
        built.append(if (i % 2 == 0) word.uppercase() else word.reversed()).append('-')
    }
    val changed = Regex("([A-Z]+)").replace(built.toString()) { it.value.lowercase() }
    return buildString { append(changed.padStart(30, '.')); append("%.2f".format(1.5)) }
}

fun collections(numbers: List<Int>): Map<String, Any?> {
    val (even, odd) = numbers.partition { it % 2 == 0 }
    val grouped = numbers.groupBy { it % 3 }.mapValues { (_, group) -> group.sum() }.toSortedMap()
    val squares = numbers.asSequence().map { it * it }.filter { it > 2 }.take(5).toList()
    val grid = Array(3) { IntArray(4) { 1 } }
    for (row in grid.indices) for (column in 1 until grid[row].size step 2) grid[row][column] += row
    val heap = PriorityQueue<Pair<Int, String>>(compareByDescending { it.first })
    numbers.zip(listOf("a", "b")).forEach { heap.add(it) }
    val queue = ArrayDeque<Int>().apply { addAll(numbers) }
    while (queue.isNotEmpty()) if (queue.poll() > 3) break
    val best = numbers.fold(Int.MIN_VALUE) { most, next -> maxOf(most, next) }
    val names: MutableSet<String> = hashSetOf("x", "y").also { it += "z" }
    return linkedMapOf(
        "even" to even, "odd" to odd.sortedDescending(), "grouped" to grouped, "squares" to squares,
        "grid" to grid.map { it.toList() }, "heap" to heap.peek()?.second, "best" to best,
        "windows" to numbers.windowed(2).flatten().distinct().chunked(2), "names" to names.joinToString { "<$it>" },
        "sorted" to numbers.sortedWith(compareBy({ it % 2 }, { -it })), "sum" to numbers.sumOf { it.toLong() },
        "any" to (numbers.any { it > 2 } && numbers.none { it > 99 }), "letters" to ('a'..'e').associateWith { it.code },
    )
}

fun solution(a: Int, b: Int): Any {
    val counter = Counter<String>()
    for (side in Side.values()) counter.add(side.other().name)
    val number: Int? = "12x".toIntOrNull()
    val failed = try { require(a > 99) { "small" }; 1 } catch (e: IllegalArgumentException) { e.message?.length ?: 0 }
    println("${Point(a, b) + Point(1)} ${number?.let { it + 1 } ?: "none"} ${counter.most()} ${counter.name} $failed")
    val memo = HashMap<Int, BigInteger>()
    fun factorial(n: Int): BigInteger = memo.getOrPut(n) { if (n < 2) BigInteger.ONE else factorial(n - 1) * n.toBigInteger() }
    val shapes = listOf(Shape.Circle(1.5), Shape.Square(2), Shape.Nothing)
    return measured { collections(listOf(a, b, 3, 4)) } + mapOf(
        "area" to shapes.sumOf(::area), "words" to words("some words, in a row"), "vowels" to "vowels".vowels(),
        "gcd" to gcd(a, b), "big" to factorial(25), "long" to (a.toLong() shl 40 or 1L), "limit" to Counter.LIMIT,
        "points" to listOf(Point(2), Point(1, 1)).sorted().map { (x, y) -> x to y },
    )
}
