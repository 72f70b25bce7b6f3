package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

const mostSeconds = 1e6

// ParseFlags reads the command line. After a mistake it ends the program with status 2 and a sentence.
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

// Usage ends the program with status 2 and a sentence about its command line.
func Usage(message string) {
	fmt.Fprintln(os.Stderr, Plain(message)+"; see -help")
	os.Exit(2)
}

// Seconds is a flag for a duration in seconds, fractions allowed.
func Seconds(flags *flag.FlagSet, name string, value time.Duration, usage string) *time.Duration {
	text := fmt.Sprintf("%s, in `seconds` (default %g)", usage, value.Seconds())
	flags.Func(name, text, func(given string) (err error) {
		value, err = seconds(given)
		return err
	})
	return &value
}

// Pauses is the flag -backoff.
func Pauses(flags *flag.FlagSet) *Backoff {
	pauses := Backoff{First: time.Second, Last: 30 * time.Second}
	text := "first and longest pause between attempts, in seconds, as `FIRST,LAST` (default 1,30)"
	flags.Func("backoff", text, func(given string) error {
		first, last, _ := strings.Cut(given, ",")
		var errFirst, errLast error
		pauses.First, errFirst = seconds(first)
		pauses.Last, errLast = seconds(last)
		if errFirst != nil || errLast != nil || pauses.First > pauses.Last {
			return errors.New("give two numbers of seconds such as 1,30, the second not less than the first")
		}
		return nil
	})
	return &pauses
}

func seconds(text string) (time.Duration, error) {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !(number > 0 && number <= mostSeconds) {
		return 0, fmt.Errorf("give a number of seconds above 0 and up to %d", int(mostSeconds))
	}
	return max(time.Duration(number*float64(time.Second)), 1), nil
}
