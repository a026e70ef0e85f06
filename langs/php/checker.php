<?php

// Calls the posted `solution` once per entry of check/asserts.json; reports one JSON array.
//
// Descriptor 3 is the run's stdout. Descriptor 1 is the file named by the first
// argument, so nothing the solution prints, not even a child process of it, can
// come between the items.

// A namespace and static members: a solution's functions and global variables
// must not collide with the harness's.
namespace Harness;

final class Report
{
    private const FLAGS = JSON_PRESERVE_ZERO_FRACTION | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE;

    /** bytes: the trace of a deep recursion is longer than a run's output may be */
    private const SHOWN_OF_ERROR = 4096;

    /** @var string[] the items so far, each encoded as it came: a later one cannot spoil it */
    private static array $items = [];
    /** how many of them stand for a call: all but what was printed */
    private static int $answers = 0;
    /** @var ?string[] the only answer so far, if that is an error, and what was printed before it */
    private static ?array $lone_error = null;
    private static int $failures = 0;
    private static bool $finished = false;
    /** @var resource */
    private static $printed;
    /** @var resource */
    private static $results;

    public static function open(string $printedPath): void
    {
        self::$printed = fopen($printedPath, 'rb');
        self::$results = fopen('php://fd/3', 'wb');
        // Reached by exit() in a solution and by fatal errors too.
        register_shutdown_function(self::finish(...));
        set_error_handler(self::show(...));
    }

    /** Waits for the run, if this is started ahead of it. */
    public static function awaitRun(bool $is_ahead): void
    {
        // Opened in any case: the next resource has the same number then.
        $begin = fopen('php://stdin', 'rb');
        if ($is_ahead) {
            // What a run does is done once, so that nothing of it is met for the first time.
            self::encode(json_decode('{"arguments":[[1,"a",null,1.5,true]]}', true));
            self::takePrinted();
            fwrite(self::$results, "ready\n");
            fread($begin, 1);
        }
        fclose($begin);
    }

    /** Prints what is no fatal error as PHP does, so that it is shown with the call it is of. */
    private static function show(int $level, string $message, string $file, int $line): bool
    {
        $name = match ($level) {
            E_WARNING, E_USER_WARNING => 'Warning',
            E_NOTICE, E_USER_NOTICE => 'Notice',
            E_DEPRECATED, E_USER_DEPRECATED => 'Deprecated',
            default => null,
        };
        // What is silenced with @ is left to PHP, which then remembers it.
        if ($name === null || (error_reporting() & $level) === 0) {
            return false;
        }
        echo "\n$name: $message in $file on line $line\n";
        return true;
    }

    public static function result(mixed $value, float $seconds): void
    {
        // Encoded before what was printed is taken, so that a value JSON cannot
        // hold leaves the order output, error.
        $item = ['type' => 'result', 'value' => $value, 'time' => round($seconds, 6)];
        $encoded = json_encode($item, self::FLAGS | JSON_THROW_ON_ERROR);
        self::add($encoded, false);
    }

    public static function error(string $value): void
    {
        self::add(self::encode(['type' => 'error', 'value' => $value]), true);
    }

    public static function failure(\Throwable $error): void
    {
        if (self::$failures === 0) {
            fwrite(STDERR, substr((string) $error, 0, self::SHOWN_OF_ERROR) . "\n");
        }
        self::$failures += 1;
        $place = basename($error->getFile()) . ':' . $error->getLine();
        self::error($error::class . ': ' . $error->getMessage() . " ($place)");
    }

    /** Every call was made, or none can be. */
    public static function finished(): void
    {
        self::$finished = true;
    }

    private static function finish(): void
    {
        // Where the solution's own values took all memory, this too needs some.
        ini_set('memory_limit', '-1');
        $fatal = error_get_last();
        $is_fatal = $fatal !== null && ($fatal['type'] & (E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR)) !== 0;
        if ($is_fatal) {
            self::error($fatal['message'] . ' (' . basename($fatal['file']) . ':' . $fatal['line'] . ')');
        } elseif (!self::$finished) {
            // Without it, the calls that never came would look like none were asked.
            self::error('the solution ended the program');
        }
        self::takePrinted();
        fwrite(self::$results, '[' . implode(',', self::shownItems()) . "]\n");
        if ($is_fatal) {
            // The item says it, as it does for an error that could be caught.
            exit(0);
        }
    }

    /**
     * The platform shows an error that is the only item, and stderr with it, as the error of
     * the whole check. Beside any other item it is the row of the first call.
     *
     * @return string[]
     */
    private static function shownItems(): array
    {
        if (self::$lone_error === null) {
            return self::$items;
        }
        [$answer, $printed] = self::$lone_error;
        if ($printed !== '') {
            fwrite(STDERR, "printed before the error:\n" . substr($printed, 0, self::SHOWN_OF_ERROR) . "\n");
        }
        return [$answer];
    }

    /** The platform shows what a call printed from the call's own item. */
    private static function add(string $encoded, bool $is_error): void
    {
        $printed = self::takePrinted();
        $answer = $printed === ''
            ? $encoded
            : substr($encoded, 0, -1) . ',"output":' . self::encode($printed) . '}';
        self::$items[] = $answer;
        self::$answers += 1;
        self::$lone_error = self::$answers === 1 && $is_error ? [$answer, $printed] : null;
    }

    private static function encode(mixed $value): string
    {
        return json_encode($value, self::FLAGS | JSON_INVALID_UTF8_SUBSTITUTE);
    }

    private static function takePrinted(): string
    {
        while (ob_get_level() > 0) {
            ob_end_flush();
        }
        $printed = stream_get_contents(self::$printed);
        if ($printed !== '') {
            self::$items[] = self::encode(['type' => 'output', 'value' => $printed]);
        }
        return $printed;
    }
}

final class Calls
{
    private const ASSERTS = 'check/asserts.json';

    private static array $calls;

    public static function read(): bool
    {
        $text = @file_get_contents(self::ASSERTS);
        $asserts = $text === false ? null : json_decode($text, true);
        $calls = is_array($asserts) ? ($asserts['arguments'] ?? null) : null;
        $is_list = fn (mixed $value): bool => is_array($value) && array_is_list($value);
        if ($is_list($calls) && array_filter($calls, $is_list) === $calls) {
            self::$calls = $calls;
            return true;
        }
        $reason = match (true) {
            $text === false => 'cannot be read',
            json_last_error() !== JSON_ERROR_NONE => json_last_error_msg(),
            default => 'want {"arguments": [[...], ...]}',
        };
        Report::error(self::ASSERTS . ": $reason");
        return false;
    }

    public static function makeAll(): void
    {
        if (!function_exists('\solution')) {
            Report::error('check/solution.php defines no function solution');
            return;
        }
        foreach (self::$calls as $arguments) {
            // On a stack of its own: after a recursion that took all memory
            // the main one still has room for the function that reports it.
            $call = new \Fiber(self::make(...));
            $call->start($arguments);
            if (!$call->isTerminated()) {
                Report::error('the solution suspended a fiber it did not start');
            }
        }
    }

    private static function make(array $arguments): void
    {
        try {
            $start = hrtime(true);
            $value = \solution(...$arguments);
            Report::result($value, (hrtime(true) - $start) / 1e9);
        } catch (\Throwable $error) {
            Report::failure($error);
        }
    }
}

Report::open($argv[1]);
if (($argv[2] ?? null) === 'prestart') {
    // As the arguments are without it.
    $argc = $_SERVER['argc'] = 2;
    array_pop($argv);
    array_pop($_SERVER['argv']);
    Report::awaitRun(true);
} else {
    Report::awaitRun(false);
}
if (Calls::read()) {
    try {
        // Here and not in a function: the solution's variables are to be global.
        require 'check/solution.php';
        Calls::makeAll();
    } catch (\Throwable $error) {
        Report::failure($error);
    }
}
Report::finished();
