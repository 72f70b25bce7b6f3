<?php

declare(strict_types=1);

namespace Oplog\Cli;

use Oplog\Stop;
use Oplog\Text;

/** Set-up and end of a program: errors as one line without a stack trace, signals. */
final class Program
{
    /** Turn warnings into exceptions, and every uncaught error into a line on stderr and an exit status. */
    public static function start(): void
    {
        ini_set('display_errors', '0'); // the handlers below write them
        ini_set('log_errors', '0');
        set_error_handler(function (int $severity, string $message): bool {
            if (!(error_reporting() & $severity)) {
                return false; // silenced by @; error_get_last() has it
            }
            if ($severity & (E_DEPRECATED | E_USER_DEPRECATED)) {
                return true;
            }
            throw new \ErrorException($message, 0, $severity);
        });
        set_exception_handler(function (\Throwable $error): void {
            for (; $error !== null; $error = $error->getPrevious()) { // two if the position could not be saved either
                Text::tell($error->getMessage());
            }
            exit(1);
        });
        register_shutdown_function(function (): void {
            $error = error_get_last();
            if ($error !== null && ($error['type'] & (E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR))) {
                Text::tell($error['message']); // PHP ends with status 255
            }
        });
    }

    /** End the program with a line on stderr. */
    public static function fail(int $status, string $message): never
    {
        Text::tell($message);
        exit($status);
    }

    /** End the program with status 2 and a sentence about its command line. */
    public static function usage(string $message): never
    {
        self::fail(2, "$message; see --help");
    }

    /** Return a stop that SIGTERM and SIGINT request. The second signal kills; without the extension pcntl the first one does. */
    public static function stopOnSignals(): Stop
    {
        $stop = new Stop();
        if (!function_exists('pcntl_signal')) {
            return $stop;
        }
        pcntl_async_signals(true);
        $handler = function () use ($stop): void {
            $stop->request();
            pcntl_signal(SIGTERM, SIG_DFL);
            pcntl_signal(SIGINT, SIG_DFL);
        };
        pcntl_signal(SIGTERM, $handler);
        pcntl_signal(SIGINT, $handler);
        pcntl_signal(SIGXFSZ, SIG_IGN); // writing then fails with an error, which is handled
        return $stop;
    }
}
