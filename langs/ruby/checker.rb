# frozen_string_literal: true

# Calls the posted `solution` once per entry of check/asserts.json; reports one JSON array.
#
# Descriptor 3 is the run's stdout. Descriptor 1 is the file named by the first
# argument, so nothing the solution prints, not even a child process of it, can
# come between the items.

require 'json'

# A module of its own: a solution's top-level methods and constants must not
# replace the harness's.
module Harness
  ASSERTS = 'check/asserts.json'
  SOLUTION = './check/solution.rb'
  RESULTS_FD = 3
  # Ahead of a run: ends when the files are there and the run begins.
  BEGIN_FD = 4
  # Bytes: the trace of a deep recursion may be longer than a run's output.
  SHOWN_OF_ERROR = 4096
  # Characters of printed text that are repeated on stderr.
  REPEATED_MAX = 4096

  # The items so far, each encoded as it came: a later one cannot spoil it.
  class Report
    def initialize(printed_path)
      @items = []
      # How many of them stand for a call: all but what was printed.
      @answers = 0
      # The only answer so far, if that is an error, and what was printed before it.
      @lone_error = nil
      @failures = 0
      @printed = File.open(printed_path, 'rb')
      @results = IO.for_fd(RESULTS_FD, 'wb')
      @results.close_on_exec = true
    end

    # Encoded before what was printed is taken, so that a value JSON cannot
    # hold leaves the order output, error.
    def add(type, value, more = {})
      item = JSON.generate({ type: type, value: value, **more }, max_nesting: 0)
      printed = take_printed
      # The platform shows what a call printed from the call's own item.
      answer = printed.empty? ? item : "#{item[0...-1]},\"output\":#{JSON.generate(printed)}}"
      @items << answer
      @answers += 1
      @lone_error = @answers == 1 && type == 'error' ? [answer, printed] : nil
    end

    def add_failure(error)
      warn(error.full_message(highlight: false).byteslice(0, SHOWN_OF_ERROR)) if @failures.zero?
      @failures += 1
      add('error', readable("#{error.class}: #{error.message}"))
    end

    def send_all
      take_printed
      @results.write("[#{shown_items.join(',')}]\n")
      @results.close
    end

    private

    # The platform shows an error that is the only item, and stderr with it, as the error of
    # the whole check. Beside any other item it is the row of the first call.
    def shown_items
      return @items unless @lone_error

      answer, printed = @lone_error
      # Not by `warn`: the solution may have replaced $stderr.
      STDERR.syswrite("printed before the error:\n#{printed[0, REPEATED_MAX]}\n") unless printed.empty?
      [answer]
    rescue IOError, SystemCallError
      [answer] # The solution closed it.
    end

    def take_printed
      begin
        $stdout.flush
        STDOUT.flush
      rescue StandardError
        nil # The solution closed or replaced it; what reached the file counts.
      end
      text = readable(@printed.read)
      @items << JSON.generate({ type: 'output', value: text }) unless text.empty?
      text
    end

    def readable(text)
      String.new(text).force_encoding(Encoding::UTF_8).scrub
    end
  end

  module_function

  def read_calls
    asserts = JSON.parse(File.read(ASSERTS, encoding: 'UTF-8'), max_nesting: 0)
    calls = asserts['arguments'] if asserts.is_a?(Hash)
    return calls if calls.is_a?(Array) && calls.all?(Array)

    raise ArgumentError, 'want {"arguments": [[...], ...]}'
  end

  def load_solution
    # Bundled gems (prime, matrix) need RubyGems, which is not loaded yet.
    require 'rubygems' if File.binread(SOLUTION).include?('require')
    load SOLUTION
    main = TOPLEVEL_BINDING.receiver
    return main if main.respond_to?(:solution, true)

    raise NameError, 'check/solution.rb defines no method `solution`'
  end

  def call(report, main, arguments)
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    value = main.__send__(:solution, *arguments)
    seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
    report.add('result', value, time: seconds.round(6))
  rescue SystemExit
    raise
  rescue Exception => e # rubocop:disable Lint/RescueException
    report.add_failure(e)
  end

  def run(report)
    begin
      calls = read_calls
    rescue SystemCallError, ArgumentError, JSON::ParserError => e
      return report.add('error', "#{ASSERTS}: #{e.message}")
    end
    begin
      main = load_solution
    rescue SystemExit
      raise
    rescue Exception => e # rubocop:disable Lint/RescueException
      return report.add_failure(e)
    end
    calls.each { |arguments| call(report, main, arguments) }
  end

  # Started ahead of the run: reports that, and waits for it.
  def await_run
    ARGV.pop
    # What a run does is done once, so that nothing of it is met for the first time.
    JSON.generate(JSON.parse('{"arguments":[[1,"a",null,1.5,true]]}', max_nesting: 0), max_nesting: 0)
    IO.for_fd(RESULTS_FD, 'wb', autoclose: false).syswrite("ready\n")
    IO.open(BEGIN_FD, 'rb') { |input| input.read(1) }
  end

  def main(printed_path)
    await_run if ARGV.last == 'prestart'
    report = Report.new(printed_path)
    run(report)
  rescue SystemExit => e
    # Without it, the calls that never came would look like none were asked.
    report.add('error', "the solution ended the program: exit #{e.status}")
    raise
  ensure
    report&.send_all
  end
end

Harness.main(ARGV.fetch(0))
