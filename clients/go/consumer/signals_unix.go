//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

func init() {
	// Writing then fails with an error, which is handled. By default these signals kill the process.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
}
