//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// lock fails at once if another process holds the lock. The system releases it when the process ends.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func init() {
	// Writing then fails with an error, which is handled, in the place of a signal that kills.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ)
}
