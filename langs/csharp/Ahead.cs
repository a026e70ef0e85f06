// Mono's compiler and then the program, in one Mono that is started ahead of the run. The program
// gets a domain of its own, which nothing of the compiler is in, and is executed as `mono` does it.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.RegularExpressions;
using Mono.CSharp;

static class Ahead
{
    static void Main()
    {
        var library = Path.GetDirectoryName(typeof(object).Assembly.Location);
        // The compiler lies there, where nothing but the library is looked for.
        AppDomain.CurrentDomain.AssemblyResolve += (_, wanted) => Assembly.LoadFrom(Path.Combine(library, new AssemblyName(wanted.Name).Name + ".exe"));
        OneMono.Run();
    }
}

static class OneMono
{
    /// How often the compiler is used before the run: what it has done once, it has compiled of itself.
    const int Rounds = 3;
    /// The descriptor that ends when the run begins.
    const int Input = 4;
    const string Program = "/tmp/check.exe";
    const string Own = "/tmp/ahead";

    static readonly MethodInfo compile = typeof(CompilerContext).Assembly.GetType("Mono.CSharp.Driver").GetMethod("Compile");

    [DllImport("libc")]
    static extern IntPtr read(int descriptor, byte[] bytes, IntPtr count);
    [DllImport("libc")]
    static extern int close(int descriptor);

    public static void Run()
    {
        var setup = new AppDomainSetup { ApplicationBase = "/tmp/", ConfigurationFile = Program + ".config", ApplicationName = "check.exe" };
        var domain = AppDomain.CreateDomain("check.exe", null, setup);
        var launcher = (Launcher)domain.CreateInstanceFromAndUnwrap(typeof(Ahead).Assembly.Location, nameof(Launcher));
        for (int round = 0; round < Rounds; round++)
        {
            Directory.CreateDirectory(Own);
            var sources = new Sources(Own, "warm/Solution.cs", "example/Checker.cs");
            if (!Compiles(sources, Own + "/check.exe", Console.Error)) Environment.Exit(1);
            Directory.Delete(Own, true);
            launcher.Warm();
        }
        GC.Collect();
        Console.Out.Write("ready\n");
        Console.Out.Flush();
        while (read(Input, new byte[64], (IntPtr)64).ToInt64() > 0) continue;
        close(Input);
        if (!Compiles(new Sources("/tmp/source", "check/Solution.cs", "check/Checker.cs"), Program, Console.Error)) Environment.Exit(1);
        launcher.Execute(Program);
    }

    /// As mcs, which reports on stderr here.
    static bool Compiles(Sources sources, string to, TextWriter messages)
    {
        string[] options = { "-langversion:latest", "-warn:0", "-r:System.Numerics", "-r:System.Web.Extensions", "-out:" + to };
        var arguments = new string[options.Length + sources.Files.Count];
        options.CopyTo(arguments, 0);
        sources.Files.CopyTo(arguments, options.Length);
        try
        {
            var settings = new CommandLineParser(messages).ParseArguments(arguments);
            if (settings == null) return false;
            var context = new CompilerContext(settings, new ConsoleReportPrinter());
            var driver = Activator.CreateInstance(compile.DeclaringType, context);
            var compiles = (Func<bool>)System.Delegate.CreateDelegate(typeof(Func<bool>), driver, compile);
            if (compiles() && context.Report.Errors == 0) return true;
            messages.WriteLine("Compilation failed: {0} error(s), {1} warnings", context.Report.Errors, context.Report.Warnings);
            return false;
        }
        finally
        {
            CompilerCallableEntryPoint.Reset();
        }
    }
}

/// The posted files as the compiler gets them: what sources.sh makes, without its processes.
class Sources
{
    const string Usings = "using System; using System.Collections.Generic; using System.IO; using System.Linq; using System.Threading; using System.Threading.Tasks;";
    const string Package = "namespace KellermanSoftware.CompareNetObjects { static class Unused { } }\n";
    static readonly Regex main = new Regex(@"static[^;({]*[ \t\n\v\f\r]Main[ \t\n\v\f\r]*\(", RegexOptions.CultureInvariant);
    static readonly Encoding bytes = Encoding.GetEncoding(28591);

    readonly string folder;
    public readonly List<string> Files;

    public Sources(string folder, string solution, string checker)
    {
        this.folder = folder;
        Directory.CreateDirectory(folder);
        Files = new List<string> { Prepared("Checker", checker, out string text), Prepared("Solution", solution, out _) };
        var lines = text.Split('\n');
        if (!lines.Any(main.IsMatch)) Files.Add("Program.cs");
        if (lines.Any(line => line.StartsWith("using KellermanSoftware.CompareNetObjects;", StringComparison.Ordinal)))
            Files.Add(Written("Package", Package));
    }

    string Prepared(string name, string from, out string text)
    {
        text = bytes.GetString(File.ReadAllBytes(from));
        return Written(name, Usings + "\n#line 1 \"" + Directory.GetCurrentDirectory() + "/check/" + name + ".cs\"\n" + text);
    }

    string Written(string name, string text)
    {
        var path = folder + "/" + name + ".cs";
        File.WriteAllBytes(path, bytes.GetBytes(text));
        return path;
    }
}

/// In the program's domain.
public class Launcher : MarshalByRefObject
{
    [DllImport("__Internal")]
    static extern IntPtr mono_domain_get();
    [DllImport("__Internal")]
    static extern IntPtr mono_domain_assembly_open(IntPtr domain, string path);
    [DllImport("__Internal")]
    static extern int mono_jit_exec(IntPtr domain, IntPtr assembly, int count, string[] arguments);

    /// What the main function of `mono` does: arguments, exit code and unhandled exceptions are as there.
    public void Execute(string path)
    {
        var domain = mono_domain_get();
        mono_jit_exec(domain, mono_domain_assembly_open(domain, path), 1, new[] { path });
    }

    /// What a checker does, so that the library's code for it is compiled. Nothing is printed.
    public void Warm()
    {
        TextWriter items = Console.Out, printed = new StringWriter();
        Console.SetOut(printed);
        var watch = Stopwatch.StartNew();
        var quoted = new StringBuilder("\"");
        foreach (char c in "a \"b\" \\ é\n") if (c < ' ') quoted.AppendFormat("\\u{0:x4}", (int)c); else quoted.Append(c);
        Console.WriteLine("{0} {1} {2}", 42, 1.5, quoted.Append('"'));
        try
        {
            throw new ArgumentException("none");
        }
        catch (Exception error)
        {
            Console.Write(error.GetType().Name + ": " + error.Message);
        }
        var values = new Dictionary<string, object> { ["a"] = new List<int> { 1, 2 }, ["b"] = null, ["c"] = 1.5 };
        Console.Write(string.Join(",", values.Select(pair => pair.Key + pair.Value)));
        Console.Write(watch.Elapsed.TotalSeconds.ToString("0.######", CultureInfo.InvariantCulture));
        Console.SetOut(items);
        items.Write(printed.ToString().Substring(0, 0));
        items.Flush();
    }
}
