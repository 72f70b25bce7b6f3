// Package command is shared by the two programs: flags and the end of the program.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"oplog.example/oplog"
	"oplog.example/oplog/internal/text"
)

const maxSeconds = 1e6

// ParseFlags reads the command line. After a mistake it ends the program with status 2 and one sentence.
func ParseFlags(flags *flag.FlagSet) {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		os.Exit(0)
	case err != nil:
		Usage(err.Error())
	case flags.NArg() > 0:
		Usage(fmt.Sprintf("unexpected argument %q", flags.Arg(0)))
	}
}

// Usage ends the program with status 2 and one sentence about its command line.
func Usage(message string) {
	fmt.Fprintln(os.Stderr, text.OneLine(message)+"; see -help")
	os.Exit(2)
}

// Fail ends the program with status 1 and one sentence for each error that was joined.
func Fail(err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintln(os.Stderr, text.OneLine(line))
	}
	os.Exit(1)
}

// Seconds defines a flag for a duration in seconds. Fractions are allowed.
func Seconds(flags *flag.FlagSet, name string, value time.Duration, usage string) *time.Duration {
	text := fmt.Sprintf("%s, in `seconds` (default %g)", usage, value.Seconds())
	flags.Func(name, text, func(given string) (err error) {
		value, err = seconds(given)
		return err
	})
	return &value
}

// TokenFile defines the flag -token-file. The result returns a function that reads the file, or the password in
// OPLOG_PASSWORD if the flag is not given.
func TokenFile(flags *flag.FlagSet) func() (password string, token func(context.Context) (string, error)) {
	path := flags.String("token-file", "", "`file` with a token, instead of OPLOG_PASSWORD; it is read again for each fresh token")
	return func() (string, func(context.Context) (string, error)) {
		if *path == "" {
			return os.Getenv("OPLOG_PASSWORD"), nil
		}
		return "", func(context.Context) (string, error) {
			token, err := os.ReadFile(*path)
			return string(token), err
		}
	}
}

// Backoff defines the flag -backoff.
func Backoff(flags *flag.FlagSet) *oplog.Backoff {
	backoff := oplog.Backoff{First: time.Second, Last: 30 * time.Second}
	text := "first and longest pause between attempts, in seconds, as `FIRST,LAST` (default 1,30)"
	flags.Func("backoff", text, func(given string) error {
		first, last, _ := strings.Cut(given, ",")
		var errFirst, errLast error
		backoff.First, errFirst = seconds(first)
		backoff.Last, errLast = seconds(last)
		if errFirst != nil || errLast != nil || backoff.First > backoff.Last {
			return errors.New("give two numbers of seconds such as 1,30, the second not less than the first")
		}
		return nil
	})
	return &backoff
}

func seconds(text string) (time.Duration, error) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !(number > 0 && number <= maxSeconds) {
		return 0, fmt.Errorf("give a number of seconds above 0 and up to %d", int(maxSeconds))
	}
	return max(time.Duration(number*float64(time.Second)), 1), nil
}
