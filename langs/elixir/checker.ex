# Calls the posted `Solution.solution` once per entry of check/asserts.json; leaves one JSON array in a file.
#
# Standard output is the file of what was printed, so nothing the solution
# prints, not even a child process of it, can come between the items. The array
# goes to a file too: the virtual machine has no sure way to a descriptor it was
# started with.
#
# System.halt ends the machine where it stands, with nothing run after it. So
# items are kept in a journal as they come, and where the machine ended without
# a report the recipe starts it again for that alone.

defmodule Cofferdam.Report do
  @moduledoc false

  # `items` are the latest first, each with its type.
  defstruct [:printed_path, :journal, :results_path, printed: 0, items: [], failures: 0]

  # Characters of printed text that are repeated on stderr.
  @repeated_max 4096

  def open(printed_path, journal_path, results_path) do
    {:ok, journal} = :file.open(journal_path, [:raw, :append])
    report = %__MODULE__{printed_path: printed_path, journal: journal, results_path: results_path}

    # A line is the count of printed bytes already told, the item's type and the item.
    Enum.reduce(journal_lines(journal_path), report, fn line, report ->
      [told, line] = :binary.split(line, " ")
      [type, item] = :binary.split(line, " ")
      %{report | printed: String.to_integer(told), items: [{type, item} | report.items]}
    end)
  end

  @doc "An item, of which a process of its own may die without harm to the others."
  def item(type, value, more \\ %{}) do
    more |> Map.merge(%{type: type, value: value}) |> :json.encode(&encode/2) |> IO.iodata_to_binary()
  end

  def add(report, type, item) do
    {report, printed} = take_printed(report)
    keep(report, type, with_printed(item, printed))
  end

  # The platform shows what a call printed from the call's own item.
  defp with_printed(item, ""), do: item

  defp with_printed(item, printed) do
    [binary_part(item, 0, byte_size(item) - 1), ~s(,"output":), :json.encode_binary(printed), "}"]
  end

  def error(report, text), do: add(report, "error", item("error", String.replace_invalid(text)))

  def failure(report, banner, whole) do
    if report.failures == 0, do: IO.puts(:stderr, whole)
    error(%{report | failures: report.failures + 1}, banner)
  end

  def send(report) do
    {report, _printed} = take_printed(report)
    part = report.results_path <> ".part"
    :ok = :file.write_file(part, ["[", report |> shown_items() |> Enum.intersperse(","), "]\n"])
    # Whole or not there: the recipe takes it for a report if it exists.
    :ok = :file.rename(part, report.results_path)
  end

  # The platform shows an error that is the only item, and stderr with it, as the error of the
  # whole check. Beside any other item it is the row of the first call.
  defp shown_items(report) do
    case Enum.reject(report.items, fn {type, _item} -> type == "output" end) do
      [{"error", answer}] ->
        repeat_printed(answer)
        [answer]

      _ ->
        report.items |> Enum.reverse() |> Enum.map(fn {_type, item} -> item end)
    end
  end

  defp repeat_printed(answer) do
    with %{"output" => printed} <- answer |> IO.iodata_to_binary() |> :json.decode() do
      IO.puts(:stderr, "printed before the error:\n" <> String.slice(printed, 0, @repeated_max))
    end
  end

  defp take_printed(report) do
    {:ok, file} = :file.open(report.printed_path, [:raw, :read, :binary])
    {:ok, size} = :file.position(file, :eof)
    text = read(file, report.printed, size - report.printed)
    :file.close(file)

    case text do
      "" ->
        {report, ""}

      text ->
        text = String.replace_invalid(text)
        {keep(%{report | printed: size}, "output", item("output", text)), text}
    end
  end

  defp read(_file, _from, count) when count <= 0, do: ""

  defp read(file, from, count) do
    {:ok, text} = :file.pread(file, from, count)
    text
  end

  defp keep(report, type, item) do
    :ok = :file.write(report.journal, [Integer.to_string(report.printed), " ", type, " ", item, "\n"])
    %{report | items: [{type, item} | report.items]}
  end

  defp journal_lines(path) do
    {:ok, text} = :file.read_file(path)
    # The end of the machine may have cut the last line.
    text |> :binary.split("\n", [:global]) |> Enum.drop(-1)
  end

  # JSON has one null; a struct has no form of its own in it, nor has a tuple.
  defp encode(nil, _encoder), do: "null"

  defp encode(%module{}, _encoder) do
    raise ArgumentError, "a #{inspect(module)} struct is not a JSON value"
  end

  defp encode(value, _encoder)
       when is_tuple(value) or is_function(value) or is_pid(value) or is_reference(value) or is_port(value) do
    raise ArgumentError, "#{inspect(value)} is not a JSON value"
  end

  defp encode(value, _encoder) when is_bitstring(value) do
    if is_binary(value) and String.valid?(value) do
      :json.encode_binary(value)
    else
      raise ArgumentError, "#{inspect(value)} is not UTF-8"
    end
  end

  defp encode([_ | _] = value, encoder) do
    if List.improper?(value), do: raise(ArgumentError, "#{inspect(value)} is not a proper list")
    :json.encode_value(value, encoder)
  end

  defp encode(value, encoder), do: :json.encode_value(value, encoder)
end

defmodule Cofferdam.Harness do
  @moduledoc false

  alias Cofferdam.Report

  @asserts "check/asserts.json"
  @solution "check/solution.exs"

  @doc "As `erl -s` calls it."
  def main do
    {:ok, _} = :application.ensure_all_started(:elixir)
    start(Enum.map(:init.get_plain_arguments(), &List.to_string/1))
  end

  def start([printed, journal, results, "prestart", shell]) do
    await_run(shell)
    start([printed, journal, results])
  end

  def start([printed, journal, results | ended]) do
    report = Report.open(printed, journal, results)

    report =
      case ended do
        [] -> run(report)
        # Without it, the calls that never came would look like none were asked.
        [code] -> Report.error(report, "the program ended before its last call: exit #{code}#{meaning(code)}")
      end

    Report.send(report)
    # What was logged is on its way still; what still runs is not waited for.
    :logger_std_h.filesync(:default)
    :erlang.halt(0)
  end

  # Started ahead of the run: compiles and calls a solution of the workspace, so that the compiler is loaded, reports
  # that, and waits for the run.
  defp await_run(shell) do
    for _ <- 1..3 do
      modules = Code.compile_file("warm/solution.exs")
      Report.item("result", apply(Ahead, :solution, [[3, 1, 2]]), %{time: 0.5})

      for {module, _binary} <- modules do
        :code.delete(module)
        :code.purge(module)
      end
    end

    {:ok, stdout} = :file.open("/proc/#{shell}/fd/3", [:raw, :append])
    {:ok, stdin} = :file.open("/proc/#{shell}/fd/4", [:raw, :read])
    :ok = :file.write(stdout, "ready\n")
    :ok = :file.close(stdout)
    :eof = :file.read(stdin, 1)
    :ok = :file.close(stdin)
  end

  defp meaning("137"), do: ", killed, as for taking too much memory"
  defp meaning(_code), do: ""

  defp run(report) do
    case read_calls() do
      {:ok, calls} -> make_calls(report, [:load | calls], start_worker())
      {:error, text} -> Report.error(report, text)
    end
  end

  defp read_calls do
    with {:ok, text} <- :file.read_file(@asserts),
         {%{"arguments" => calls}, :ok, rest} when is_list(calls) <- :json.decode(text, :ok, %{null: nil}),
         true <- String.trim(rest) == "" and Enum.all?(calls, &is_list/1) do
      {:ok, calls}
    else
      {:error, reason} -> {:error, "#{@asserts}: #{:file.format_error(reason)}"}
      _ -> {:error, ~s(#{@asserts}: want {"arguments": [[...], ...]})}
    end
  rescue
    ErlangError -> {:error, "#{@asserts}: not JSON"}
  end

  defp make_calls(report, [], _worker), do: report

  defp make_calls(report, [call | rest], {pid, monitor, tag} = worker) do
    send(pid, {tag, call})

    receive do
      {^tag, :loaded} ->
        make_calls(report, rest, worker)

      {^tag, :item, item} ->
        report |> Report.add("result", item) |> make_calls(rest, worker)

      {^tag, :failure, banner, whole} ->
        report |> Report.failure(banner, whole) |> make_calls(rest(call, rest), worker)

      {^tag, :error, text} ->
        report |> Report.error(text) |> make_calls(rest(call, rest), worker)

      {:DOWN, ^monitor, :process, _pid, reason} ->
        text = "** (EXIT) " <> Exception.format_exit(reason)
        report |> Report.error(text) |> make_calls(rest(call, rest), start_worker())
    end
  end

  # Nothing is called of a solution that did not load.
  defp rest(:load, _calls), do: []
  defp rest(_call, calls), do: calls

  # One process loads the solution and makes all the calls, as the solution may
  # keep state in it. Where it dies, as by a link, another makes the rest. The
  # tag keeps the harness's messages apart from the solution's.
  defp start_worker do
    parent = self()
    tag = make_ref()
    {pid, monitor} = spawn_monitor(fn -> work(parent, tag) end)
    {pid, monitor, tag}
  end

  defp work(parent, tag) do
    answer =
      receive do
        {^tag, :load} -> load(tag)
        {^tag, arguments} -> call(tag, arguments)
      end

    send(parent, answer)
    work(parent, tag)
  end

  defp call(tag, arguments) do
    start = System.monotonic_time(:microsecond)
    value = apply(Solution, :solution, arguments)
    seconds = (System.monotonic_time(:microsecond) - start) / 1_000_000
    {tag, :item, Report.item("result", value, %{time: seconds})}
  catch
    kind, reason -> failure(tag, kind, reason, __STACKTRACE__)
  end

  defp failure(tag, kind, reason, stacktrace) do
    {tag, :failure, Exception.format_banner(kind, reason, stacktrace),
     Exception.format(kind, reason, stacktrace)}
  end

  defp load(tag) do
    # A solution may bring a module of a name that Elixir has.
    Code.put_compiler_option(:ignore_module_conflict, true)
    start_logger_where_named()

    {outcome, diagnostics} =
      Code.with_diagnostics([log: true], fn ->
        try do
          Code.compile_file(@solution)
          :loaded
        catch
          kind, reason -> {kind, reason, __STACKTRACE__}
        end
      end)

    errors = for %{severity: :error} = found <- diagnostics, do: describe(found)

    case outcome do
      :loaded ->
        loaded(tag)

      # The exception says then only that there were errors.
      {:error, %CompileError{}, _} when errors != [] ->
        {tag, :error, "** (CompileError) " <> Enum.join(errors, "\n")}

      {kind, reason, stacktrace} ->
        failure(tag, kind, reason, stacktrace)
    end
  end

  defp loaded(tag) do
    if Code.ensure_loaded?(Solution) and List.keymember?(Solution.module_info(:exports), :solution, 0),
      do: {tag, :loaded},
      else: {tag, :error, "#{@solution} defines no function Solution.solution"}
  end

  # The elixir command starts it always; few solutions have a use for it.
  defp start_logger_where_named do
    with {:ok, text} <- :file.read_file(@solution),
         {_, _} <- :binary.match(text, "Logger") do
      Application.put_env(:logger, :default_handler, config: [type: :standard_error])
      Application.ensure_all_started(:logger)
    end
  end

  defp describe(%{position: {line, _column}, message: message}), do: "#{@solution}:#{line}: #{message}"
  defp describe(%{position: line, message: message}), do: "#{@solution}:#{line}: #{message}"
end
