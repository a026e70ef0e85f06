// What Mono's compiler compiles ahead of a run, with example/Checker.cs: not for what it computes,
// but so that the parts of the compiler that usual C# needs are compiled themselves.
using System.Numerics;
using System.Text;
using System.Text.RegularExpressions;

namespace app
{
    public interface IShape { double Area { get; } }

    public abstract class Shape : IShape
    {
        public abstract double Area { get; }
        public override string ToString() => $"{GetType().Name}: {Area:F2}";
    }

    public sealed class Circle : Shape
    {
        readonly double radius;
        public Circle(double radius) { this.radius = radius; }
        public override double Area => Math.PI * radius * radius;
    }

    public struct Point : IComparable<Point>
    {
        public int X { get; set; }
        public int Y;
        public Point(int x, int y) { X = x; Y = y; }
        public static Point operator +(Point one, Point other) => new Point(one.X + other.X, one.Y + other.Y);
        public static bool operator ==(Point one, Point other) { return one.Equals(other); }
        public static bool operator !=(Point one, Point other) { return !(one == other); }
        public override bool Equals(object other) => other is Point point && point.X == X && point.Y == Y;
        public override int GetHashCode() => unchecked(X * 397 ^ Y);
        public int CompareTo(Point other) => X.CompareTo(other.X);
    }

    enum Side { Left, Right = 4 }

    class Counter<T> where T : IComparable<T>
    {
        readonly SortedDictionary<T, int> seen = new SortedDictionary<T, int>();
        public event EventHandler Added;
        public int Total { get; private set; }
        public int this[T item] { get { return seen.TryGetValue(item, out int count) ? count : 0; } }

        public void Add(params T[] items)
        {
            foreach (T item in items) { seen[item] = this[item] + 1; Total++; }
            Added?.Invoke(this, EventArgs.Empty);
        }
    }

    static class Extensions
    {
        public static IEnumerable<T> Every<T>(this IEnumerable<T> items, int step)
        {
            int index = 0;
            foreach (var item in items) if (index++ % step == 0) yield return item;
        }
    }

    public class Solution
    {
        const int Limit = 100;
        static readonly Dictionary<int, BigInteger> memo = new Dictionary<int, BigInteger>();
        delegate int Operation(int a, int b);

        static BigInteger Factorial(int n)
        {
            if (n < 2) return BigInteger.One;
            if (memo.TryGetValue(n, out var known)) return known;
            return memo[n] = Factorial(n - 1) * n;
        }

        static string Kind(object value)
        {
            if (value is string text) return text.ToUpper();
            switch (value?.GetHashCode() ?? 0)
            {
                case 0: return "none";
                case 1: case 2: break;
                default: return value.GetType().Name;
            }
            return value is int number && number > 1 ? "two" : "one";
        }

        static (int most, int least) Ends(IList<int> numbers)
        {
            int most = int.MinValue, least = int.MaxValue;
            for (int i = 0; i < numbers.Count; i++)
            {
                if (numbers[i] > most) most = numbers[i];
                least = numbers[i] < least ? numbers[i] : least;
            }
            return (most, least);
        }

        static string Words(string text)
        {
            var built = new StringBuilder();
            foreach (var word in text.Split(' ', ','))
            {
                if (string.IsNullOrEmpty(word)) continue;
                char[] letters = word.ToCharArray();
                Array.Reverse(letters);
                built.Append(new string(letters)).Append('-');
            }
            return Regex.Replace(built.ToString(), "[aeiou]", match => match.Value.ToUpper()).TrimEnd('-');
        }

        async Task<int> Later(int value)
        {
            await Task.Yield();
            return value;
        }

        public Dictionary<string, object> Collections(List<int> numbers)
        {
            int[,] grid = new int[3, 4];
            int[][] rows = new int[2][] { new[] { 1, 2 }, new int[3] };
            grid[1, 2] = rows[0][1]++;
            var queue = new Queue<int>(numbers);
            while (queue.Count > 0) if (queue.Dequeue() > 3) break;
            var names = new HashSet<string> { "x", "y" };
            var query = from number in numbers where number % 2 == 0 orderby number descending select new { number, square = number * number };
            var groups = numbers.GroupBy(n => n % 3).ToDictionary(group => group.Key, group => group.Sum());
            numbers.Sort((one, other) => other.CompareTo(one));
            return new Dictionary<string, object>
            {
                ["grid"] = grid, ["query"] = query.Select(item => item.square).ToArray(), ["groups"] = groups,
                ["joined"] = string.Join(", ", names.Select(name => "<" + name + ">").Every(2)),
                ["any"] = numbers.Any(n => n > 2) && !numbers.All(n => n > 99), ["best"] = numbers.Aggregate(0, Math.Max),
                ["pairs"] = numbers.Zip(names, (number, name) => Tuple.Create(number, name)).ToList(),
            };
        }

        public int solution(int a, int b)
        {
            var counter = new Counter<string>();
            counter.Added += (sender, e) => Console.Write("");
            foreach (Side side in Enum.GetValues(typeof(Side))) counter.Add(side.ToString());
            Operation gcd = null;
            gcd = (x, y) => y == 0 ? x : gcd(y, x % y);
            int? parsed = int.TryParse("12x", out int number) ? number : (int?)null;
            long shifted = (long)a << 40 | 1L;
            try
            {
                checked { if (a > Limit) throw new ArgumentException(nameof(a)); }
            }
            catch (ArgumentException error) when (error.Message != null)
            {
                return error.Message.Length;
            }
            finally
            {
                counter.Add("finally");
            }
            Func<int, int> local = x => x + gcd(a, b);
            var ends = Ends(new List<int> { a, b, 3, 4 });
            using (var text = new StringWriter()) { text.Write("{0} {1}", Kind(a), ends.most); Words(text.ToString()); }
            do { a--; } while (a > 0 && shifted > 0);
            lock (memo) { Factorial(25); }
            IShape shape = new Circle(1.5) as IShape;
            Console.WriteLine($"{new Point(a, b) + new Point(1, 1)} {parsed ?? local(3)} {shape?.Area} {(decimal)1.5m} {'c'} {Later(1).Result}");
            Collections(new List<int> { 1, 2, 3 });
            return a + b;
        }
    }
}
