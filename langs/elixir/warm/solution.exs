# Compiled and called ahead of runs, for what it makes the compiler load. Its modules are removed again.
defmodule Ahead.Pair do
  @moduledoc false
  defstruct left: nil, right: 0
end

defmodule Ahead do
  @moduledoc false
  import Bitwise

  alias Ahead.Pair

  @limit 10

  def solution(numbers) when is_list(numbers) do
    sorted = numbers |> Enum.sort(:desc) |> Enum.map(&(&1 * 2)) |> Enum.filter(fn number -> number < @limit end)
    squares = for number <- sorted, rem(number, 2) == 0, into: %{}, do: {"#{number}", number * number}

    total =
      Enum.reduce(sorted, 0, fn
        number, sum when number > 2 -> sum + number
        _number, sum -> sum
      end)

    pair = %Pair{left: Map.get(squares, "4", nil), right: total}

    %{
      "case" => classify(pair),
      "cond" => size(total),
      "text" => text(" Some words, some words "),
      "bits" => bor(total <<< 1, 1),
      "zipped" => sorted |> Enum.zip(1..3) |> Enum.map(&Tuple.to_list/1),
      "checked" => checked("12")
    }
  end

  defp classify(%Pair{left: nil}), do: :none
  defp classify(%Pair{left: left, right: right}) when left > right, do: :left
  defp classify(%Pair{}), do: :right

  defp size(total) do
    cond do
      total > 100 -> "large"
      total > 5 -> "middle"
      true -> "small"
    end
  end

  defp text(words) do
    words
    |> String.trim()
    |> String.downcase()
    |> String.split(~r/[\s,]+/, trim: true)
    |> Enum.group_by(&String.length/1)
    |> Enum.map(fn {length, found} -> "#{length}: #{Enum.join(found, "-")}" end)
  end

  defp checked(text) do
    with {number, ""} <- Integer.parse(text),
         true <- number > 0 do
      if rem(number, 2) == 0, do: {:ok, number} |> elem(1), else: 0
    else
      _ -> raise ArgumentError, "not a number: #{inspect(text)}"
    end
  rescue
    error in ArgumentError -> Exception.message(error)
  end
end
