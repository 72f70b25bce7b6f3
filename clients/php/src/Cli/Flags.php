<?php

declare(strict_types=1);

namespace Oplog\Cli;

use Oplog\Backoff;
use Oplog\OplogException;

/** Flags of a command line. A mistake ends the program with status 2 and one sentence. */
final class Flags
{
    /**
     * Read --name=value and, for a default of false, --name.
     *
     * @param list<string> $arguments
     * @param array<string, string|false> $defaults
     * @return array<string, string|bool>
     */
    public static function read(array $arguments, array $defaults): array
    {
        $given = $defaults;
        foreach ($arguments as $argument) {
            if ($argument === '--help' || $argument === '-h') {
                foreach ($defaults as $name => $default) {
                    echo $default === false ? "  --$name\n" : "  --$name=... (default: '$default')\n";
                }
                exit(0);
            }
            [$name, $value] = explode('=', $argument, 2) + [1 => null];
            $default = $defaults[substr($name, 2)] ?? null;
            if (!str_starts_with($name, '--') || $default === null) {
                Program::usage("$name is not a flag of this program");
            }
            if (($default === false) !== ($value === null)) {
                Program::usage($default === false ? "$name takes no value" : "$name needs a value: $name=...");
            }
            $given[substr($name, 2)] = $value ?? true;
        }
        return $given;
    }

    /** Return seconds. Fractions are allowed. */
    public static function seconds(string $flag, string $text): float
    {
        if (!is_numeric($text) || !((float) $text > 0 && (float) $text <= 1e6)) {
            Program::usage("--$flag: give a number of seconds above 0 and up to 1000000");
        }
        return (float) $text;
    }

    /**
     * Return a function that reads the token in a file, or null without a file. Its exception names the file.
     *
     * @return ?\Closure(): string
     */
    public static function tokenFile(string $path): ?\Closure
    {
        return $path === '' ? null : fn (): string => @file_get_contents($path)
            ?: throw new OplogException("cannot read '$path', or it is empty");
    }

    /** Return the pauses of --backoff=FIRST,LAST. */
    public static function backoff(string $text): Backoff
    {
        $pauses = explode(',', $text);
        if (count($pauses) !== 2) {
            Program::usage('--backoff: give two numbers of seconds such as 1,30');
        }
        [$first, $last] = array_map(fn (string $pause): float => self::seconds('backoff', $pause), $pauses);
        if ($first > $last) {
            Program::usage('--backoff: the second number must not be less than the first');
        }
        return new Backoff($first, $last);
    }

    /**
     * Return the names of a comma-separated list.
     *
     * @return list<string>
     */
    public static function names(string $flag, string $given): array
    {
        $names = $given === '' ? [] : explode(',', $given);
        if (in_array('', $names, true)) {
            Program::usage("--$flag: give names separated by commas, none of them empty");
        }
        return $names;
    }
}
