package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// Each item is one line, written as soon as it is known: an end of the whole
// program in a later call does not take it back.
func report(kind string, value any, seconds float64) {
	item := map[string]any{"type": kind, "value": value}
	if kind == "result" {
		item["time"] = seconds
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(item); err != nil {
		encoder.Encode(map[string]any{"type": "error", "value": err.Error()})
	}
}

// call makes one call with os.Stdout led into a pipe. The pipe is read while
// the solution runs, or a solution that prints more than it holds would hang.
func call(solve func() any) (value any, seconds float64, printed string, failure any) {
	stdout := os.Stdout
	read, write, err := os.Pipe()
	if err != nil {
		return nil, 0, "", err
	}
	var captured bytes.Buffer
	done := make(chan struct{})
	go func() {
		io.Copy(&captured, read)
		close(done)
	}()
	os.Stdout = write
	defer func() {
		if failure = recover(); failure != nil {
			fmt.Fprintf(os.Stderr, "panic: %v\n%s", failure, debug.Stack())
		}
		os.Stdout = stdout
		write.Close()
		<-done
		read.Close()
		printed = captured.String()
	}()
	start := time.Now()
	value = solve()
	seconds = time.Since(start).Seconds()
	return
}

func check(solve func() any) {
	value, seconds, printed, failure := call(solve)
	if printed != "" {
		report("output", printed, 0)
	}
	if failure != nil {
		report("error", fmt.Sprint(failure), 0)
		return
	}
	report("result", value, seconds)
}

func main() {
	check(func() any { return solution(1, 2) })
	check(func() any { return solution(40, 2) })
}
