// What `make warm` compiles and runs: not for what it computes, but so that the classes
// which the compiler and the library need for usual Java are in the archive.
package solution;

import java.math.BigInteger;
import java.util.*;
import java.util.function.*;
import java.util.regex.Pattern;
import java.util.stream.*;

class Solution {
    record Point(int x, int y) implements Comparable<Point> {
        public int compareTo(Point other) {
            return Comparator.comparingInt(Point::x).thenComparing(Point::y).compare(this, other);
        }
    }

    sealed interface Shape permits Circle, Square {}
    record Circle(double radius) implements Shape {}
    record Square(int side) implements Shape {}

    enum Side {
        LEFT, RIGHT;

        Side other() {
            return this == LEFT ? RIGHT : LEFT;
        }
    }

    static class Counter<T extends Comparable<T>> {
        private final Map<T, Integer> seen = new TreeMap<>();

        void add(T item) {
            seen.merge(item, 1, Integer::sum);
        }

        Optional<T> most() {
            return seen.entrySet().stream().max(Map.Entry.comparingByValue()).map(Map.Entry::getKey);
        }
    }

    private final Map<Integer, BigInteger> memo = new HashMap<>();

    BigInteger factorial(int n) {
        if (n < 2) return BigInteger.ONE;
        BigInteger known = memo.get(n);
        if (known == null) memo.put(n, known = factorial(n - 1).multiply(BigInteger.valueOf(n)));
        return known;
    }

    static double area(Shape shape) {
        return switch (shape) {
            case Circle(double radius) -> Math.PI * radius * radius;
            case Square square when square.side() > 0 -> square.side() * square.side();
            default -> 0;
        };
    }

    static String words(String text) {
        StringBuilder built = new StringBuilder();
        String[] words = text.trim().split("[ ,]+");
        for (int i = 0; i < words.length; i++) {
            built.append(i % 2 == 0 ? words[i].toUpperCase() : new StringBuilder(words[i]).reverse());
        }
        char[] letters = built.toString().toCharArray();
        Arrays.sort(letters);
        return Pattern.compile("([A-Z]+)").matcher(new String(letters)).replaceAll("<$1>") + String.format("%.2f %d", 1.5, 3);
    }

    Map<String, Object> collections(List<Integer> numbers) {
        Deque<Integer> queue = new ArrayDeque<>(numbers);
        while (!queue.isEmpty()) if (queue.poll() > 3) break;
        PriorityQueue<int[]> heap = new PriorityQueue<>((p, q) -> q[0] - p[0]);
        for (int number : numbers) heap.add(new int[] {number, -number});
        int[][] grid = new int[3][4];
        for (int[] row : grid) Arrays.fill(row, 1);
        Set<String> names = new LinkedHashSet<>(List.of("x", "y"));
        names.removeIf(String::isEmpty);
        List<Integer> sorted = new ArrayList<>(numbers);
        sorted.sort(Comparator.reverseOrder());
        Collections.reverse(sorted);
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("grouped", numbers.stream().collect(Collectors.groupingBy(n -> n % 2 == 0, TreeMap::new, Collectors.counting())));
        all.put("squares", IntStream.rangeClosed(1, 5).map(n -> n * n).filter(n -> n > 2).boxed().toList());
        all.put("joined", names.stream().map(n -> "<" + n + ">").collect(Collectors.joining(", ")));
        all.put("grid", Arrays.stream(grid).map(row -> Arrays.stream(row).boxed().collect(Collectors.toList())).toList());
        all.put("sum", numbers.stream().mapToLong(Integer::longValue).sum());
        all.put("reduced", numbers.stream().reduce(0, Math::max));
        all.put("distinct", numbers.stream().distinct().sorted().limit(3).anyMatch(n -> n > 2));
        all.put("letters", "abc".chars().mapToObj(c -> (char) c).toList());
        all.put("heap", heap.peek()[0]);
        all.put("sorted", sorted);
        return all;
    }

    Object solution(int a, int b) {
        Counter<String> counter = new Counter<>();
        for (Side side : Side.values()) counter.add(side.other().name());
        Supplier<Integer> parsed = () -> {
            try {
                return Integer.parseInt("12x");
            } catch (NumberFormatException | NullPointerException e) {
                return e.getMessage().length();
            } finally {
                counter.add("parsed");
            }
        };
        System.out.println(new Point(a, b) + " " + parsed.get() + " " + counter.most().orElse("none"));
        BiFunction<Integer, Integer, Integer> gcd = (x, y) -> BigInteger.valueOf(x).gcd(BigInteger.valueOf(y)).intValue();
        var all = collections(List.of(a, b, 3, 4));
        all.put("area", Stream.of(new Circle(1.5), new Square(2)).mapToDouble(Solution::area).sum());
        all.put("words", words("some words, in a row"));
        all.put("big", factorial(25));
        all.put("gcd", gcd.apply(a, b));
        all.put("long", (long) a << 40 | 1L);
        all.put("points", Stream.of(new Point(2, 0), new Point(1, 1)).sorted().toList());
        return all;
    }
}
