using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Text;

namespace app
{
    public class Checker
    {
        static readonly TextWriter items = Console.Out;

        static string Quoted(string text)
        {
            var quoted = new StringBuilder("\"");
            foreach (char c in text)
            {
                if (c == '"' || c == '\\') quoted.Append('\\').Append(c);
                else if (c < ' ') quoted.AppendFormat("\\u{0:x4}", (int)c);
                else quoted.Append(c);
            }
            return quoted.Append('"').ToString();
        }

        static void Item(string type, string value, double time = 0)
        {
            var seconds = time.ToString("0.######", CultureInfo.InvariantCulture);
            items.WriteLine("{\"type\":\"" + type + "\",\"value\":" + value + ",\"time\":" + seconds + "}");
            items.Flush();
        }

        // What the call prints is an item of its own.
        static void Check(Func<int> call)
        {
            var printed = new StringWriter();
            Console.SetOut(printed);
            string type, value;
            var watch = Stopwatch.StartNew();
            try
            {
                value = call().ToString(CultureInfo.InvariantCulture);
                type = "result";
            }
            catch (Exception error)
            {
                value = Quoted(error.GetType().Name + ": " + error.Message);
                type = "error";
            }
            var time = watch.Elapsed.TotalSeconds;
            Console.SetOut(items);
            if (printed.ToString() != "") Item("output", Quoted(printed.ToString()));
            Item(type, value, time);
        }

        public static void Main()
        {
            var instance = new Solution();
            Check(() => instance.solution(1, 2));
            Check(() => instance.solution(40, 2));
        }
    }
}
